"""Joins without windows by columns give what the loop over rows gives: rows, positions, times, and what is late."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import read
from penstock.flow import Flow
from penstock.kernels import keyed, timed_join_columns
from penstock.kernels.failures import Failures
from penstock.kernels.join_runs import FARTHEST
from penstock.kernels.join_states import JoinStates
from penstock.kernels.row_keys import key_shards
from penstock.kernels.running import new_states
from penstock.kernels.shards import Shard
from penstock.operators.join import TimedJoin
from penstock.plan.graph import KeyedNode
from penstock.plan.plan import make_plan
from penstock.rows.chunk import Chunk
from penstock.rows.timing import BEFORE
from penstock.store.state_files import apply_block, make_block

from .one_operator import NO_MARKS, Part, chunk_of, run_in_epochs, times_of
from .shards_in_memory import SHARDS, Held

HOWS = ["inner", "left", "right", "outer", "semi", "anti"]
KEYS: list[tuple[list[pa.DataType], list[Any]]] = [
    ([pa.int64()], [(0,), (0,), (1,), (2,), (None,)]),
    ([pa.int64()], [((1 << 63) - 1,), (-(1 << 63),), (None,)]),
    ([pa.string()], [("",), ("a",), ("é",), (None,)]),
    ([pa.timestamp("us", "UTC")], [(dt.datetime(2020, 1, n, tzinfo=dt.UTC),) for n in (1, 2)]),
    ([pa.int32(), pa.string()], [(0, "a"), (0, "b"), (1, "a"), (None, "a"), (1, None)]),
]
REACHES: list[dict[str, Any]] = [
    {"within": (-4, 3)},
    {"within": 0},
    {"within": (2, 6)},
    {"within": (-6, -2)},
    {"ttl": 1},
    {"ttl": 6},
    {"ttl": 70},
]
Entry = tuple[int, int, int, int, bool]
"""Of a row: how far time goes on, how far it is behind, its key by number, its side, and whether a cut follows."""
ENTRIES = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 1, 2, 9, 40]),
        st.sampled_from([0, 0, 0, 1, 2, 5, 12]),
        st.integers(0, 9),
        st.integers(0, 1),
        st.integers(0, 9).map(lambda n: n == 0),
    ),
    min_size=1,
    max_size=60,
)


def join_node(kinds: list[pa.DataType], how: Any, reach: dict[str, Any]) -> tuple[KeyedNode, list[Any]]:
    """Return a join of two sources and the types of these."""
    names = [f"k{number}" for number in range(len(kinds))]
    fields = list(zip(names, kinds, strict=True))
    flow = Flow("j")
    left_schema = pa.schema([("t", pa.int64()), *fields, ("v", pa.float64()), ("s", pa.string())])
    right_schema = pa.schema([("s", pa.string()), *fields, ("t", pa.int64()), ("w", pa.float64())])
    left = flow.source("left", read.items([], schema=left_schema), time="t")
    right = flow.source("right", read.items([], schema=right_schema), time="t")
    made = left.join(right, on=names, how=how, name="join", **reach)
    if "within" in reach:
        made.late.sink("late")
    plan = make_plan(made.sink("out"))
    node = plan.nodes["join"]
    assert isinstance(node, KeyedNode)
    return node, [plan.nodes[name].types[0] for name in ("left", "right")]


class Kept(Held):
    """The shards of a join, read again from what was written of them whenever that is asked for."""

    def __init__(self, node: KeyedNode) -> None:
        super().__init__(lambda: new_states(node))
        self.logic = node.operator.logic
        self.chains: dict[int, list[bytes]] = {}

    def save(self, reload: bool, full: bool) -> None:
        """Write what changed, or all, and read it again, as a shard that moves to another process."""
        for number, shard in self.shards.items():
            states = shard.states
            assert isinstance(states, JoinStates)
            chain = self.chains.setdefault(number, [])
            if states.by_rows:
                chain[:] = [make_block("join", number, True, dict(states), [], 0, None).data]
            elif states.touched:
                if full or states.is_mostly_new() or not chain:
                    full, chain[:] = True, []
                chain.append(make_block("join", number, full, states.saved(full), [], 0, None).data)
            shard.begin()
            if reload:
                loaded = self.shards[number] = Shard(self.make_states())
                for data in chain:
                    apply_block(loaded.states, data, "a file")
                loaded.load_timers(self.logic)


def run(
    node: KeyedNode, types: list[Any], keys: list[Any], entries: list[Entry], ways: list[tuple[bool, bool, bool]]
) -> list[Any]:
    """Run the join over the entries, cut as they say; return what comes out.

    Ways tell of each epoch whether columns are used, whether the state is read again, and whether it is written whole.
    """
    kept = Kept(node)
    times = times_of((entry[0] for entry in entries), [entry[1] for entry in entries])

    def parts(numbers: list[int]) -> Iterator[Part]:
        for side, row_type in enumerate(types):
            here = [n for n in numbers if entries[n][3] == side]
            rows: list[Any] = [(int(times[n]), *keys[entries[n][2] % len(keys)], n / 2, f"é{n}") for n in here]
            rows = rows if side == 0 else [(s, *k, t, v) for t, *k, v, s in rows]
            chunk = chunk_of(here, times, row_type, rows)
            assert node.operator.keys is not None
            yield side, chunk, key_shards(node.operator.keys[side], chunk, SHARDS)

    def by_columns(epoch: int) -> AbstractContextManager[Any]:
        few = 0 if ways[epoch % len(ways)][0] else len(entries)
        return mock.patch.object(timed_join_columns, "FEW_TO_JOIN", few)

    def save(epoch: int) -> list[Any]:
        kept.save(*ways[epoch % len(ways)][1:])
        return []

    seen = run_in_epochs(node, kept, entries, times, parts, by_columns, save)
    assert not any(len(shard.states) for shard in kept.shards.values())
    return seen


BY_ROWS = [(False, False, False)]
WAYS = st.lists(st.tuples(st.just(True), st.booleans(), st.booleans()), min_size=1, max_size=4)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ENTRIES, st.sampled_from(HOWS), st.sampled_from(REACHES), st.sampled_from(KEYS), WAYS)
def test_columns_and_rows_are_the_same(
    entries: list[Entry], how: str, reach: dict[str, Any], keys: Any, ways: list[Any]
) -> None:
    node, types = join_node(keys[0], how, reach)
    expected = run(node, types, keys[1], entries, BY_ROWS)
    assert repr(run(node, types, keys[1], entries, ways)) == repr(expected)
    # What was kept as rows, as checkpoints of before have it, goes on by columns.
    assert repr(run(node, types, keys[1], entries, [*BY_ROWS, *ways, *ways])) == repr(expected)


@settings(max_examples=100, deadline=None)
@given(ENTRIES, st.sampled_from(HOWS), st.sampled_from(REACHES), st.lists(st.booleans(), min_size=1))
def test_columns_go_back_to_rows_where_they_must(
    entries: list[Entry], how: str, reach: dict[str, Any], odd: list[bool]
) -> None:
    node, types = join_node([pa.int64()], how, reach)
    expected = run(node, types, KEYS[0][1], entries, BY_ROWS)
    turns = iter(odd * len(entries))
    arrived = timed_join_columns.TimedJoining._arrived
    with mock.patch.object(
        timed_join_columns.TimedJoining, "_arrived", lambda *a: None if next(turns) else arrived(*a)
    ):
        assert repr(run(node, types, KEYS[0][1], entries, [(True, False, False)])) == repr(expected)


def test_no_row_is_taken_by_itself(monkeypatch: Any) -> None:
    entries: list[Entry] = [(1, n % 4, n % 3, n // 3 % 2, n % 20 == 0) for n in range(100)]
    for how in HOWS:
        for reach in REACHES:
            node, types = join_node([pa.int64()], how, reach)
            expected = run(node, types, KEYS[0][1], entries, BY_ROWS)
            with monkeypatch.context() as patch:
                patch.setattr(TimedJoin, "on_row", lambda *_: pytest.fail("row by row"))
                found = run(node, types, KEYS[0][1], entries, [(True, True, False)])
            assert repr(found) == repr(expected)


def test_times_that_are_too_far_away_are_taken_one_by_one() -> None:
    entries: list[Entry] = [(1, 0, 0, n % 2, False) for n in range(40)]
    entries.insert(30, (FARTHEST, 0, 0, 0, True))
    node, types = join_node([pa.int64()], "outer", {"within": (-3, 3)})
    assert run(node, types, [(0,)], entries, [(True, False, False)]) == run(node, types, [(0,)], entries, BY_ROWS)


def test_only_new_rows_are_written_and_few_are_moved() -> None:
    node, types = join_node([pa.int64()], "inner", {"ttl": 1 << 40})
    states = new_states(node)
    assert isinstance(states, JoinStates)
    kept = Kept(node)
    kept.shards[0] = Shard(states)
    sizes = []
    for epoch in range(40):
        rows = [(epoch, 100 * epoch + n, 0.5, "s") for n in range(100)]
        chunk = Chunk([np.arange(100)], np.full(100, epoch), types[0], types[0].encode(rows))
        keyed.KeyedRunner(node, 1, epoch, kept, Failures()).run([(0, chunk, np.zeros(100, np.int64))], NO_MARKS, BEFORE)
        sizes.append(len(make_block("join", 0, False, states.saved(full=False), [], 0, None).data))
        states.settle()
        assert len(states.sides[0]) <= 2 + epoch.bit_length()
    assert max(sizes[2:]) < 1.1 * min(sizes[2:])
    assert len(states) == 4000


def test_a_hash_that_two_keys_share_makes_no_pair(monkeypatch: Any) -> None:
    from penstock.kernels import join_runs

    monkeypatch.setattr(join_runs, "hash_columns", lambda columns: np.zeros(len(columns[0]), np.uint64))
    entries: list[Entry] = [(1, 0, n % 3, n % 2, False) for n in range(40)]
    node, types = join_node([pa.string()], "outer", {"within": (-5, 5)})
    keys = KEYS[2][1]
    assert run(node, types, keys, entries, [(True, False, False)]) == run(node, types, keys, entries, BY_ROWS)
