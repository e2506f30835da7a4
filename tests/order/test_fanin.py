"""The ordered merges, whatever port is first."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.order import BatchFanIn, PositionFanIn


def test_a_batch_leaves_when_every_port_has_brought_it_empty_or_not() -> None:
    fanin: BatchFanIn[list[str], list[str]] = BatchFanIn(2, lambda batches: sorted(chain(*batches)))
    assert fanin.add(0, 0, ["a", "d"]) == []
    assert fanin.add(0, 1, []) == []
    assert fanin.held(0) == 2
    assert fanin.add(1, 0, ["b"]) == [(0, ["a", "b", "d"])]
    assert fanin.add(1, 1, []) == [(1, [])]
    assert fanin.next_number == 2


def test_a_port_that_skips_a_batch_is_refused() -> None:
    fanin: BatchFanIn[list[str], list[str]] = BatchFanIn(2, lambda batches: [])
    with pytest.raises(ValueError, match="port 1 brought batch 1; 0 was next"):
        fanin.add(1, 1, [])


@given(st.data(), st.integers(1, 4), st.integers(0, 6))
def test_batches_leave_in_order_whatever_the_arrivals(data: st.DataObject, ports: int, total: int) -> None:
    fanin: BatchFanIn[int, tuple[int, ...]] = BatchFanIn(ports, tuple)
    arrivals = data.draw(st.permutations([port for port in range(ports) for _ in range(total)]))
    brought = [0] * ports
    left = []
    for port in arrivals:
        left += fanin.add(port, brought[port], brought[port])
        brought[port] += 1
    assert left == [(number, (number,) * ports) for number in range(total)]


Row = tuple[int, str]


def by_time() -> PositionFanIn[Row]:
    return PositionFanIn(2, key=lambda row: row[0])


def test_a_row_waits_until_no_earlier_one_can_come() -> None:
    fanin = by_time()
    assert fanin.add(0, [(1, "a"), (5, "b")]) == []
    assert fanin.add(1, [(3, "x")]) == [(1, "a"), (3, "x")]
    assert fanin.add(1, [], frontier=6) == [(5, "b")]  # an empty batch is progress


def test_equal_keys_leave_in_port_order() -> None:
    fanin = by_time()
    assert fanin.add(1, [(2, "x")]) == []
    assert fanin.add(0, [(2, "a")]) == [(2, "a")]  # port 0 may bring another 2, which goes before x
    assert fanin.add(0, [(2, "b")]) == [(2, "b")]
    assert fanin.add(0, [], frontier=3) == [(2, "x")]


def test_an_ended_port_holds_nobody_back() -> None:
    fanin = by_time()
    assert fanin.add(0, [(1, "a"), (9, "b")]) == []
    assert fanin.end(1) == [(1, "a"), (9, "b")]
    with pytest.raises(ValueError, match="port 1 has ended"):
        fanin.add(1, [])


def test_a_port_that_goes_back_is_refused() -> None:
    fanin = by_time()
    fanin.add(0, [(5, "a")])
    with pytest.raises(ValueError, match="port 0 went back from 5 to 4"):
        fanin.add(0, [(4, "b")])


@given(st.data(), st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=1, max_size=3))
def test_all_rows_leave_sorted_however_they_are_cut(data: st.DataObject, streams: list[list[int]]) -> None:
    streams = [sorted(stream) for stream in streams]
    fanin: PositionFanIn[tuple[int, int, int]] = PositionFanIn(len(streams), key=lambda row: row[0])
    rows = [[(key, port, place) for place, key in enumerate(stream)] for port, stream in enumerate(streams)]
    left: list[tuple[int, int, int]] = []
    open_ports = list(range(len(streams)))
    while open_ports:
        port = data.draw(st.sampled_from(open_ports))
        if not rows[port]:
            open_ports.remove(port)
            left += fanin.end(port)
            continue
        cut = data.draw(st.integers(1, len(rows[port])))
        left += fanin.add(port, rows[port][:cut])
        rows[port] = rows[port][cut:]
    assert left == sorted((key, p, i) for p, stream in enumerate(streams) for i, key in enumerate(stream))
