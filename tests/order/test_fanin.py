"""The ordered merge, whatever port is first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.order import BatchFanIn


def test_a_batch_leaves_when_every_port_has_brought_it_empty_or_not() -> None:
    fanin: BatchFanIn[list[str]] = BatchFanIn(2)
    assert fanin.add(0, 0, ["a", "d"]) == []
    assert fanin.add(0, 1, []) == []
    assert fanin.add(1, 0, ["b"]) == [[["a", "d"], ["b"]]]
    assert fanin.add(1, 1, []) == [[[], []]]


def test_a_port_that_skips_a_batch_is_refused() -> None:
    fanin: BatchFanIn[list[str]] = BatchFanIn(2)
    with pytest.raises(ValueError, match="port 1 brought batch 1; 0 was next"):
        fanin.add(1, 1, [])


@given(st.data(), st.integers(1, 4), st.integers(0, 6))
def test_batches_leave_in_order_whatever_the_arrivals(data: st.DataObject, ports: int, total: int) -> None:
    fanin: BatchFanIn[int] = BatchFanIn(ports)
    arrivals = data.draw(st.permutations([port for port in range(ports) for _ in range(total)]))
    brought = [0] * ports
    left = []
    for port in arrivals:
        left += fanin.add(port, brought[port], brought[port])
        brought[port] += 1
    assert left == [[number] * ports for number in range(total)]
