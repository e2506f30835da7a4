"""Fields that a schema declares as optional or with a default, and fields that it does not have."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps

from ..how import how
from ..spark.running import run_inline

ENGINES = ["sequential", "threads", "inline"]


@dataclass
class Order:
    at: int
    user: str
    currency: str = "EUR"
    note: str | None = None
    tags: list[str] = field(default_factory=lambda: ["new"])


class Brief(NamedTuple):
    at: int
    amount: float = 1.5


def as_file(path: Path, format: str, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    if format == "json":
        path.write_text("\n".join(map(json.dumps, rows)))
    elif format == "parquet":
        names = list(dict.fromkeys(name for row in rows for name in row))
        pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), path)
    else:
        names = list(dict.fromkeys(name for row in rows for name in row))
        values = [",".join("" if row.get(name) is None else str(row[name]) for name in names) for row in rows]
        path.write_text("\n".join([",".join(names), *values]))


def results(reader: Any, place: Path, engine: str, on_error: str = "fail", **source: Any) -> dict[str, list[Any]]:
    flow = ps.Flow("declared")
    stream = flow.source("in", reader, on_error=on_error, **source)  # type: ignore[arg-type]
    if on_error == "dead_letter":
        stream.errors.map(lambda letter: (letter.where.split("/")[-1], letter.error), name="told").sink("errors")
    stream.sink("out")
    run = run_inline(flow, place / f"ck-{random.random()}") if engine == "inline" else ps.run(flow, **how(engine))
    return run.results  # type: ignore[no-any-return]


ROWS: list[dict[str, Any]] = [
    {"at": 1, "user": "ann"},
    {"at": 2, "user": "bob", "currency": "USD", "note": "hi", "tags": []},
    {"at": 3, "user": "cid", "currency": None, "tags": None},
]
MEANT = [Order(1, "ann"), Order(2, "bob", "USD", "hi", []), Order(3, "cid")]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("format", ["json", "parquet", "items"])
def test_a_field_without_a_value_has_its_default(tmp_path, format, engine):
    if format != "items":
        as_file(tmp_path / "in" / f"1.{format}", format, ROWS)
        as_file(tmp_path / "in" / f"2.{format}", format, ROWS[:1])  # has no column for the others at all
    readers = {"json": ps.read.json, "parquet": ps.read.parquet}
    reader: Any = ps.read.items([*ROWS, ROWS[0]], schema=Order)
    if format != "items":
        reader = readers[format](str(tmp_path / "in"), schema=Order)
    found = results(reader, tmp_path, engine)["out"]
    assert found == [*MEANT, MEANT[0]]


@pytest.mark.parametrize("engine", ENGINES)
def test_csv_needs_no_column_for_it(tmp_path, engine):
    as_file(tmp_path / "in/1.csv", "csv", [{"at": 1}, {"at": 2}])
    as_file(tmp_path / "in/2.csv", "csv", [{"at": 3, "amount": 4.0}, {"at": 4, "amount": None}])
    found = results(ps.read.csv(str(tmp_path / "in"), schema=Brief), tmp_path, engine)["out"]
    assert found == [Brief(1, 1.5), Brief(2, 1.5), Brief(3, 4.0), Brief(4, 1.5)]


@pytest.mark.parametrize("schema", [Brief, {"at": int, "amount": float | None}])
def test_a_column_without_a_default_is_needed(tmp_path, schema):
    as_file(tmp_path / "in/1.parquet", "parquet", [{"amount": 1.0}])
    with pytest.raises(ps.PenstockError, match="there is no column 'at'"):
        results(ps.read.parquet(str(tmp_path / "in"), schema=schema), tmp_path, "threads")


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_are_in_the_order_of_their_defaults(tmp_path, engine):
    """What is looked at ahead, to order rows of several sources, is what they have then."""
    amounts = [0.5, 1.0, None, 2.0]
    as_file(tmp_path / "in/1.parquet", "parquet", [{"at": at, "amount": each} for at, each in enumerate(amounts)])
    flow = ps.Flow("ordered")
    filled = flow.source("filled", ps.read.parquet(str(tmp_path / "in"), schema=Brief), order_by="amount")
    other = flow.source("other", ps.read.items([Brief(9, 1.2), Brief(8, 1.7)]), order_by="amount")
    filled.union(other).sink("out")
    run = run_inline(flow, tmp_path / "ck") if engine == "inline" else ps.run(flow, **how(engine))
    assert [row.at for row in run.results["out"]] == [0, 1, 9, 2, 8, 3]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("format", ["json", "parquet"])
def test_what_must_have_a_value(tmp_path, format, engine):
    rows = [asdict(row) for row in MEANT]
    rows[1]["user"] = None
    as_file(tmp_path / "in" / f"1.{format}", format, rows)
    read = ps.read.json if format == "json" else ps.read.parquet
    assert results(read(str(tmp_path / "in"), schema=Order), tmp_path, engine)["out"][1].user is None
    found = results(read(str(tmp_path / "in"), schema=Order, missing="refuse"), tmp_path, engine, "dead_letter")
    assert found["out"] == [MEANT[0], MEANT[2]]
    place = "1.json, line 2" if format == "json" else "1.parquet, row 1"
    assert found["errors"] == [(place, "the field 'user' has no value, and must have one")]
    with pytest.raises(ps.PenstockError, match="the field 'user' has no value, and must have one"):
        results(read(str(tmp_path / "in"), schema=Order, missing="refuse"), tmp_path, engine)


def test_schemas_of_arrow_say_what_must_have_a_value(tmp_path):
    as_file(tmp_path / "in/1.json", "json", [{"a": 1}, {"b": 2}])
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
    reader = ps.read.json(str(tmp_path / "in"), schema=schema, missing="refuse")
    assert results(reader, tmp_path, "threads", "skip")["out"] == [(None, 2)]


@pytest.mark.parametrize("engine", ENGINES)
def test_other_fields_are_refused_where_that_is_asked_for(tmp_path, engine):
    as_file(tmp_path / "in/1.json", "json", [{"at": 1}, {"at": 2, "misspelled": 3}, {"at": 3, "amount": 2.0}])
    read = str(tmp_path / "in")
    assert len(results(ps.read.json(read, schema=Brief), tmp_path, engine)["out"]) == 3
    found = results(ps.read.json(read, schema=Brief, extra="refuse"), tmp_path, engine, "dead_letter")
    assert found["out"] == [Brief(1, 1.5), Brief(3, 2.0)]
    ((place, error),) = found["errors"]
    assert (place, error) == ("1.json, line 2", "there is a field 'misspelled'; the schema has at, amount")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_column_that_nobody_knows_makes_the_file_unreadable(tmp_path, format, engine):
    as_file(tmp_path / "in" / f"1.{format}", format, [{"at": 1, "amount": 2.0, "misspelled": 3}])
    as_file(tmp_path / "in" / f"2.{format}", format, [{"at": 2}])
    read = ps.read.csv if format == "csv" else ps.read.parquet
    reader = read(str(tmp_path / "in"), schema=Brief, extra="refuse")
    found = results(reader, tmp_path, engine, "dead_letter")
    assert found["out"] == [Brief(2, 1.5)]
    assert found["errors"] == [(f"1.{format}", "there is a column 'misspelled'; the schema has at, amount")]


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_a_reader_may_say_what_becomes_of_rows_that_cannot_be_read(tmp_path, format):
    as_file(tmp_path / "in" / f"1.{format}", format, [{"at": 1, "amount": 2.0, "misspelled": 3}])
    as_file(tmp_path / "in" / f"2.{format}", format, [{"at": 2}])
    read = {"json": ps.read.json, "csv": ps.read.csv, "parquet": ps.read.parquet}[format]
    flow = ps.Flow("passed over")
    rows = flow.source("in", read(str(tmp_path / "in"), schema=Brief, extra="refuse", on_error="dead_letter"))
    rows.errors.sink("errors")
    run = ps.run(rows.sink("out"), on=ps.Threads())
    assert run.results["out"] == [Brief(2, 1.5)]
    assert len(run.results["errors"]) == 1


def test_what_the_source_says_counts_more(tmp_path):
    as_file(tmp_path / "in/1.json", "json", [{"at": "soon"}, {"at": 2}])
    reader = ps.read.json(str(tmp_path / "in"), schema=Brief, on_error="dead_letter")
    found = results(reader, tmp_path, "threads", "skip")
    assert found == {"out": [Brief(2, 1.5)]}


POLICIES = '"fail" or "skip" or "dead_letter"'


@pytest.mark.parametrize(
    ("option", "allowed"),
    [("extra", '"drop" or "refuse"'), ("missing", '"null" or "refuse"'), ("on_error", POLICIES)],
)
def test_what_is_no_option(option, allowed):
    with pytest.raises(ps.FlowError, match=f"ps.read.json: {option}='ignore'; use {allowed}"):
        ps.read.json("in", **{option: "ignore"})  # type: ignore[arg-type]


@dataclass
class NoText:
    at: int
    currency: str = 5  # type: ignore[assignment]


@dataclass
class Changing:
    at: int
    number: int = field(default_factory=itertools.count().__next__)


@dataclass
class Computed:
    at: int
    twice: int = field(init=False)


@dataclass(kw_only=True)
class Named:
    currency: str = "EUR"
    at: int


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (NoText, "source 'in': the default of the field 'currency' does not fit its type, string"),
        (Computed, "source 'in': the field 'twice' of Computed cannot be given"),
    ],
)
def test_what_cannot_be_a_schema(tmp_path, schema, message):
    with pytest.raises(ps.FlowError, match=message):
        ps.Flow("no").source("in", ps.read.json(str(tmp_path), schema=schema))


def test_a_default_that_is_another_one_each_time_is_none(tmp_path):
    """A run that is repeated must give the same; what a function returns may be anything."""
    as_file(tmp_path / "in/1.json", "json", [{"at": 1}])
    reader = ps.read.json(str(tmp_path / "in"), schema=Changing)
    assert [row.number for row in results(reader, tmp_path, "threads")["out"]] == [None]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_class_whose_fields_are_given_by_name(tmp_path, engine):
    as_file(tmp_path / "in/1.json", "json", [{"at": 1}])
    reader = ps.read.json(str(tmp_path / "in"), schema=Named)
    assert results(reader, tmp_path, engine)["out"] == [Named(at=1)]


def test_a_bare_value_that_must_be_there(tmp_path):
    as_file(tmp_path / "in/1.json", "json", [{"value": 1}, {}])
    assert results(ps.read.json(str(tmp_path / "in"), schema=int, missing="refuse"), tmp_path, "threads", "skip") == {
        "out": [1]
    }
