"""Running aggregates by columns give what the loop over rows gives, to the last bit: rows, failures, and the state."""

from __future__ import annotations

import datetime as dt
import math
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import read
from penstock.flow import Flow
from penstock.kernels import keyed, state_columns
from penstock.kernels.failures import Failures
from penstock.kernels.row_keys import key_shards
from penstock.kernels.running import new_states
from penstock.kernels.shards import Shard
from penstock.kernels.state_columns import ColumnStates, saved_states
from penstock.operators import aggregates as agg
from penstock.operators.base import Keyed, OnError
from penstock.plan.graph import Node
from penstock.plan.plan import make_plan
from penstock.rows.chunk import Chunk
from penstock.rows.records import Row
from penstock.store.state_files import apply_block, make_block

from .one_operator import NO_MARKS
from .shards_in_memory import SHARDS, Held

DATES = [dt.date(2020, 1, 1), dt.date(1969, 12, 31)]
FLOATS = [0.0, -0.0, 0.1, 0.2, 0.3, 1e16, -1e16, 1.0, math.inf, -math.inf, math.nan]
PLAIN_FLOATS = [0.1, 0.2, 0.3, 1e16, -1e16, 1.0, 3.7]
WHOLE = [0, 1, -1, 3, -(1 << 60)]
NO_FLOATS = [(1 << 53) + 1, (1 << 54) + 1, 3]
HUGE = [(1 << 63) - 1, -(1 << 63), 1, -1]
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.float64(), FLOATS),
    (pa.float64(), PLAIN_FLOATS),
    (pa.float64(), [-0.0, 0.0]),
    (pa.int64(), WHOLE),
    (pa.int64(), NO_FLOATS),
    (pa.int64(), HUGE),
    (pa.int32(), [1, 2, -(1 << 31)]),
    (pa.uint64(), [1, (1 << 64) - 1]),
    (pa.float32(), [0.5, 0.1, 1e30]),
    (pa.bool_(), [True, False]),
    (pa.decimal128(20, 2), [Decimal("1.10"), Decimal("-3.05"), Decimal("100000000000000000.00")]),
]
OTHERS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["", "a", "b", "ä"]),
    (pa.date32(), DATES),
    (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 1, n, tzinfo=dt.UTC) for n in range(3)]),
]
KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [0, 1, 2, -5, (1 << 63) - 1, -(1 << 63)]),
    (pa.int64(), list(range(40))),
    (pa.int8(), [1, 2, 3]),
    (pa.uint64(), [1, (1 << 64) - 1]),
    (pa.float64(), [0.0, -0.0, 1.0, math.nan, math.inf]),
    (pa.string(), ["", "a", "b"]),
    (pa.bool_(), [True, False]),
    (pa.date32(), DATES),
    (pa.decimal128(5, 1), [Decimal("1.0"), Decimal("1.5")]),
]
ADDING = {
    "n": agg.count(),
    "total": agg.sum("v"),
    "mean": agg.mean("v"),
}
COMPARING = {
    "low": agg.min("v"),
    "high": agg.max("v"),
    "first": agg.first("v"),
    "last": agg.last("v"),
    "first_valid": agg.first("v", skip_nulls=True),
    "last_valid": agg.last("v", skip_nulls=True),
}
V, EVEN = pc.field("v"), pc.field("even")
SOME = {
    "values": agg.count("v"),
    "even": agg.count(where=EVEN),
    "first": agg.first("v", where=EVEN),
    "last": agg.last("v", where=EVEN),
    "last_valid": agg.last("v", skip_nulls=True, where=EVEN),
    "low": agg.min("v", where=EVEN),
    "high": agg.max("v", where=~EVEN),
    "at_low": agg.argmin("even", by="v"),
    "at_high": agg.argmax("v", by="v", where=EVEN),
}
NUMBERS = {
    "total": agg.sum("v", where=EVEN),
    "mean": agg.mean("v", where=pc.field("even")),
    "halves": agg.sum(V.cast(pa.float64()) / 2.0, where=EVEN),
    "told": agg.count(EVEN),
}


CASES = [(aggregates, *value) for aggregates in (ADDING, COMPARING) for value in VALUES]
CASES += [(COMPARING, *value) for value in OTHERS]
CASES += [(SOME, *value) for value in (VALUES[0], VALUES[3], VALUES[-1], OTHERS[0])]
CASES += [(NUMBERS, *value) for value in (VALUES[0], VALUES[5], VALUES[-1])]


@st.composite
def inputs(draw: st.DrawFn, kind: pa.DataType, values: list[Any]) -> tuple[pa.Schema, list[tuple[Any, ...]], list[str]]:
    """Draw rows, and the fields of their key."""
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=0, max_size=2))
    names = [f"k{number}" for number in range(len(keys))]
    # Rows by a seed: lists of Hypothesis are mostly too short for groups of several rows.
    random = draw(st.randoms(use_true_random=True))
    nulls = [None] if draw(st.booleans()) else []
    columns = [choice + nulls for _, choice in [*keys, (kind, values), (pa.bool_(), [True, False])]]
    rows = [tuple(map(random.choice, columns)) for _ in range(draw(st.sampled_from([2, 5, 20, 60])))]
    schema = pa.schema([*zip(names, [k for k, _ in keys], strict=True), ("v", kind), ("even", pa.bool_())])
    return schema, rows, names


class ByKey(Held):
    """The shards of one operator, with their states in columns or not."""

    def __init__(self, node: Node, columns: bool) -> None:
        super().__init__(lambda: new_states(node) if self.columns else {})
        self.columns = columns

    def reload(self, columns: bool) -> None:
        """Save and load, perhaps into what keeps states otherwise."""
        self.columns = columns
        for number, shard in list(self.shards.items()):
            states = shard.states
            changed: Any = states.saved(full=True) if isinstance(states, ColumnStates) else states
            loaded = self.shards[number] = Shard(self.make_states())
            apply_block(loaded.states, make_block("sums", number, True, changed, [], 0, None).data, "a file")

    def shown(self) -> list[Any]:
        return sorted(repr(bits(item)) for shard in self.shards.values() for item in shard.states.items())


def bits(value: Any) -> Any:
    """Show values so that what differs in any bit, or in type, differs; but all NaN are the same."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    if isinstance(value, dt.datetime):
        return value.isoformat()  # Arrow has several objects for one zone
    if isinstance(value, (tuple, list)):
        return [bits(each) for each in value]
    return type(value).__name__, value


def run(
    node: Node, pieces: list[list[Row]], by_columns: list[bool], reloads: list[bool | None]
) -> tuple[list[Any], list[Any], int]:
    """Run the operator over the pieces; return what came out and failed, the states, and how many went by columns."""
    assert isinstance(node.operator, Keyed)
    row_type = node.operator.logic.aggregation.row  # type: ignore[attr-defined]
    shards, taken = ByKey(node, by_columns[0]), 0
    seen: list[Any] = []
    at = 0
    for number, rows in enumerate(pieces):
        chunk = Chunk([np.arange(at, at + len(rows))], None, row_type, row_type.encode(rows))
        at += len(rows)
        keys = node.operator.keys
        of = np.zeros(len(rows), np.int64) if keys is None else key_shards(keys[0], chunk, SHARDS)
        failures = Failures()
        few = 0 if by_columns[number % len(by_columns)] else len(rows)
        with mock.patch.object(keyed, "FEW_ROWS", few):
            made = keyed.KeyedRunner(node, 1, number, shards, failures).run([(0, chunk, of)], NO_MARKS, 0)
        for port, out in sorted(made.items()):
            taken += out.columns is not None
            decoded = out.only_columns().get_rows() if out.type is not None else out.get_rows()
            seen.append((port, [p.tolist() for p in out.positions], bits(decoded)))
        seen.append([(failure.position, str(failure.error)) for failure in failures.fatal])
        if failures.fatal:
            break
        columns = reloads[number % len(reloads)]
        if columns is not None:
            shards.reload(columns)
    return seen, shards.shown(), taken


def node_of(schema: Any, aggregates: dict[str, agg.Agg], keys: list[str], on_error: OnError) -> Node:
    stream: Any = Flow("f").source("in", read.items([], schema=schema))
    stream = stream.key_by(*keys) if keys else stream
    made = stream.aggregate(**aggregates, name="sums", on_error=on_error)
    if on_error == "dead_letter":
        made.errors.sink("letters")
    return make_plan(made.sink("out")).nodes["sums"]


def cut(rows: list[Row], sizes: list[int]) -> list[list[Row]]:
    """Cut rows in pieces of these sizes, over and over again."""
    pieces, at = [], 0
    while at < len(rows):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(rows[at : at + size])
        at += size
    return pieces


@pytest.mark.parametrize(("aggregates", "kind", "values"), CASES)
@settings(
    max_examples=10 if settings.default.derandomize else 25, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(
    st.data(),
    st.lists(st.sampled_from([1, 7, 25, 60]), min_size=1, max_size=3),
    st.just([True]) | st.lists(st.booleans(), min_size=1, max_size=4),
    st.lists(st.none() | st.booleans(), min_size=1, max_size=4),
    st.sampled_from(["fail", "skip"]),
)
def test_columns_give_what_rows_give(
    aggregates: dict[str, agg.Agg],
    kind: pa.DataType,
    values: list[Any],
    data: st.DataObject,
    sizes: list[int],
    by_columns: list[bool],
    reloads: list[bool | None],
    on_error: OnError,
) -> None:
    schema, rows, keys = data.draw(inputs(kind, values))
    node = node_of(schema, aggregates, keys, on_error)
    pieces = cut(rows, sizes)
    expected = run(node, pieces, [False], [None])
    found = run(node, pieces, by_columns, reloads)
    assert found[:2] == expected[:2]


@dataclass(frozen=True, slots=True)
class Plain:
    k: int
    v: float = 0.5


@dataclass
class Changing:
    k: int
    v: float

    def __post_init__(self) -> None:
        self.v += 1


@dataclass
class Reading:
    k: int
    v: float

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return found + 1 if name == "v" else found


class Derived(Plain):
    """Not made by `dataclass` itself: it might have anything."""


@pytest.mark.parametrize(("row", "columns"), [(Plain, True), (Changing, False), (Reading, False), (Derived, False)])
def test_dataclasses_that_keep_what_they_are_given_go_by_columns(row: type, columns: bool) -> None:
    node = node_of(row, ADDING, ["k"], "fail")
    pieces = cut([row(n % 3, n / 7) for n in range(50)], [50])
    found = run(node, pieces, [True], [None])
    assert found[:2] == run(node, pieces, [False], [None])[:2]
    assert bool(found[2]) == columns


@pytest.mark.parametrize("keys", [["k"], []])
@pytest.mark.parametrize("aggregates", [ADDING, COMPARING, SOME, NUMBERS])
@pytest.mark.parametrize("kind", [pa.float64(), pa.int64()])
def test_numbers_go_by_columns(kind: pa.DataType, aggregates: dict[str, agg.Agg], keys: list[str]) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", kind), ("even", pa.bool_())])
    rows = [(n * n % 7, None if n % 5 == 0 else n % 11, n % 3 == 0) for n in range(100)]
    node = node_of(schema, aggregates, keys, "fail")
    pieces = cut(rows, [50])
    found = run(node, pieces, [True], [True])
    assert found[:2] == run(node, pieces, [False], [None])[:2]
    assert found[2] == len(pieces)


def test_many_keys_and_few_large_ones() -> None:
    random = np.random.default_rng(5)
    keys = np.concatenate([random.integers(0, 70_000, 100_000), np.zeros(20_000, np.int64)])
    random.shuffle(keys)
    rows = list(zip(keys.tolist(), random.normal(size=len(keys)).tolist(), strict=True))
    node = node_of(pa.schema([("k", pa.int64()), ("v", pa.float64())]), {**ADDING, **COMPARING}, ["k"], "fail")
    pieces = cut(rows, [70_000, 10_000, 40_000])
    assert run(node, pieces, [True], [True])[:2] == run(node, pieces, [False], [None])[:2]


def test_states_are_written_alike_whatever_came_before() -> None:
    node = node_of(pa.schema([("k", pa.int64()), ("v", pa.float64())]), ADDING, ["k"], "fail")
    states = [{3: [1, 0.5, (0.5, 1)], -7: [1, None, (0, 0)]}, {-7: [1, None, (0, 0)], 3: [1, 0.5, (0.5, 1)]}]
    blocks = []
    for each in states:
        columns = new_states(node)
        columns.update(each)
        assert isinstance(columns, ColumnStates)
        assert dict(columns) == each
        blocks.append(columns.saved(full=True))
    assert blocks[0] == blocks[1]


def test_only_what_changed_is_saved() -> None:
    node = node_of(pa.schema([("k", pa.int64()), ("v", pa.float64())]), ADDING, ["k"], "fail")
    states = new_states(node)
    assert isinstance(states, ColumnStates)
    states.update({key: [1, 0.5, (0.5, 1)] for key in range(5)})
    states.settle()
    states[3] = [2, 1.0, (1.0, 2)]
    other: dict[Any, Any] = {}
    apply_block(other, make_block("sums", 0, False, states.saved(full=False), [], 5, None).data, "a file")
    assert other == {3: [2, 1.0, (1.0, 2)]}
    assert states.touched == 1
    del states[3]
    assert sorted(states) == [0, 1, 2, 4]


def test_keys_that_come_one_by_one_are_found_with_the_others() -> None:
    node = node_of(pa.schema([("k", pa.int64()), ("v", pa.float64())]), {"n": agg.count()}, ["k"], "fail")
    states = new_states(node)
    states.update({key: [key] for key in range(0, 6000, 3)})
    for key in [*range(1, 6000, 3), None]:
        states[key] = [key or 0]
    expected = {key: [key] for key in range(6000) if key % 3 < 2} | {None: [0]}
    assert dict(states.items()) == expected
    assert {key: states[key] for key in expected} == expected
    assert 2 not in states
    states.update({key: [-1] for key in expected})
    assert len(states) == len(expected)
    assert set(map(tuple, states.values())) == {(-1,)}


STATES = st.dictionaries(st.integers(-3, 9) | st.none(), st.tuples(st.integers(0, 5)).map(list), max_size=6)
CHANGES = st.one_of(
    st.tuples(st.just("one"), STATES),
    st.tuples(st.just("some"), STATES),
    st.tuples(st.just("columns"), STATES),
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.just("settle"), st.none()),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(CHANGES, max_size=12), st.integers(0, 5), st.integers(0, 3))
def test_states_that_came_in_any_numbers_are_those_of_a_dict(changes: list[Any], lately: int, by_one: int) -> None:
    node = node_of(pa.schema([("k", pa.int64()), ("v", pa.float64())]), {"n": agg.count()}, ["k"], "fail")
    states, expected, touched = new_states(node), dict[Any, Any](), set[Any]()
    assert isinstance(states, ColumnStates)
    with mock.patch.multiple(state_columns, _LATELY=lately, _BY_ONE=by_one):
        for how, some in changes:
            if how == "one":
                for key, state in some.items():
                    states[key] = state
            elif how == "some":
                states.update(some)
            elif how == "columns":
                other = new_states(node)
                other.update(some)
                assert isinstance(other, ColumnStates)
                states.load(other.saved(full=True))
            elif how == "settle":
                states.settle()
                touched = set()
            expected |= some or {}
            touched |= set(some or ())
            assert len(states) == len(expected)
            assert dict(states.items()) == {key: states[key] for key in states} == expected
            if how == "look":
                assert states.touched == len(touched)
                assert saved_states(states.saved(full=False)) == {key: expected[key] for key in touched}
