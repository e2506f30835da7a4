"""Call functions that wait inside a task, with as many rows in flight as the epoch says, and measure their waiting."""

from __future__ import annotations

from penstock.clock import perf_counter, process_time
from penstock.graph import Node
from penstock.operators.stateless import PerRow
from penstock.pe.chunk import Chunk
from penstock.pe.failures import Failures
from penstock.pe.stateless import Outputs, run_stateless, waiting_caller
from penstock.pe.waiting import shared_window

Waited = tuple[int, float, float, float]
"""Rows of a task, seconds that they took together, seconds that they were in flight added up, and processor seconds."""


class Waits:
    """The operators of one task that wait."""

    def __init__(self, in_flight: dict[str, int], measure: bool = True) -> None:
        """Without `measure` nothing is: of several chunks at once nobody could tell whose time it was."""
        self._in_flight, self._measure = in_flight, measure
        self.measured: dict[str, Waited] = {}

    def run(self, node: Node, chunk: Chunk, failures: Failures) -> Outputs:
        """Take a chunk through an operator without memory, whether it waits or not."""
        operator = node.operator
        if not isinstance(operator, PerRow) or operator.in_flight is None:
            return run_stateless(node, chunk, failures)
        window = shared_window(operator.is_async, self._in_flight.get(node.name, operator.in_flight))
        if not self._measure:
            return run_stateless(node, chunk, failures, waiting_caller(window))
        wall, cpu, flight = perf_counter(), process_time(), window.seconds()
        made = run_stateless(node, chunk, failures, waiting_caller(window))
        # One chunk is under way at a time, so all of it is this operator's.
        spent = perf_counter() - wall, window.seconds() - flight, process_time() - cpu
        rows, *before = self.measured.get(node.name, (0, 0.0, 0.0, 0.0))
        self.measured[node.name] = rows + len(chunk), before[0] + spent[0], before[1] + spent[1], before[2] + spent[2]
        return made
