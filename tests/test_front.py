"""What users see of streams, flows and modules where they look: reprs, names, and what to write instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pytest

import penstock as ps
from penstock import lab, testing
from penstock.errors import FlowError

DOCS = Path(__file__).parents[1] / "docs"


def payments(flow: ps.Flow) -> ps.Stream:
    rows = [{"at": 1, "user": "ann", "amount": 1.0}, {"at": 2, "user": "bob", "amount": 2.0}]
    return flow.source("payments", ps.read.items(rows), time="at", on_error="dead_letter")


def test_a_stream_shows_where_it_comes_from_and_what_its_rows_are():
    stream = payments(ps.Flow("shop"))
    fields = "at: int64, user: string, amount: double"
    assert repr(stream) == f"<Stream 'payments' of flow 'shop': {fields}; event time: integer>"
    assert repr(stream.errors).startswith("<Stream 'payments'.errors of flow 'shop': operator: string")
    keyed = stream.key_by("user")
    assert repr(keyed) == f"<KeyedStream 'payments' of flow 'shop': {fields}; by user; event time: integer>"
    assert repr(keyed.window(5)).startswith("<WindowedStream 'payments'")
    assert "size=5" in repr(keyed.window(5))
    assert "rows of any kind" in repr(stream.map(lambda row: row))


def test_a_flow_shows_its_operators():
    flow = ps.Flow("shop")
    assert repr(flow) == "<Flow 'shop': empty; begin with flow.source(name, reader)>"
    payments(flow).map(lambda row: row.amount, name="amounts").sink("out")
    assert repr(flow) == "<Flow 'shop': sources payments; operators amounts; sinks out>"


def test_a_run_shows_how_it_went():
    flow = ps.Flow("shop")
    payments(flow).sink("out")
    done = ps.run(flow, on=ps.Threads())
    epochs = "1 epoch" if done.stats.epochs == 1 else f"{done.stats.epochs} epochs"
    assert repr(done) == f"<Run of flow 'shop' on threads: done; {epochs}, 2 rows in, 2 out>"
    broken = ps.Flow("broken")
    payments(broken).map(lambda row: row.amount / 0, name="divide").sink("out")
    failed = ps.start(broken, on=ps.Sequential())
    with pytest.raises(ps.OperatorError):
        failed.await_end()
    assert "on sequential: failed with OperatorError: operator 'divide' failed" in repr(failed)


def test_a_name_that_is_taken_says_where():
    flow = ps.Flow("shop")
    stream = payments(flow)
    stream.map(lambda row: row, name="same")
    line = Path(__file__).read_text().splitlines().index('    stream.map(lambda row: row, name="same")') + 1
    with pytest.raises(FlowError, match=re.escape(f"two operators named 'same', the first made at {__file__}:{line};")):
        stream.filter(lambda row: True, name="same")
    with pytest.raises(FlowError, match=r"'payments', the first made at .*test_front\.py:\d+"):
        payments(flow)


@pytest.mark.parametrize(
    ("build", "fix"),
    [
        (lambda stream: stream.key_by("user").map(lambda row: row), r"map\(\) needs no key: write it before key_by"),
        (lambda stream: stream.connect(stream, None), r"connect\(\) needs a key: write key_by\(\.\.\.\) before it"),
        (lambda stream: stream.key_by("user").sum("amount"), r"sum\(\) needs a window"),
        (lambda stream: stream.count(), r"count\(\) needs a window"),
        (lambda stream: stream.window(5).sink("out"), r"say first what comes out of each window"),
        (lambda stream: stream.fitler, r"Stream has no 'fitler'; did you mean 'filter'[?]$"),
    ],
)
def test_a_method_of_another_kind_of_stream_says_what_to_write(build, fix):
    with pytest.raises(AttributeError, match=fix):
        build(payments(ps.Flow("shop")))


def test_a_join_without_keys_says_so():
    stream = payments(ps.Flow("shop"))
    with pytest.raises(FlowError, match="the other stream has no key; write key_by"):
        stream.key_by("user").join(stream, 5)
    with pytest.raises(FlowError, match="the other stream has no key; write key_by"):
        stream.key_by("user").connect(stream, ps.Process)
    with pytest.raises(FlowError, match="on=None; say what both sides agree on"):
        stream.join(stream, within=5)
    with pytest.raises(FlowError, match="give a stream without key_by"):
        stream.join(stream.key_by("user"), on="user", within=5)


@pytest.mark.parametrize("module", [ps, ps.read, ps.write, ps.agg, ps.state, ps.library, testing, lab])
def test_dir_shows_what_is_for_users(module):
    names = dir(module)
    assert names
    assert all(hasattr(module, name) and not name.startswith("_") for name in names)
    assert not {"annotations", "Any", "dataclass", "np", "pa", "errors"} & set(names)


def test_dir_has_all_that_the_docs_name():
    text = "".join(page.read_text() for page in DOCS.glob("**/*.md"))
    for module in ("read", "write", "agg", "state"):
        named = set(re.findall(rf"\bps\.{module}\.([a-z_]+)\(", text))
        assert named
        assert named <= set(dir(getattr(ps, module)))


@dataclass
class Priced:
    """Python does not say how many digits a Decimal has."""

    name: str
    price: Decimal


@dataclass
class Exact:
    """An Arrow type in the annotation does."""

    name: str
    price: Annotated[Decimal, pa.decimal128(12, 2)]


def test_a_class_whose_field_has_no_arrow_type_is_refused_as_a_schema():
    with pytest.raises(FlowError, match=r"operator 'in': the field 'price' is declared as .*Decimal.*decimal128"):
        ps.Flow("f").source("in", ps.read.items([], schema=Priced))
    stream = ps.Flow("f").source("in", ps.read.items([{"name": "a", "price": Decimal("1.10")}], schema=Exact))
    assert stream.type is not None
    assert stream.type.schema.field("price").type == pa.decimal128(12, 2)
    run = ps.run(stream.key_by("name").aggregate(paid=ps.agg.sum("price")).sink("out"), on=ps.Threads())
    assert run.results["out"][0].paid == Decimal("1.10")


def test_an_annotation_may_have_fields_without_an_arrow_type():
    def priced(_: int) -> Priced:
        return Priced("a", Decimal(1))

    assert ps.Flow("f").source("in", [1]).map(priced).type is None


def test_a_dataframe_of_spark_connect_is_refused_with_the_fix():
    kind = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe", "isStreaming": True})
    with pytest.raises(FlowError, match=r"operator 'in': the DataFrame is one of Spark Connect.*builder\.master"):
        ps.Flow("f").source("in", kind())
    with pytest.raises(TypeError, match="Spark Connect"):
        ps.read.frame(kind())


def test_an_environment_of_spark_connect_is_refused_with_the_fix(monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", staticmethod(lambda: None))
    flow = ps.Flow("f").source("in", [1]).sink("out")
    with pytest.raises(ps.PenstockError, match=r"SPARK_REMOTE='sc://somewhere' asks for Spark Connect.*\nUnset it"):
        ps.run(flow)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda stream: stream.map(lambda: 1), r"'map' calls its function with \(row\), and <lambda>\(\) does not"),
        (lambda stream: stream.scan(lambda row: row, 0), r"'scan' calls its function with \(state, row\), and"),
        (lambda stream: stream.reduce(lambda row: row), r"with \(accumulated, row\)"),
        (lambda stream: stream.window(5).apply(lambda rows: rows), r"with \(window, rows\)"),
        (lambda stream: stream.key_by("user").join(stream.key_by("user"), 5, lambda a: a), r"with \(left, right\)"),
        (lambda stream: stream.aggregate(ps.agg.count()), r"aggregate\(\) needs a name for each result"),
        (lambda stream: stream.window(5).aggregate(ps.agg.count()), r"aggregate\(\) needs a name for each result"),
    ],
)
def test_a_call_that_could_never_work_is_refused_where_it_is_written(build, words):
    with pytest.raises(FlowError, match=words):
        build(payments(ps.Flow("shop")))


def test_functions_of_every_kind_are_taken():
    stream = payments(ps.Flow("shop"))
    stream.map(str)
    stream.map(max, name="largest")
    stream.map(lambda row, factor=2: row.amount * factor, name="default")
    stream.map(lambda *rows: rows[0], name="any")
    stream.scan(partial(lambda factor, state, row: (state, row), 3), 0, name="partial")


def test_only_flows_are_run():
    stream = payments(ps.Flow("shop"))
    with pytest.raises(TypeError, match=r"ps\.run takes a flow, not <Stream 'payments'.*\.sink\(name, writer\)"):
        ps.run(stream)
    with pytest.raises(TypeError, match=r"ps\.start takes a flow, not 3; give a ps\.Flow"):
        ps.start(3)
