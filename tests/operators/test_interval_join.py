"""Joins of rows whose times are close, and joins with a time to live, against nested loops in plain Python."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import read
from penstock.flow import Flow, Stream
from penstock.operators.join import How

from ..running import feed, run, started

HOWS = ["inner", "left", "right", "outer", "semi", "anti"]
KIND = {"t": int, "k": str, "v": int}
Sequence = list[tuple[str, dict[str, Any]]]


def row(t: int, k: str | None, v: int) -> dict[str, Any]:
    return {"t": t, "k": k, "v": v}


def values(left: Any, right: Any) -> tuple[Any, Any]:
    return (left and left.v, right and right.v)


def joined(how: Any = "inner", slack: int = 0, **reach: Any) -> Stream:
    """Join two sources, L and R; of a semi or anti join show the value alone."""
    flow = Flow("f")
    left, right = (flow.source(n, read.items([], schema=KIND), time="t", slack=slack) for n in ("L", "R"))
    if how in ("semi", "anti"):
        return left.join(right, on="k", how=how, **reach)
    return left.join(right, on="k", combine=values, how=how, name="join", **reach)


def results(sequence: Sequence, how: Any = "inner", slack: int = 0, **reach: Any) -> dict[str, list[Any]]:
    stream = joined(how, slack, **reach)
    if "within" in reach:
        stream.late.map(lambda r: r.v).sink("late")
    # Nothing that a join emits in time is late for what comes after it.
    counts = stream.window(3).count()
    counts.late.sink("late below")
    counts.sink("counts")
    if how in ("semi", "anti"):
        stream = stream.map(lambda r: r.v)
    return run(stream.sink("out"), sequence)


class TestOrder:
    SEQUENCE: ClassVar[Sequence] = [
        ("L", row(10, "a", 1)),
        ("R", row(8, "a", 2)),
        ("L", row(12, "a", 3)),
        ("R", row(13, "a", 4)),
        ("R", row(14, "b", 5)),
        ("R", row(30, "a", 6)),
        ("L", row(30, "a", 7)),
    ]

    @pytest.mark.parametrize(
        ("how", "expected"),
        [
            ("inner", [(1, 2), (1, 4), (3, 4), (7, 6)]),
            # 5 is forgotten when the watermark, the lower one of both sides, has passed 14 + 2.
            ("right", [(1, 2), (1, 4), (3, 4), (None, 5), (7, 6)]),
            ("left", [(1, 2), (1, 4), (3, 4), (7, 6)]),
            ("outer", [(1, 2), (1, 4), (3, 4), (None, 5), (7, 6)]),
            ("semi", [1, 3, 7]),
            ("anti", []),
        ],
    )
    def test_a_pair_at_its_later_row_and_others_when_forgotten(self, how: How, expected: list[Any]) -> None:
        assert results(self.SEQUENCE, how, within=(-2, 3))["out"] == expected

    @pytest.mark.parametrize(("apart", "pairs"), [(-3, 0), (-2, 1), (3, 1), (4, 0)])
    def test_both_ends_belong_to_the_interval(self, apart: int, pairs: int) -> None:
        sequence: Sequence = [("L", row(10, "a", 1)), ("R", row(10 + apart, "a", 2))]
        assert len(results(sequence, within=(-2, 3))["out"]) == pairs

    def test_one_duration_is_both_ways(self) -> None:
        sequence: Sequence = [
            ("L", row(10, "a", 1)),
            ("R", row(7, "a", 2)),
            ("R", row(13, "a", 3)),
            ("R", row(14, "a", 4)),
        ]
        assert results(sequence, within=3)["out"] == [(1, 2), (1, 3)]

    def test_a_row_below_the_watermark_is_late_and_pairs_with_nothing(self) -> None:
        sequence: Sequence = [
            ("L", row(10, "a", 1)),
            ("R", row(10, "a", 2)),
            ("L", row(9, "a", 3)),
            ("R", row(9, None, 4)),
            ("L", row(10, "a", 5)),
        ]
        found = results(sequence, within=(-5, 5))
        assert (found["out"], found["late"]) == ([(1, 2), (5, 2)], [3, 4])

    def test_what_can_have_no_partner_any_more_comes_out_at_once(self) -> None:
        sequence: Sequence = [
            ("L", row(10, "a", 1)),
            ("R", row(10, "a", 2)),
            ("L", row(10, "b", 3)),
            ("L", row(11, "c", 4)),
        ]
        # Right rows must be one or more before the left: of 10 and 11, none can come any more.
        assert results(sequence, "left", within=(-3, -1))["out"] == [(1, None), (3, None), (4, None)]

    def test_the_time_of_a_pair_is_the_larger_one(self) -> None:
        stream = joined(within=(-5, 5))
        sequence: Sequence = [("L", row(10, "a", 1)), ("R", row(7, "a", 2))]
        found = run(stream.window(5).count().sink("out"), sequence)["out"]
        assert [tuple(r) for r in found] == [(10, 15, 1)]


def held(engine: Any) -> int:
    """Count the rows that are held of key a."""
    return sum(map(len, engine.state("join")["a"][:2]))


class TestState:
    def test_rows_are_forgotten(self) -> None:
        """A key that goes on holds what two intervals have, not all that was."""
        flow = joined(within=(-5, 5)).sink("out")
        engine = started(flow)
        most = 0
        for t in range(1000):
            feed(engine, "L", row(t, "a", t))
            feed(engine, "R", row(t, "a", t))
            most = max(most, held(engine))
        assert most <= 2 * 22
        feed(engine, "L", row(2000, "b", 0))
        feed(engine, "R", row(2000, "b", 0))
        assert list(engine.state("join")) == ["b"]

    def test_a_row_far_ahead_keeps_nothing_else(self) -> None:
        flow = joined(within=(-5, 5)).sink("out")
        engine = started(flow)
        feed(engine, "L", row(10_000, "a", 0))
        for t in range(1000):
            feed(engine, "L", row(t, "a", t))
            feed(engine, "R", row(t, "a", t))
        assert held(engine) <= 2 * 22

    @pytest.mark.parametrize("how", ["semi", "anti"])
    def test_a_row_that_has_met_its_first_partner_is_not_kept(self, how: How) -> None:
        engine = started(joined(how, within=(-50, 50)).sink("out"))
        for t in range(10):
            feed(engine, "L", row(t, "a", t))
        feed(engine, "R", row(9, "a", 10))
        assert list(map(len, engine.state("join")["a"][:2])) == [0, 1]


def expected(sequence: Sequence, how: str, slack: int, low: int, high: int) -> tuple[list[Any], list[Any]]:
    """Work out, from all rows at once, what an interval join gives; and what is late."""
    never = -(10**9)
    marks, seen = [], {"L": never, "R": never}
    for side, r in sequence:
        seen[side] = max(seen[side], r["t"] - slack)
        marks.append(min(seen.values()))
    marks += [seen["R"], 10**9]  # L ends, and then R
    late = [n for n, (_, r) in enumerate(sequence) if r["t"] < marks[n]]
    placed: list[tuple[Any, Any]] = []
    met: dict[int, int] = {}
    for later in range(len(sequence)):
        for earlier in range(later):
            (side, a), (other, b) = sequence[later], sequence[earlier]
            if side == other or a["k"] is None or a["k"] != b["k"] or later in late or earlier in late:
                continue
            left, right = (later, earlier) if side == "L" else (earlier, later)
            if low <= sequence[right][1]["t"] - sequence[left][1]["t"] <= high:
                if how == "semi" and left not in met:
                    placed.append(((later, 1, earlier), left))
                elif how not in ("semi", "anti"):
                    placed.append(((later, 1, earlier), (left, right)))
                met[left] = met[right] = 1
    for n, (side, r) in enumerate(sequence):
        if n in late or n in met or how not in {"L": ("left", "outer", "anti"), "R": ("right", "outer")}[side]:
            continue
        last = r["t"] + high if side == "L" else r["t"] - low
        gone = next(m for m in range(n, len(marks)) if marks[m] > last)
        shown = n if how == "anti" else (n, None) if side == "L" else (None, n)
        placed.append(((gone, 0, last, n) if gone > n else (n, 1, n), shown))
    return [what for _, what in sorted(placed, key=lambda item: item[0])], late


ROWS = st.lists(
    st.tuples(st.sampled_from("LR"), st.integers(0, 20), st.sampled_from(["a", "a", "b", None])), max_size=16
)


@given(ROWS, st.sampled_from(HOWS), st.integers(0, 20), st.integers(-6, 6), st.integers(0, 8))
def test_any_rows(drawn: Any, how: Any, slack: int, low: int, length: int) -> None:
    """Pairs, rows without one and late rows are those of a nested loop, in their order, whatever the disorder."""
    sequence = [(side, row(time, key, number)) for number, (side, time, key) in enumerate(drawn)]
    found = results(sequence, how, slack, within=(low, low + length))
    out, late = expected(sequence, how, slack, low, low + length)
    assert (found["out"], found["late"]) == (out, late)
    assert found["late below"] == []


def kept(sequence: Sequence, how: str, slack: int, ttl: int) -> list[Any]:
    """Work out what a join with a time to live gives, by lists that are looked through at every row."""
    never, period = -(10**9), max(1, ttl // 32)
    seen, before, out = {"L": never, "R": never}, never, []
    held: list[tuple[int, str, dict[str, Any]]] = []
    met: set[int] = set()

    def is_gone(r: dict[str, Any], mark: int) -> bool:
        return mark - mark % period - r["t"] >= ttl

    def alone(number: int, side: str) -> list[Any]:
        if number in met or how not in {"L": ("left", "outer", "anti"), "R": ("right", "outer")}[side]:
            return []
        return [number if how == "anti" else (number, None) if side == "L" else (None, number)]

    def rise(mark: int) -> None:
        gone = [(-(-(r["t"] + ttl) // period), n, side) for n, side, r in held if is_gone(r, mark)]
        for _, n, side in sorted(gone):
            out.extend(alone(n, side))
        held[:] = [entry for entry in held if not is_gone(entry[2], mark)]

    for number, (side, r) in enumerate(sequence):
        seen[side] = max(seen[side], r["t"] - slack)
        before = min(seen.values())
        rise(before)
        for other, opposite, q in held:
            if opposite == side or q["k"] is None or q["k"] != r["k"]:
                continue
            left, right = (number, other) if side == "L" else (other, number)
            if how == "semi" and left not in met:
                out.append(left)
            elif how not in ("semi", "anti"):
                out.append((left, right))
            met |= {number, other}
        if is_gone(r, before):
            out.extend(alone(number, side))
        else:
            held.append((number, side, r))
    rise(seen["R"])
    rise(10**9)
    return out


@given(ROWS, st.sampled_from(HOWS), st.integers(0, 20), st.sampled_from([1, 3, 7, 40, 64, 70]), st.integers(1, 9))
def test_any_rows_with_a_time_to_live(drawn: Any, how: Any, slack: int, ttl: int, stretch: int) -> None:
    """What is kept is exactly what is not so old, on the grid, whatever the disorder; nothing is late."""
    sequence = [(side, row(time * stretch, key, number)) for number, (side, time, key) in enumerate(drawn)]
    assert results(sequence, how, slack, ttl=ttl)["out"] == kept(sequence, how, slack, ttl)


def test_a_time_to_live_is_counted_from_each_row() -> None:
    sequence: Sequence = [("L", row(t, "a", t)) for t in range(0, 100, 10)] + [("R", row(90, "a", 90))]
    assert results(sequence, ttl=32)["out"] == [(t, 90) for t in (60, 70, 80, 90)]
