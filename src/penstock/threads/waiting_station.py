"""Operators whose function waits: rows of many batches are in flight at once, and batches leave in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.kernels.failures import Failures
from penstock.kernels.stateless import Called, gathered, run_stateless, waiting_caller
from penstock.kernels.waiting import InFlight, Job, make_window
from penstock.operators.calling import Tally
from penstock.operators.stateless import PerRow, check_in_flight
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk
from penstock.threads.batch import Batch, Header
from penstock.threads.ports import Outputs
from penstock.threads.stateless_station import StatelessStation
from penstock.threads.stations import INNER, Group, InnerPort, InputPort, Rows, Surroundings


class WaitingStation(StatelessStation):
    """Wait for the rows of a batch in the worker that took it: for models in which no worker could be called later."""

    def __init__(self, node: Node, around: Surroundings) -> None:
        super().__init__(node, around)
        operator = node.operator
        assert isinstance(operator, PerRow)
        assert operator.in_flight is not None
        self._operator, self.in_flight = operator, operator.in_flight
        closing = None if self._calling is None else self._calling.close_async
        self._window: InFlight = make_window(operator.is_async, operator.in_flight, spent=self._spent, closing=closing)

    @property
    def is_async(self) -> bool:
        """Tell whether rows wait in tasks, not in threads."""
        return self._operator.is_async

    def set_in_flight(self, rows: int) -> None:
        """Change how many rows are waited for at once, from now on; any thread may ask."""
        check_in_flight(rows, self._operator.is_async, self.name)
        self.in_flight = rows
        self._window.set_limit(rows)

    def run(self, header: Header, group: Group, failures: Failures) -> Rows:
        """Take the rows through the operator."""
        chunk = group[0]
        if chunk is None:
            return {}
        chunk = chunk.widened(self._width)
        return run_stateless(self.node, chunk, failures, waiting_caller(self._window), self._calling)

    def begun(self) -> int:
        """Count the rows that the function was called for."""
        return self._window.begun()

    def in_flight_seconds(self) -> float:
        """Return the seconds that rows took, added up; divided by the rows, what one waits and computes."""
        return self._window.seconds()

    def close(self) -> None:
        """End the threads that wait for rows, and what they use."""
        if self._calling is not None:
            self._calling.interrupt()
        self._window.close()
        super().close()

    def _spent(self, seconds: float) -> None:
        self.counts.add(cpu=seconds)


class SpanningStation(WaitingStation):
    """Let no worker wait: who takes a batch puts its rows in the window and goes, and the last row calls a worker.

    So rows of all batches that are in the element wait side by side, and none of them pays for the slowest row of
    another. How many batches can be here is bounded by how many the element admits.
    """

    def __init__(self, node: Node, around: Surroundings) -> None:
        super().__init__(node, around)
        self.work = InnerPort(self, "done")
        self._deliver: Callable[[InputPort, Batch], None]

    def start(self, deliver: Callable[[InputPort, Batch], None]) -> None:
        """Get to know how workers are called."""
        self._deliver = deliver

    def take(self, port: int, batch: Batch) -> Outputs[Batch]:
        """Begin with a batch, or end with one whose rows are done."""
        return self._finish(batch) if port == INNER else super().take(port, batch)

    def _take_group(self, header: Header, group: Group) -> Outputs[Batch]:
        chunk = group[0]
        if chunk is None or not len(chunk):
            yield from self.leave_in_order(header, {})
            return
        try:
            chunk = chunk.widened(self._width)
            rows = chunk.get_rows()
        except Exception:
            # It fails in the same way where that is reported.
            yield from super()._take_group(header, group)
            return
        stops = self._operator.on_error == "fail"
        tally = Tally()
        function = self._operator.row_function() if self._calling is None else self._calling.function(tally)
        self._window.submit(Job(function, rows, stops, partial(self._call, header, chunk), tally))

    def _call(self, header: Header, chunk: Chunk, job: Job) -> None:
        """Call a worker for a job that is done; in the thread of its last row, which has no time for more."""
        self._deliver(self.work, _Done(header, chunk, job))

    def _finish(self, batch: Batch) -> Outputs[Batch]:
        assert isinstance(batch, _Done)
        made = self._measured(batch.header, [batch.chunk], partial(self._gather, batch.job))
        return self.leave_in_order(batch.header, made)

    def _gather(self, job: Job, header: Header, group: Group, failures: Failures) -> Rows:
        (chunk,) = group
        assert chunk is not None

        def caller(node: Node, function: object, rows: object, chunk: Chunk, failures: Failures) -> Called:
            return gathered(job, node, chunk, failures)

        return run_stateless(self.node, chunk, failures, caller)


class _Done(Batch):
    """A batch whose rows are done."""

    __slots__ = ("job",)

    job: Job

    def __init__(self, header: Header, chunk: Chunk, job: Job) -> None:
        super().__init__(header, chunk)
        object.__setattr__(self, "job", job)
