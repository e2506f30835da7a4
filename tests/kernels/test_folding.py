"""Tight loops take rows that are made of columns as they take rows that are there, and give columns directly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.kernels.failures import Failures, fitted, in_columns
from penstock.kernels.keyed import KeyedRunner
from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import key_shards
from penstock.kernels.shards import Partitions, Shard
from penstock.operators.scan import Scan
from penstock.plan.plan import make_plan
from penstock.rows.chunk import Chunk
from penstock.rows.timing import BEFORE


class Named(NamedTuple):
    """A row."""

    k: int
    v: int


@dataclass
class Data:
    """The same."""

    k: int
    v: int


class Typed(TypedDict):
    """The same."""

    k: int
    v: int


FORMS = {"record": {"k": int, "v": int}, "named": Named, "data": Data, "typed": Typed}
NO_MARKS = Steps([np.empty(0, np.int64)], np.empty(0, np.int64))
SHARDS = 3


def value(row: Any) -> int:
    found = row["v"] if isinstance(row, dict) else row.v
    if found < 0:
        raise ValueError(found)
    return int(found)


def last(state: Any, row: Any) -> Any:
    return (value(row), row), {"before": -1 if state is None else state[0], "n": value(row)}


def several(state: Any, row: Any) -> Any:
    return (value(row), row), [{"before": n, "n": value(row)} for n in range(value(row) % 3)]


def greatest(state: Any, row: Any) -> Any:
    return row if value(row) >= value(state) else state


def flow_of(form: str, operator: str, on_error: str) -> ps.Flow:
    flow = ps.Flow("folding")
    rows = flow.source("rows", ps.read.items([], schema=FORMS[form]))
    keyed, out = rows.key_by(lambda row: value(row) % 5) if operator == "function" else rows.key_by("k"), None
    made = {"before": int, "n": int}
    match operator:
        case "scan" | "function":
            out = keyed.scan(last, None, name="op", schema=made, on_error=on_error)
        case "flat_scan":
            out = keyed.flat_scan(several, None, name="op", schema=made, on_error=on_error)
        case "reduce":
            out = keyed.reduce(greatest, name="op", on_error=on_error)
    out.sink("out", ps.write.memory())
    return flow


class Made(NamedTuple):
    """An output."""

    before: int
    n: int


@dataclass
class MadeData:
    """The same."""

    before: int
    n: int


SHAPES: list[Any] = [
    lambda before, n: {"before": before, "n": n},
    lambda before, n: {"n": n, "before": before},
    lambda before, n: (before, n),
    Made,
    MadeData,
    lambda before, n: (2**40, None),
    lambda before, n: (True, n),
    Named,  # with other fields
    lambda before, n: {"before": before},
    lambda before, n: {"before": before, "m": n},
    lambda before, n: (before, n, n),
    lambda before, n: (before, "no number"),
    lambda before, n: (2**70, n),
    lambda before, n: None,
]


def shaped(state: Any, row: Any) -> Any:
    """Return an output of the shape that the row asks for."""
    before = -1 if state is None else state
    return row.v, SHAPES[row.v % len(SHAPES)](before, row.v)


def annotated(state: Any, row: Any) -> tuple[int, Made]:
    return shaped(state, row)


def shaped_flow(on_error: str, is_annotated: bool) -> ps.Flow:
    flow = ps.Flow("folding")
    keyed = flow.source("rows", ps.read.items([], schema=FORMS["record"])).key_by("k")
    if is_annotated:
        made = keyed.scan(annotated, None, name="op", on_error=on_error)
    else:
        made = keyed.scan(shaped, None, name="op", schema={"before": int, "n": int}, on_error=on_error)
    made.sink("out", ps.write.memory())
    return flow


def taken(
    plan: Any, rows: list[tuple[int, int]], cuts: list[int], by_columns: bool, finish: Any = None, **how: Any
) -> Any:
    """Take rows in pieces; return all that came out, what failed, and the states."""
    node, row_type = plan.nodes["op"], plan.nodes["rows"].types[0]
    shards = {n: Shard() for n in range(SHARDS)}
    outputs, told = [], []
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        columns = pa.RecordBatch.from_arrays(
            [pa.array([row[i] for row in rows[start:stop]], pa.int64()) for i in (0, 1)], schema=row_type.schema
        )
        chunk = Chunk([np.arange(start, stop)], None, row_type, columns)
        of = key_shards(node.operator.keys[0], chunk, SHARDS) if len(chunk) else np.empty(0, np.int64)
        if not by_columns:
            chunk = Chunk(chunk.positions, None, row_type, None, row_type.decode(columns))
        else:
            chunk = Chunk(chunk.positions, None, row_type, columns)
        failures = Failures()
        runner = KeyedRunner(node, 1, 1, Partitions(shards), failures, **how)
        made = runner.run([(0, chunk, of)], NO_MARKS, BEFORE) if len(chunk) else {}
        if finish is not None:
            made = {port: finish(node, each, failures) for port, each in made.items()}
        outputs.append({port: (each.get_rows(), [p.tolist() for p in each.positions]) for port, each in made.items()})
        told.append(
            [(each.position, str(each.error)) for each in failures.fatal] + [sorted(failures.passed_over.items())]
        )
    return outputs, told, [shard.states for shard in shards.values()]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(FORMS)),
    st.sampled_from(["scan", "flat_scan", "reduce", "function"]),
    st.sampled_from(["fail", "skip", "dead_letter"]),
    st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 20)), min_size=1, max_size=40),
    st.lists(st.integers(0, 40), max_size=3),
)
def test_rows_of_columns_give_what_rows_give(form, operator, on_error, rows, cuts):
    plan = make_plan(flow_of(form, operator, on_error))
    cuts = sorted(min(cut, len(rows)) for cut in cuts)
    assert taken(plan, rows, cuts, by_columns=True) == taken(plan, rows, cuts, by_columns=False)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["fail", "skip", "dead_letter"]),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, len(SHAPES) - 1)), min_size=1, max_size=30)
    | st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30)
    | st.lists(st.tuples(st.integers(0, 6), st.integers(5, 6)), min_size=1, max_size=30),
    st.lists(st.integers(0, 40), max_size=3),
)
@example("fail", False, [(0, 6), (1, 5)], [])
@example("fail", False, [(0, 0), (1, 6), (2, 0)], [1])
def test_what_is_to_be_columns_is_what_columns_of_rows_are(on_error, is_annotated, rows, cuts):
    plan = make_plan(shaped_flow(on_error, is_annotated))
    cuts = sorted(min(cut, len(rows)) for cut in cuts)
    flat, as_rows = (taken(plan, rows, cuts, True, in_columns, as_columns=each) for each in (True, False))
    assert first_failures(flat) == first_failures(as_rows)
    if not first_failures(flat):
        assert flat == as_rows
    # Only rows as they are made one by one tell what both should be.
    fitting = taken(plan, rows, cuts, True, fitted)
    with mock.patch.object(Scan, "flat_rows", return_value=None):
        plain = taken(plan, rows, cuts, True, fitted)
    assert first_failures(fitting) == first_failures(plain) == first_failures(flat)
    if not first_failures(fitting):
        assert repr(fitting) == repr(plain)  # in which 1 is not True
        assert fitting == plain


def first_failures(found: Any) -> list[Any]:
    """Return the failure at the smallest position of the first piece that has one: it ends the flow."""
    return next(([min(told[:-1])] for told in found[1] if told[:-1]), [])


@pytest.mark.parametrize("form", sorted(FORMS))
def test_columns_are_made_of_what_functions_return_without_records(form, monkeypatch):
    plan = make_plan(flow_of(form, "scan", "fail"))
    columns = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["k", "v"])
    chunk = Chunk([np.arange(2)], None, plan.nodes["rows"].types[0], columns)
    runner = KeyedRunner(plan.nodes["op"], 1, 1, Partitions({0: Shard()}), Failures())
    made = runner.run([(0, chunk, np.zeros(2, np.int64))], NO_MARKS, BEFORE)[0]
    monkeypatch.setattr(Chunk, "get_rows", lambda chunk: pytest.fail("records were made"))
    assert made.get_columns().column("n").to_pylist() == [3, 4]
