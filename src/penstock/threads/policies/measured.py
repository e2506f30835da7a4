"""What engine and simulator count about a flow, kept up to date where it happens; policies see it as it is.

One `MeasuredFlow` has a `MeasuredOperator` for each operator, and that a `MeasuredPort` for each of its inputs. Whoever
queues a batch, takes one, enters an operator or has done a piece of work says so, in constant time. All counts are
cumulative; a window is the difference of two of them. The clock is the engine's own, so the simulator fills the same
object in virtual time.

Counts of an operator change under its lock, which is held for a few additions: nothing here relies on an interpreter
that runs one thread at a time.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Lock

from penstock.statistics import Totals
from penstock.threads.policies.flow_equations import SELECTIVITY_FLOOR, OperatorFlow, solve_flow

WINDOW_SECONDS = 1.0
"""How long a window lasts: Ordered's w. What is *recent* is this window and the one before."""


Sums = tuple[float, float, float, float]
_NOTHING: Sums = (0.0, 0.0, 0.0, 0.0)


class _Marks:
    """What cumulative sums were when the current window began, and when the one before it did."""

    __slots__ = ("_before", "_since", "seconds", "until")

    def __init__(self, seconds: float, sums: Sums) -> None:
        self.seconds, self.until = seconds, -math.inf
        self._since = self._before = sums

    def roll(self, now: float, sums: Sums) -> None:
        """Begin the window that `now` is in, which is behind `until`; the sums are those from before it."""
        self._before = self._since if now < self.until + self.seconds else sums
        self._since = sums
        self.until = (now // self.seconds + 1) * self.seconds

    def current(self, now: float, sums: Sums) -> Sums:
        """Return what was added in the window that `now` is in."""
        return _difference(sums, self._since if now < self.until else sums)

    def recent(self, now: float, sums: Sums) -> Sums:
        """Return what was added in that window and the one before."""
        later = self._since if now < self.until + self.seconds else sums
        return _difference(sums, self._before if now < self.until else later)


def _difference(sums: Sums, since: Sums) -> Sums:
    return sums[0] - since[0], sums[1] - since[1], sums[2] - since[2], sums[3] - since[3]


class MeasuredPort:
    """What waits for an operator from one of its inputs: queued, or taken from the queue and not begun (*inside*).

    Inside are the parts of batches that a partitioned operator's workers share, and what was dealt out to replicas.
    """

    def __init__(self, operator: MeasuredOperator, capacity: int) -> None:
        self.operator, self.capacity = operator, capacity
        self._lock, self._flow, self._clock = operator._lock, operator._flow, operator._flow.clock
        self._queued: OrderedDict[int, list[float]] = OrderedDict()
        """For each batch in the queue: its rows, when it entered the flow, when it came here, in how many pieces."""
        self._inside: OrderedDict[int, list[float]] = OrderedDict()
        self._rows = 0.0
        self._batches_came = self._rows_came = self._rows_taken = self._waited = 0.0
        self._marks = _Marks(operator._flow.window, _NOTHING)

    def came(self, number: int, rows: float, entered: float, inside: bool = False) -> None:
        """Note a batch, or a part of one, before it is put where workers find it."""
        now = self._clock()
        with self._lock:
            waiting = self._inside if inside else self._queued
            found = waiting.get(number)
            if found is None:
                waiting[number] = [rows, entered, now, 1]
            else:
                found[0] += rows
                found[3] += 1
            self._rows += rows
            if inside:
                return
            if now >= self._marks.until:
                self._marks.roll(now, self._sums())
            self._batches_came += 1
            self._rows_came += rows

    def went(self, number: int, rows: float, inside: bool = False) -> None:
        """Note that a worker has taken a batch, or a part of one."""
        now = self._clock()
        with self._lock:
            waiting = self._inside if inside else self._queued
            found = waiting.get(number)
            assert found is not None, f"batch {number} of {self.operator.name!r} was taken and never came"
            if found[3] == 1:
                del waiting[number]
            else:
                found[0] -= rows
                found[3] -= 1
            self._rows -= rows
            if now >= self._marks.until:
                self._marks.roll(now, self._sums())
            self._waited += rows * (now - found[2])
            if not inside:
                self._rows_taken += rows

    @property
    def rows(self) -> int:
        return round(self._rows)

    @property
    def room(self) -> int:
        """Rows that still fit into the queue, in batches as large as those that came."""
        with self._lock:
            batches, rows, _, _ = self._known(0)
            return round(max(0, self.capacity - len(self._queued)) * (rows / batches if batches else 1.0))

    def front(self) -> tuple[int, float] | None:
        """Return the number of the oldest batch that waits, and when it entered the flow."""
        with self._lock:
            # What is inside was taken from the queue, so it is older.
            for waiting in (self._inside, self._queued):
                for number, (_, entered, _, _) in waiting.items():
                    return number, entered
        return None

    def waited(self) -> tuple[float, float]:
        """Return the rows that were taken lately, and how long they had waited in all."""
        with self._lock:
            return self._known(2)[2:]

    def rows_came(self, recent: bool) -> float:
        """Return the rows that came, of late or since the start."""
        with self._lock:
            sums = self._sums()
            return (self._marks.recent(self._flow.now, sums) if recent else sums)[1]

    def _sums(self) -> Sums:
        return self._batches_came, self._rows_came, self._rows_taken, self._waited

    def _known(self, what: int) -> Sums:
        """Return the sums of late, where one of them is not nothing; since the start otherwise."""
        sums = self._sums()
        recent = self._marks.recent(self._flow.now, sums)
        return recent if recent[what] else sums


class MeasuredOperator:
    """What was measured of one operator, as policies see it (`view.OperatorView`)."""

    def __init__(
        self, flow: MeasuredFlow, name: str, inputs: int, capacity: int, permits: int | None, is_source: bool
    ) -> None:
        self.name, self.permits, self.is_source = name, permits, is_source
        self._flow, self._lock = flow, Lock()
        # A source has no queue in the flow; what was read waits in a queue of its own.
        self.ports = tuple(MeasuredPort(self, capacity) for _ in range(max(inputs, int(is_source))))
        self.below: tuple[MeasuredPort, ...] = ()
        """The ports that its outputs go to."""
        self._out_before: dict[MeasuredPort, float] = {}
        """For each of them, the rows that had come out before it was there."""
        self.workers = 0
        self.last_run = -math.inf
        self.order, self.inflow, self.outflow_share = 0, 1.0, 0.0
        self._begun: tuple[int, float, float] | None = None
        self._running: tuple[list[object], float] = ([], math.inf)
        """What the running time depended on when it was last worked out, and what it was."""
        self._totals = Totals()
        self._marks = _Marks(flow.window, _NOTHING)

    # What happens to it.

    def connect(self, below: Iterable[MeasuredPort]) -> None:
        """Send outputs to these ports from now on."""
        with self._lock:
            self.below, self._running = tuple(below), ([], math.inf)
            rows_out = self._totals.rows_out
            self._out_before = {port: self._out_before.get(port, rows_out) for port in self.below}

    def change_workers(self, change: int) -> None:
        """Note that a worker has come in, or goes and is about to give its permit back."""
        with self._lock:
            self.workers += change

    def set_begun(self, begun: tuple[int, float, float] | None) -> None:
        """Note the number, the rows and the time of entry of a batch that it was left in the middle of, if it was."""
        self._begun = begun

    def add(
        self,
        *,
        batches: int = 0,
        rows_in: int = 0,
        rows_out: int = 0,
        wall: float = 0.0,
        cpu: float = 0.0,
        below_full: float = 0.0,
        below_taken: float = 0.0,
        errors: int = 0,
        retries: int = 0,
        timeouts: int = 0,
        forgotten: int = 0,
    ) -> None:
        """Note what was done for it."""
        now = self._flow.clock()
        with self._lock:
            if now >= self._marks.until:
                self._marks.roll(now, self._sums())
            totals = self._totals
            totals.batches += batches
            totals.rows_in += rows_in
            totals.rows_out += rows_out
            totals.wall += wall
            totals.cpu += cpu
            totals.below_full += below_full
            totals.below_taken += below_taken
            totals.errors += errors
            totals.retries += retries
            totals.timeouts += timeouts
            totals.forgotten += forgotten

    def totals(self) -> Totals:
        """Return what was done for it since the start (a copy)."""
        with self._lock:
            return replace(self._totals)

    # What policies see.

    @property
    def queued(self) -> tuple[int, ...]:
        """Rows waiting for it from each input port; the rest of a batch that was begun counts whole, at the first."""
        begun = self._begun
        rows = [port.rows for port in self.ports]
        if begun is not None and rows:
            rows[0] += round(begun[1])
        return tuple(rows)

    @property
    def rows_waiting(self) -> int:
        """Rows waiting at all input ports together."""
        return sum(self.queued)

    @property
    def is_full(self) -> bool:
        """Whether it already has as many workers as it admits."""
        return self.permits is not None and self.workers >= self.permits

    def _front(self) -> tuple[int, float] | None:
        begun = self._begun
        if begun is not None:
            return begun[0], begun[2]
        return min((front for port in self.ports if (front := port.front()) is not None), default=None)

    @property
    def front_time(self) -> float | None:
        """When the oldest waiting row entered the flow."""
        front = self._front()
        return None if front is None else front[1]

    @property
    def front_number(self) -> int | None:
        """The number of the oldest waiting batch."""
        front = self._front()
        return None if front is None else front[0]

    @property
    def waiting_time(self) -> float:
        """How long rows have recently waited for it, on average."""
        counts = [port.waited() for port in self.ports]
        taken = sum(rows for rows, _ in counts)
        return sum(seconds for _, seconds in counts) / taken if taken else 0.0

    @property
    def downstream(self) -> tuple[str, ...]:
        """The operators that its outputs go to, one entry for each port that is fed."""
        return tuple(port.operator.name for port in self.below)

    @property
    def downstream_queued(self) -> tuple[int, ...]:
        """Rows waiting at each of those ports."""
        return tuple(port.rows for port in self.below)

    @property
    def downstream_room(self) -> tuple[int, ...]:
        """Rows that still fit at each of those ports."""
        return tuple(port.room for port in self.below)

    @property
    def read_rates(self) -> tuple[float, ...]:
        """Rows that it has recently taken from each input port in a second of running."""
        _, seconds, rows_in, rows_out = self._work()
        taken = [port.waited()[0] for port in self.ports]
        total = sum(taken)
        # Rows are taken before the work for them is done: by how much is told by the work, by which port by these.
        rate = (rows_out if self.is_source else rows_in) / seconds if seconds > 0.0 else 0.0
        return tuple(rate * rows / total for rows in taken) if rate and total else ()

    @property
    def write_rates(self) -> tuple[float, ...]:
        """Rows that it has recently sent to each port below in a second of running."""
        recent, seconds, _, rows_out = self._work()
        if seconds <= 0.0:
            return ()
        return tuple(rows_out / seconds * self._share(port, recent, rows_out) for port in self.below)

    @property
    def running_time(self) -> float:
        """How long it can run until an input port is empty or a port below is full; see `running_time`.

        A decision asks all operators, and few have changed since the last one.
        """
        totals = self._totals
        known: list[object] = [self._flow.now // self._flow.window, totals.wall, totals.rows_out, self._begun]
        known += [value for port in self.ports for value in (port._rows, port._rows_taken)]
        known += [value for port in self.below for value in (port._rows_came, port._rows_taken)]
        before, found = self._running  # one look: another worker may just be deciding, too
        if known != before:
            found = running_time(self.queued, self.read_rates, self.downstream_room, self.write_rates)
            self._running = known, found
        return found

    @property
    def cost(self) -> float | None:
        """Recent worker time for one row; None until it has run for the first time."""
        if not self._totals.batches:
            return None
        _, seconds, rows_in, rows_out = self._work()
        rows = rows_out if self.is_source else rows_in
        return seconds / rows if rows else 0.0

    @property
    def window_time(self) -> float:
        """Worker time spent on it in the current window."""
        with self._lock:
            return self._marks.current(self._flow.now, self._sums())[0]

    @property
    def selectivity(self) -> float:
        """Recent rows out for a row in; 1 where that is not known."""
        _, _, rows_in, rows_out = self._work()
        return rows_out / rows_in if rows_in and not self.is_source else 1.0

    @property
    def rows_brought(self) -> float:
        """Recent rows out: for a source, its part of the flow's input."""
        return self._work()[3]

    def share(self, port: MeasuredPort) -> float:
        """Return the part of its rows that goes to a port below: of several outputs, or of one that is dealt out."""
        recent, _, _, rows_out = self._work()
        return self._share(port, recent, rows_out)

    def _share(self, port: MeasuredPort, recent: bool, rows_out: float) -> float:
        if not recent:
            rows_out -= self._out_before.get(port, 0.0)
        return port.rows_came(recent) / rows_out if rows_out > 0.0 else 1.0

    def _sums(self) -> Sums:
        totals = self._totals
        return totals.wall, totals.rows_in, totals.rows_out, 0.0

    def _work(self) -> tuple[bool, float, float, float]:
        """Return the seconds, rows in and rows out of late; since the start, and False, where there were no rows."""
        with self._lock:
            sums = self._sums()
            recent = self._marks.recent(self._flow.now, sums)
        is_recent = bool(recent[1] or recent[2])
        return is_recent, *(recent if is_recent else sums)[:3]


def running_time(
    queued: Sequence[int], read_rates: Sequence[float], room: Sequence[int], write_rates: Sequence[float]
) -> float:
    """Return the time until the first input port is empty or the first port below is full.

    A port that the operator has not been seen to use does not limit it. One that has never run has no limit at all, so
    it runs, and is measured.
    """
    pairs = (*zip(queued, read_rates, strict=False), *zip(room, write_rates, strict=False))
    return min((rows / rate for rows, rate in pairs if rate > 0.0), default=math.inf)


class MeasuredFlow:
    """All operators of a flow, and how much of its input reaches each."""

    def __init__(self, clock: Callable[[], float], window: float = WINDOW_SECONDS) -> None:
        self.clock, self.window = clock, window
        self.now = clock()
        """When policies last looked: their windows end there."""
        self.operators: dict[str, MeasuredOperator] = {}
        self._solving = Lock()
        self._solved_at = -math.inf

    def add(
        self, name: str, *, inputs: int, capacity: int, permits: int | None, is_source: bool = False
    ) -> MeasuredOperator:
        """Begin to measure an operator, in the place of an older one of the same name."""
        made = MeasuredOperator(self, name, inputs, capacity, permits, is_source)
        # A new one, not the old one changed: workers may be going through it.
        self.operators = {**self.operators, name: made}
        return made

    def keep(self, names: Iterable[str]) -> None:
        """Have these operators and no others from now on; their connections may have changed."""
        kept = set(names)
        with self._solving:  # or whoever is solving for the old ones would say that these are solved
            self.operators = {name: operator for name, operator in self.operators.items() if name in kept}
            self._solved_at = -math.inf

    def look(self) -> float:
        """Say that a decision is about to be made; return the time.

        The flow equations are solved again when a window has gone by: selectivities are recent ones, so they change no
        faster, and a decision then costs nothing but the views that it looks at.
        """
        now = self.now = self.clock()
        if now - self._solved_at >= self.window and self._solving.acquire(blocking=False):
            try:
                self._solved_at, operators = now, self.operators
                for name, flow in _solve(operators).items():
                    operator = operators[name]
                    operator.order, operator.inflow, operator.outflow_share = (
                        flow.order,
                        flow.inflow,
                        flow.outflow_share,
                    )
            finally:
                self._solving.release()
        return now


def _solve(operators: Mapping[str, MeasuredOperator]) -> dict[str, OperatorFlow]:
    shares: dict[tuple[str, str], float] = {}
    for name, operator in operators.items():
        for port in operator.below:
            edge = (name, port.operator.name)
            if edge[1] in operators:
                share = min(1.0, max(SELECTIVITY_FLOOR, operator.share(port)))
                shares[edge] = shares.get(edge, 0.0) + share
    entries = {name: operator.rows_brought or 1.0 for name, operator in operators.items() if operator.is_source}
    return solve_flow({name: each.selectivity for name, each in operators.items()}, shares, entries)
