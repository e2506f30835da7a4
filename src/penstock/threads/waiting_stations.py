"""Operators whose rows wait at work: for the calls of a function, or for other rows, so that a call is worth it.

The rows of several batches that follow one another go into one call, and each batch leaves with what came of its own.
No row waits longer than the flow says, and no worker waits at all: the one that brings the rows that were missing makes
the call, or one that is called when the time is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from penstock.clock import waiting_time
from penstock.kernels.failures import Failures
from penstock.kernels.stateless import Called, gathered, made_of, run_stateless, waiting_caller
from penstock.kernels.waiting import InFlight, Job, make_window
from penstock.operators.calling import Tally
from penstock.operators.stateless import MapBatches, PerRow, check_in_flight
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk, Ints, concat
from penstock.threads.batch import Batch, Header
from penstock.threads.ports import Outputs
from penstock.threads.stateless_stations import StatelessStation
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


Pending = list[tuple[Header, Chunk]]


class GatheringStation(StatelessStation):
    """Gather the rows of batches until there are enough for a call, or one has waited long enough."""

    def __init__(self, node: Node, around: Surroundings) -> None:
        super().__init__(node, around)
        operator = node.operator if self._calling is None else self._calling.operator
        assert isinstance(operator, MapBatches)
        assert operator.rows is not None
        assert operator.wait is not None
        self._operator, self._most, self._seconds = operator, operator.rows, operator.wait
        # Batches that wait here are in flight: when half of those that may be are, others cannot come any more.
        self._most_batches = max(1, around.in_flight // 2)
        self.work = InnerPort(self, "due")
        self._deliver: Callable[[InputPort, Batch], None]
        self._changed = threading.Condition()
        self._pending: Pending = []
        self._due = self._hurrying = self._closed = False
        self._since = 0.0
        self._timer: threading.Thread | None = None

    def start(self, deliver: Callable[[InputPort, Batch], None]) -> None:
        """Get to know how workers are called."""
        self._deliver = deliver
        self._timer = threading.Thread(target=self._watch, name="penstock-gathering", daemon=True)
        self._timer.start()

    def hurry(self, pauses: bool) -> None:
        super().hurry(pauses)
        with self._changed:
            self._hurrying = True
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread that looks at the clock."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._timer is not None:
            self._timer.join()
        super().close()

    def take(self, port: int, batch: Batch) -> Outputs[Batch]:
        """Take a batch, or, where one has waited long enough, those that are there."""
        return self._flush() if port == INNER else super().take(port, batch)

    def _take_group(self, header: Header, group: Group) -> Outputs[Batch]:
        chunk = group[0]
        if chunk is None or not len(chunk):
            yield from self.leave_in_order(header, {})
            return
        with self._changed:
            if not self._pending:
                self._since = waiting_time()
                self._changed.notify_all()
            self._pending.append((header, chunk.widened(self._width)))
            rows = sum(len(each) for _, each in self._pending)
            ready = rows >= self._most or len(self._pending) >= self._most_batches or self._hurrying
        if ready:
            yield from self._flush()

    def _watch(self) -> None:
        """Call a worker when the first of those that wait has waited long enough."""
        while True:
            with self._changed:
                while not self._closed and not self._is_due():
                    left = self._since + self._seconds - waiting_time() if self._pending and not self._due else None
                    self._changed.wait(left)
                if self._closed:
                    return
                self._due = True
                header = self._pending[0][0]
            self._deliver(self.work, Batch(header, None))

    def _is_due(self) -> bool:
        over = self._hurrying or waiting_time() >= self._since + self._seconds
        return bool(self._pending) and not self._due and over

    def _flush(self) -> Outputs[Batch]:
        with self._changed:
            pending, self._pending, self._due = self._pending, [], False
        together = _Together(self.node, self._operator, pending)
        for number, (header, chunk) in enumerate(pending):
            made = self._measured(header, [chunk], partial(self._made, together, number))
            yield from self.leave_in_order(header, made)

    def _made(self, together: _Together, number: int, header: Header, group: Group, failures: Failures) -> Rows:
        made = together.made(number)
        # Where a call fails, each batch finds its own rows that do.
        return self.run(header, group, failures) if made is None else made


class _Together:
    """The rows of several batches in as few calls as can be, made when the first is asked for."""

    def __init__(self, node: Node, operator: MapBatches, pending: Pending) -> None:
        self._node, self._operator, self._pending = node, operator, pending
        self._found: list[Rows] | None = None
        self._failed = False

    def made(self, number: int) -> Rows | None:
        """Return what came of a batch; None where a call failed."""
        if self._found is None and not self._failed:
            try:
                self._found = self._run()
            except Exception:
                self._failed = True
        return None if self._found is None else self._found[number]

    def _run(self) -> list[Rows]:
        chunks = [chunk for _, chunk in self._pending]
        whole = concat(chunks)
        most = self._operator.rows or len(whole)
        parts: list[Chunk] = []
        origins: list[Ints] = []
        """The numbers of the input rows, ascending."""
        for start in range(0, len(whole), most):
            piece = whole.slice(start, min(start + most, len(whole)))
            result, index = self._operator.batch(piece.get_columns())
            origins.append(start + (np.arange(len(piece)) if index is None else np.asarray(index, np.int64)))
            parts += made_of(self._node, self._operator, piece, result, index).values()
        if not parts:
            return [{} for _ in chunks]
        out = concat(parts)
        ends = np.searchsorted(np.concatenate(origins), np.cumsum([len(chunk) for chunk in chunks])).tolist()
        return [{0: out.slice(low, high)} if low < high else {} for low, high in pairwise([0, *ends])]
