"""The tight loops of keyed operators give what the sequential engine gives row by row: values, order, errors, state."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock import read
from penstock.flow import Flow
from penstock.operators import aggregate_columns
from penstock.operators import aggregates as agg
from penstock.operators.aggregation import Aggregation, aggregation
from penstock.operators.scan import FlatScan
from penstock.operators.state_forms import OBJECTS, value_list
from penstock.operators.windows import Session, Sliding, Tumbling
from penstock.rows.records import record_type
from penstock.testing.kit import assert_same

from .checking import check
from .engines import REFERENCE, Engine, Epochs, Threads, cut, whole
from .inline import Inline

ENGINES = [
    Engine("threads", Threads(50, model="manual")),
    Engine("partitions", Threads(7, workers=2, partitions=3)),
    Engine("inline", Inline(tasks=2, seed=3)),
]
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("i", pa.int64()), ("f", pa.float64()), ("s", pa.string())])
FLOATS = [0.0, -0.0, 0.1, 0.2, 0.7, -1e16, 1e16, 1e308, math.inf, -math.inf, math.nan, None]
WHOLE = [0, 1, -3, 7, 2**62, -(2**62), -(2**63), 2**63 - 1, None]
ROWS = st.lists(
    st.builds(
        lambda t, k, i, f, s: {"t": t, "k": k, "i": i, "f": f, "s": s},
        st.integers(0, 40),
        st.integers(0, 2),
        st.sampled_from(WHOLE[:4]) | st.sampled_from(WHOLE),
        st.sampled_from(FLOATS[:7]) | st.sampled_from(FLOATS),
        st.sampled_from(["", "a", "é", None]),
    ),
    min_size=1,
    max_size=40,
)
EACH = {"count": agg.count, "sum": agg.sum, "min": agg.min, "max": agg.max, "mean": agg.mean}
EACH |= {"first": agg.first, "last": agg.last, "collect": agg.collect, "distinct": agg.distinct}
EACH |= {"first_valid": partial(agg.first, skip_nulls=True), "last_valid": partial(agg.last, skip_nulls=True)}


def aggregates_of(field: str, names: list[str]) -> dict[str, agg.Agg]:
    return {f"{name}_{field}": EACH[name](field) for name in names if name != "count"}


ALL = {
    "n": agg.count(),
    **aggregates_of("f", list(EACH)),
    **aggregates_of("i", ["min", "max", "first", "last", "collect", "distinct", "first_valid", "last_valid"]),
    **aggregates_of("s", ["min", "max", "first", "last", "distinct", "last_valid"]),
    "twice": agg.sum(lambda row: 2.0 * row.f if row.f is not None else None),
}


def run_all(flow: Flow, rows: list[dict[str, Any]], size: int) -> None:
    epochs: Epochs = cut({"in": rows}, [{"in": size}] * (len(rows) // size))
    for engine in ENGINES:
        check(engine, flow, epochs)


def source(rows: list[Any], **options: Any) -> Any:
    return Flow("loops").source("in", read.items(rows, schema=SCHEMA), **options)


quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class TestAggregates:
    @quick
    @given(ROWS, st.sampled_from([Tumbling(5), Tumbling(7, 3), Sliding(6, 2), Sliding(5, 3, 1)]), st.integers(3, 40))
    def test_windows(self, rows, spec, size):
        window = source(rows, time="t", slack=2).key_by("k").window(spec).aggregate(**ALL)
        window.late.sink("late")
        run_all(window.sink("out"), rows, size)

    @quick
    @given(ROWS, st.sampled_from([1, 3, 9]), st.integers(3, 40), st.sampled_from(["sorted", "nearly", "as is"]))
    def test_sessions(self, rows, gap, size, order):
        """Without slack a key has one session at a time; rows in order, a little late, or against all order."""
        if order != "as is":
            rows = sorted(rows, key=lambda row: row["t"] // (1 if order == "sorted" else 4))
        window = source(rows, time="t").filter(lambda row: row.i != 7).key_by("k").window(Session(gap)).aggregate(**ALL)
        window.late.sink("late")
        assert window.node.operator.logic.one_at_a_time
        run_all(window.sink("out"), rows, size)

    @quick
    @given(ROWS, st.sampled_from([Tumbling(5), Session(3)]))
    def test_keys_that_are_equal_and_not_the_same(self, rows, spec):
        """A window has the key of the row that opened it, as long as its state is not saved and loaded."""
        rows = sorted(rows, key=lambda row: row["t"])
        keyed = source(rows, time="t").key_by(lambda row: [1, True, 1.0][row.k])
        run_all(keyed.window(spec).aggregate(n=agg.count(), i=agg.collect("i")).sink("out"), rows, len(rows))

    @quick
    @given(ROWS, st.sampled_from([1, 3, 9]), st.integers(3, 40))
    def test_sessions_that_may_be_joined(self, rows, gap, size):
        window = source(rows, time="t", slack=4).key_by("k", "s").window(Session(gap)).aggregate(**ALL)
        window.late.sink("late")
        assert not window.node.operator.logic.one_at_a_time
        run_all(window.sink("out"), rows, size)

    @quick
    @given(ROWS, st.sampled_from([Tumbling(5), Sliding(6, 2), Session(3)]), st.integers(3, 40))
    def test_windows_of_whole_rows(self, rows, spec, size):
        rows = sorted(rows, key=lambda row: row["t"] // 2)
        window = source(rows, time="t").key_by("k").window(spec).apply(lambda window, rows: (window, rows))
        window.late.sink("late")
        run_all(window.sink("out"), rows, size)

    @quick
    @given(ROWS, st.integers(3, 40))
    def test_running(self, rows, size):
        run_all(source(rows).key_by("k", "s").aggregate(**ALL).sink("out"), rows, size)

    @quick
    @given(ROWS, st.booleans())
    def test_sums_that_only_python_can_hold_on_their_way(self, rows, windowed):
        """A sum that is too large for its column fails the flow at the row it fails at row by row, or not at all."""
        stream = source(rows, time="t").key_by("k")
        stream = stream.window(10) if windowed else stream
        run_all(stream.aggregate(sum=agg.sum("i"), mean=agg.mean("i")).sink("out"), rows, 10)

    @pytest.mark.parametrize("windowed", [False, True])
    def test_no_row_is_taken_by_itself(self, windowed, monkeypatch):
        rows = [{"t": n, "k": n % 2, "i": n, "f": n / 3, "s": "a"} for n in range(30)]
        stream = source(rows, time="t").key_by("k")
        stream = stream.window(8) if windowed else stream
        flow = stream.aggregate(**ALL).sink("out")
        expected = REFERENCE.run(flow, whole({"in": rows}))
        monkeypatch.setattr(Aggregation, "step", lambda *_: pytest.fail("row by row"))
        assert_same(expected, ENGINES[0].run(flow, whole({"in": rows})))

    @pytest.mark.parametrize("windowed", [False, True])
    @pytest.mark.parametrize("on_error", ["fail", "skip", "dead_letter"])
    def test_a_row_that_fails_changes_nothing(self, on_error, windowed):
        rows = [{"t": n, "k": n % 2, "i": n % 5, "f": 1.5, "s": "a"} for n in range(30)]
        stream = source(rows, time="t").key_by("k")
        stream = stream.window(8) if windowed else stream
        made = stream.aggregate(
            on_error=on_error, all=agg.collect("i"), some=agg.collect(lambda r: 12 // (r.i - 3)), n=agg.count()
        )
        if on_error == "dead_letter":
            made.errors.sink("errors")
        run_all(made.sink("out"), rows, 11)

    @quick
    @given(
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from(FLOATS[:-1])), min_size=1),
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from(WHOLE[:-1])), min_size=1),
    )
    @example([(0, -0.0), (0, -0.0), (1, 1e16), (1, 1.0), (1, -1e16)], [(0, 2**62)] * 5)
    def test_columns_fold_as_steps_do(self, floats, whole):
        for pairs in (floats, whole):
            bundle = aggregation({n: a("v") if n != "count" else a() for n, a in EACH.items()}, "a", None)
            keys = list(dict.fromkeys(group for group, _ in pairs))
            for carried in (False, True):
                states: dict[int, Any] = {}
                if carried:
                    states = {key: bundle.step(None, record_of(pairs[-1][1])) for key in keys[::2]}
                held = [copy.deepcopy(states.get(key)) for key in keys]
                new = [each.start() for each in bundle.aggregates]
                for group, value in pairs:
                    states[group] = bundle.step(states.get(group), record_of(value))
                found = aggregate_columns.fold_groups(
                    bundle,
                    aggregate_columns.read_values(bundle, None, lambda pairs=pairs: [record_of(v) for _, v in pairs]),
                    np.array([keys.index(group) for group, _ in pairs]),
                    np.array([-1 if state is None else keys.index(key) for key, state in zip(keys, held, strict=True)]),
                    [
                        (OBJECTS, (value_list(column),))
                        for column in zip(*(state or new for state in held), strict=True)
                    ],
                )
                listed = [form.unpack(parts) for form, parts in found]
                assert repr(list(map(list, zip(*listed, strict=True)))) == repr([states[key] for key in keys])


def record_of(value: Any) -> Any:
    return record_type(pa.schema([("v", pa.float64())])).normalize({"v": value})


class TestFlatScan:
    ROWS = tuple({"t": n, "k": n * 7 % 3, "i": n % 9, "f": 0.5, "s": "a"} for n in range(60))

    @pytest.mark.parametrize("schema", [None, {"k": int, "total": int}])
    @pytest.mark.parametrize("on_error", ["fail", "skip", "dead_letter"])
    @pytest.mark.parametrize("wrong", ["none", "raises", "half-way", "no pair", "no rows", "misfit"])
    def test_any_number_of_rows_and_any_failure(self, wrong, on_error, schema):
        def step(total: int, row: Any) -> Any:
            now = total + row.i
            if row.i == 5 and wrong == "raises":
                raise ValueError("five")
            if row.i == 5 and wrong == "no pair":
                return now
            if row.i == 5 and wrong == "no rows":
                return now, 5
            if row.i == 8:
                return None, [(row.k, -1)]  # forgets the key

            def emit() -> Any:
                for number in range(row.i % 4):
                    if row.i == 3 and number == 2 and wrong == "half-way":
                        raise ValueError("three")
                    yield (row.k, now, 1) if wrong == "misfit" and row.i == 7 and number else (row.k, now)

            return now, emit() if row.i % 2 else list(emit())

        made = source(list(self.ROWS), time="t").key_by("k").flat_scan(step, 0, schema=schema, on_error=on_error)
        if on_error == "dead_letter":
            made.errors.sink("errors")
        run_all(made.sink("out"), list(self.ROWS), 25)

    def test_a_key_that_is_forgotten_is_not_kept(self):
        logic = FlatScan(lambda count, row: (None if row == "end" else count + 1, [row] * count), int)
        states, out, counts = {}, [], []
        logic.fold_many(states, "aabab", ["x", "y", "x", "end", "z"], out, counts, False)
        assert (states, out, counts) == ({"b": 2}, ["y", "end", "end", "z"], [0, 1, 0, 2, 1])

    def test_a_list_that_changes_later_was_emitted_as_it_was(self):
        def step(seen: list, row: Any) -> tuple[list, list]:
            seen.append(row.i)
            return seen, seen

        rows = list(self.ROWS[:12])
        run_all(source(rows).key_by("k").flat_scan(step, list, schema=int).sink("out"), rows, 5)


class Counted(TypedDict):
    """A row that can be changed in place."""

    k: int
    i: int


@dataclass
class CountedData:
    k: int
    i: int


@pytest.mark.parametrize("on_error", ["fail", "skip", "dead_letter"])
@pytest.mark.parametrize("kind", [Counted, CountedData])
@pytest.mark.parametrize("many", [False, True])
def test_a_row_that_is_changed_before_it_fails_is_shown_as_it_has_become(kind, on_error, many):
    def change(total: int, row: Any) -> Any:
        if isinstance(row, dict):
            row["i"] = now = row["i"] + 100
        else:
            row.i = now = row.i + 100
        if now == 105:
            raise ValueError("five")
        return total + now, [(now, total)] if many else (now, total)

    rows = [{"t": n, "k": n % 3, "i": n % 9, "f": 0.5, "s": "a"} for n in range(60)]
    keyed = source(rows).map(lambda row: kind(k=row.k, i=row.i), schema=kind).key_by("k")
    made = (keyed.flat_scan if many else keyed.scan)(change, 0, on_error=on_error)
    if on_error == "dead_letter":
        made.errors.sink("errors")
    run_all(made.sink("out"), rows, 25)
