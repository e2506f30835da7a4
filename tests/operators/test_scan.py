"""Running state, keyed and over the whole stream, against plain loops."""

import math
import pickle
import re
from collections import defaultdict
from itertools import accumulate
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FlowError, OperatorError
from penstock.operators import aggregates as agg
from penstock.operators.aggregation import aggregation
from penstock.operators.scan import Scan
from penstock.rows.row_types import type_from_annotation

from ..running import numbers, out, records

PAIRS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5)))


def keyed(pairs):
    return records([{"k": k, "v": v} for k, v in pairs] or [{"k": "a", "v": 0}], time=None).key_by("k")


def running(total, row):
    return total + row.v, (row.k, total + row.v)


@given(PAIRS.filter(bool))
def test_a_keyed_scan_is_a_loop_with_a_dict(pairs):
    totals, expected = defaultdict(int), []
    for k, v in pairs:
        totals[k] += v
        expected.append((k, totals[k]))
    assert out(keyed(pairs).scan(running, 0)) == expected


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1))
def test_whole_stream_scan_and_reduce(values):
    sums = list(accumulate(values))
    assert out(numbers(values).scan(lambda s, n: (s + n, s + n), 0)) == sums
    assert out(numbers(values).reduce(lambda s, n: s + n)) == sums


class Output(NamedTuple):
    """An output that goes on as it is."""

    n: int


def fails(state):
    state.append("changed before it failed")
    raise ValueError("no")


RESULTS = {
    "a pair": lambda state: ([*state, 1], Output(len(state))),
    "a list of two": lambda state: [[*state, 2], 2.5],
    "a generator of two": lambda state: (each for each in ([*state, 3], math.nan)),
    "the state, changed in place": lambda state: (state.append(4) or state, "x"),
    "no state": lambda state: (None, None),
    "none": lambda state: None,
    "one": lambda state: 1,
    "three": lambda state: (state, 1, 2),
    "a generator that fails": lambda state: (fails(state) if n else [*state, 5] for n in range(2)),
    "a failure": fails,
}


@pytest.mark.parametrize("returns", [int, float, str, Output])
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(sorted(RESULTS)))))
def test_the_loop_over_rows_keeps_what_one_row_after_the_other_keeps(returns, pairs):
    """Whatever the function returns: outputs, states, which keys there are in which order, and what it fails with."""
    logic = Scan(lambda state, row: RESULTS[row](state), list, type_from_annotation(returns))
    looped, single = ({}, []), ({}, [])
    problems = []
    for states, outputs in (looped, single):
        try:
            if outputs is looped[1]:
                logic.fold(states, [key for key, _ in pairs], [row for _, row in pairs], outputs, False)
            else:
                context = SimpleNamespace(emit=outputs.append)
                for key, row in pairs:
                    states[key] = logic.on_row(context, states.get(key), 0, row)
            problems.append(None)
        except Exception as error:
            problems.append((type(error), re.sub(r" at 0x\w+", "", str(error))))
    assert repr(looped) == repr(single)  # of NaN, too, which does not equal itself
    assert [*looped[0]] == [*single[0]]
    assert problems[0] == problems[1]


def test_reduce_begins_with_the_first_row_of_each_key():
    stream = numbers([5, 2, 8, 1]).key_by(lambda n: n % 2)
    assert out(stream.reduce(lambda a, b: a * 10 + b)) == [5, 2, 28, 51]


def test_flat_scan_emits_any_number():
    def changes(last, n):
        return n, [] if n == last else [f"was {last}", f"is {n}"]

    assert out(numbers([1, 1, 2]).flat_scan(changes)) == ["was None", "is 1", "was 1", "is 2"]


def test_none_forgets_a_key():
    def limited(count, _):
        return (None if count == 1 else count + 1), count

    assert out(numbers([7] * 5).key_by(lambda n: n).scan(limited, 0)) == [0, 1, 0, 1, 0]


def test_keys_of_several_fields_none_and_equal_numbers():
    rows = [
        {"a": 1, "b": "x"},
        {"a": 1, "b": None},
        {"a": 1, "b": "x"},
        {"a": None, "b": None},
        {"a": 1, "b": None},
    ]
    counted = records(rows, time=None).key_by("a", "b").aggregate(n=agg.count())
    assert out(counted) == [(1, "x", 1), (1, None, 1), (1, "x", 2), (None, None, 1), (1, None, 2)]
    mixed = numbers([1, True, 1.0, 2, "1"]).key_by(lambda n: n).scan(lambda c, _: (c + 1, c + 1), 0)
    assert out(mixed) == [1, 2, 3, 1, 1]


class TestAggregates:
    VALUES = (3, None, 1, 4, 1)

    def stream(self):
        return records([{"v": v} for v in self.VALUES], time=None)

    @pytest.mark.parametrize(
        ("aggregate", "expected"),
        [
            (agg.count(), [1, 2, 3, 4, 5]),
            (agg.sum("v"), [3, 3, 4, 8, 9]),
            (agg.min("v"), [3, 3, 1, 1, 1]),
            (agg.max("v"), [3, 3, 3, 4, 4]),
            (agg.mean("v"), [3.0, 3.0, 2.0, 8 / 3, 9 / 4]),
            (agg.first("v"), [3] * 5),
            (agg.last("v"), [3, None, 1, 4, 1]),
            (agg.first(lambda r: r.v if r.v != 3 else None, skip_nulls=True), [None, None, 1, 1, 1]),
            (agg.last("v", skip_nulls=True), [3, 3, 1, 4, 1]),
            (agg.collect("v"), [[3], [3, None], [3, None, 1], [3, None, 1, 4], [3, None, 1, 4, 1]]),
            (agg.distinct("v"), [[3], [3, None], [3, None, 1], [3, None, 1, 4], [3, None, 1, 4]]),
            (agg.sum(lambda r: -(r.v or 0)), [-3, -3, -4, -8, -9]),
            (agg.fold(list, lambda s, r: [*s, r.v], len), [1, 2, 3, 4, 5]),
        ],
        ids=lambda value: value.label if isinstance(value, agg.Agg) else "",
    )
    def test_running(self, aggregate, expected):
        assert [row.x for row in out(self.stream().aggregate(x=aggregate))] == expected

    @pytest.mark.parametrize("aggregate", [agg.sum, agg.min, agg.max, agg.mean, agg.first])
    def test_only_nulls_give_null(self, aggregate):
        stream = records([{"v": 1}, {"v": None}], time=None).filter(lambda r: r.v is None)
        assert [row.x for row in out(stream.aggregate(x=aggregate("v")))] == [None]

    def test_nan_is_one_value_also_behind_a_checkpoint(self):
        bundle = aggregation({"x": agg.distinct(lambda v: v)}, "a", None)
        state = None
        for value in (math.nan, 1.0, float("nan"), -0.0, 0.0):
            state = pickle.loads(pickle.dumps(bundle.step(state, value)))
        assert repr(bundle.results(state)) == "[[nan, 1.0, -0.0]]"

    def test_what_has_no_hash_is_refused(self):
        nested = records([{"v": [1]}], time=None)
        with pytest.raises(FlowError, match=r"distinct\('v'\), whose values are of the type list.*a function"):
            nested.aggregate(x=agg.distinct("v"))
        stream = nested.aggregate(all=agg.collect("v"), x=agg.distinct(lambda row: row.v))
        with pytest.raises(OperatorError, match=r"values that can be hashed, not \[1\]; make a tuple"):
            out(stream)

    def test_a_value_without_a_hash_changes_nothing(self):
        bundle = aggregation({"x": agg.distinct(lambda v: v), "all": agg.collect(lambda v: v)}, "a", None)
        state = bundle.step(None, 1)
        with pytest.raises(TypeError, match="can be hashed"):
            bundle.step(state, [2])
        assert bundle.results(state) == [[1], [1]]

    def test_several_at_once_with_the_key_in_front(self):
        rows = [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "a", "v": 3}]
        result = out(records(rows, time=None).key_by("k").aggregate(n=agg.count(), total=agg.sum("v")))
        assert [row.asdict() for row in result] == [
            {"k": "a", "n": 1, "total": 1},
            {"k": "b", "n": 1, "total": 2},
            {"k": "a", "n": 2, "total": 4},
        ]

    def test_a_key_function_is_named_key(self):
        assert out(numbers([3, 5]).key_by(lambda n: n % 2).aggregate(n=agg.count()))[1].asdict() == {
            "key": 1,
            "n": 2,
        }

    def test_sums_of_flags_are_numbers(self):
        rows = [{"on": True}, {"on": True}, {"on": False}]
        assert [r.n for r in out(records(rows, time=None).aggregate(n=agg.sum("on")))] == [1, 2, 2]

    @given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
    def test_sums_fold_in_row_order_to_the_last_bit(self, values):
        total, expected = values[0], [values[0]]
        for value in values[1:]:
            total += value
            expected.append(total)
        found = [row.s for row in out(records([{"v": v} for v in values], time=None).aggregate(s=agg.sum("v")))]
        assert [x.hex() for x in found] == [x.hex() for x in expected]

    def test_bare_values_are_their_own_field(self):
        assert out(numbers([1, 2, 3]).aggregate(s=agg.sum("value"))) == [(1,), (3,), (6,)]
        assert out(numbers([1, 2, 1]).key_by("value").aggregate(n=agg.count())) == [(1, 1), (2, 1), (1, 2)]

    def test_of_equal_values_the_first_is_kept(self):
        values = numbers([1, True, 1.0]).map(lambda v: v)
        assert [type(row.m) for row in out(values.aggregate(m=agg.max(lambda v: v)))] == [int] * 3
