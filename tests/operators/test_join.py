"""Keyed windowed joins against a plain nested loop."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import read
from penstock.flow import Flow
from penstock.operators.windows import Sliding

from ..running import run

LEFT = [{"t": 1, "k": "a", "v": 1}, {"t": 2, "k": "b", "v": 2}]


def two(left, right, **options):
    """Two keyed sources, L and R, with event time t."""
    flow = Flow("f")
    kind = {"t": int, "k": str, "v": int}
    streams = [
        flow.source(name, read.items(rows), time="t", schema=kind, **options)
        for name, rows in (("L", left), ("R", right))
    ]
    return [stream.key_by("k") for stream in streams]


def row(t, k, v):
    return {"t": t, "k": k, "v": v}


def values(left, right):
    return (left and left.v, right and right.v)


def joined(sequence, how="inner", window=10, slack=0):
    """Join a sequence of (side, row) and return the pairs of values, and the late rows."""
    left, right = two([], [], slack=slack)
    stream = left.join(right, window, values, how=how)
    stream.late.sink("late")
    return run(stream.sink("out"), sequence)


class TestOrder:
    SEQUENCE = (
        ("L", row(1, "a", 1)),
        ("R", row(2, "a", 10)),
        ("R", row(3, "b", 20)),
        ("L", row(4, "a", 2)),
        ("R", row(5, "a", 30)),
        ("L", row(6, "c", 3)),
    )

    @pytest.mark.parametrize(
        ("how", "alone"),
        [
            ("inner", []),
            ("left", [(3, None)]),
            ("right", [(None, 20)]),
            ("outer", [(None, 20), (3, None)]),
        ],
    )
    def test_pairs_at_the_later_row_and_rows_without_partner_at_the_close(self, how, alone):
        # Row 30 meets 1 and 2, in the order in which they came.
        assert joined(self.SEQUENCE, how)["out"] == [(1, 10), (2, 10), (1, 30), (2, 30), *alone]

    def test_windows_close_by_end_then_opening_row_then_row(self):
        sequence = [
            ("R", row(1, "b", 1)),
            ("L", row(1, "a", 2)),
            ("R", row(2, "c", 3)),
            ("L", row(12, "b", 4)),
        ]
        sequence += [("R", row(12, "a", 5)), ("L", row(3, "b", 6))]
        # Two rows of key b in window [0, 10): they meet, so only a and c are alone there.
        assert joined(sequence, "outer", slack=20)["out"] == [
            (6, 1),
            (2, None),
            (None, 3),
            (4, None),
            (None, 5),
        ]

    def test_other_windows_do_not_meet(self):
        assert joined([("L", row(1, "a", 1)), ("R", row(11, "a", 2))])["out"] == []

    def test_sliding_windows_pair_once_in_each(self):
        sequence = [("L", row(6, "a", 1)), ("R", row(8, "a", 2))]
        assert joined(sequence, window=Sliding(10, 5))["out"] == [(1, 2)] * 2

    def test_late_rows_of_each_side(self):
        sequence = [
            ("L", row(1, "a", 1)),
            ("R", row(1, "a", 2)),
            ("L", row(30, "a", 3)),
            ("R", row(30, "a", 4)),
        ]
        found = joined([*sequence, ("L", row(9, "a", 5)), ("R", row(8, "a", 6))])
        assert found["out"] == [(1, 2), (3, 4)]
        assert found["late"] == [(9, "a", 5), (8, "a", 6)]

    def test_the_slower_side_keeps_windows_open(self):
        sequence = [
            ("L", row(1, "a", 1)),
            ("L", row(50, "a", 2)),
            ("R", row(2, "a", 3)),
            ("L", row(3, "a", 4)),
        ]
        assert joined(sequence)["out"] == [(1, 3), (4, 3)]

    def test_a_stream_joined_with_itself(self):
        left = Flow("f").source("L", read.items(LEFT), time="t").key_by("k")
        stream = left.join(left, 10, values)
        assert run(stream.sink("out"))["out"] == [(1, 1), (2, 2)]


class TestShape:
    def test_side_by_side(self):
        left, right = two([row(1, "a", 1), row(2, "b", 2)], [row(3, "a", 10), row(4, "c", 20)])
        found = run(left.join(right, 10, how="outer").sink("out"))["out"]
        assert [r.asdict() for r in found] == [
            {"t": 1, "k": "a", "v": 1, "t_right": 3, "v_right": 10},
            {"t": 2, "k": "b", "v": 2, "t_right": None, "v_right": None},
            {"t": None, "k": "c", "v": None, "t_right": 4, "v_right": 20},
        ]

    def test_keys_of_other_names_both_stay(self):
        flow = Flow("f")
        left = flow.source("L", [{"t": 1, "a": 1}], time="t").key_by("a")
        right = flow.source("R", [{"t": 1, "b": 1}], time="t").key_by("b")
        (found,) = run(left.join(right, 10).sink("out"))["out"]
        assert found.asdict() == {"t": 1, "a": 1, "t_right": 1, "b": 1}

    def test_a_declared_result(self):
        class Sum(NamedTuple):
            total: int

        def add(left, right) -> Sum:
            return Sum(left.v + right.v)

        left, right = two(LEFT, [row(1, "a", 5)])
        stream = left.join(right, 10, add)
        assert stream.type.cls is Sum
        assert run(stream.sink("out"))["out"] == [Sum(6)]


@given(
    st.lists(st.tuples(st.sampled_from("LR"), st.integers(0, 25), st.sampled_from("ab")), max_size=14),
    st.sampled_from(["inner", "left", "right", "outer"]),
)
def test_any_rows_in_time_order(drawn, how):
    """Without late rows the pairs are those of a nested loop, in the order of their later row."""
    drawn = [(side, time, key) for (side, _, key), time in zip(drawn, sorted(t for _, t, _ in drawn), strict=True)]
    sequence = [(side, row(time, key, number)) for number, (side, time, key) in enumerate(drawn)]
    pairs, met = [], set()
    for later, (side, a) in enumerate(sequence):
        for earlier, (other, b) in enumerate(sequence[:later]):
            if side != other and a["k"] == b["k"] and a["t"] // 10 == b["t"] // 10:
                pairs.append((earlier, later) if side == "R" else (later, earlier))
                met |= {earlier, later}
    alone = [
        (number, None) if side == "L" else (None, number)
        for number, (side, _) in enumerate(sequence)
        if number not in met and how in ("outer", "left" if side == "L" else "right")
    ]
    found = joined(sequence, how)["out"]
    assert [pair for pair in found if None not in pair] == pairs
    # Rows without a partner come out as their windows close: by window, opening row of the key, row.
    opening = {}
    for number, (_, r) in enumerate(sequence):
        opening.setdefault((r["t"] // 10, r["k"]), number)

    def place(pair):
        number = pair[0] if pair[1] is None else pair[1]
        r = sequence[number][1]
        return r["t"] // 10, opening[r["t"] // 10, r["k"]], number

    assert [pair for pair in found if None in pair] == sorted(alone, key=place)
