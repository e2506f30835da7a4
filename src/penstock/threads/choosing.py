"""Let a policy choose which operator a worker runs next, from what was measured of those that have work."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from threading import Lock

from penstock.order.parking import ParkingLot
from penstock.order.primitives import Primitives
from penstock.threads.batch import Batch
from penstock.threads.models.base import IDLE_SECONDS
from penstock.threads.policies import MeasuredFlow, MeasuredOperator, Moment, Policy, Preempting
from penstock.threads.ports import Execute, Port, PortScheduler
from penstock.threads.sources import SourcePort
from penstock.threads.stations import InputPort


class PolicyScheduler(PortScheduler[Batch]):
    """A scheduler that asks a policy, among the operators with work, instead of taking the port that waited longest.

    The list is a set here: a decision looks at all that is on it and takes one off. The invariant of `ports.py` holds
    as it does there, because a port is taken off the list *before* its operator is claimed and its queue looked into.
    """

    def __init__(
        self,
        primitives: Primitives,
        lot: ParkingLot,
        measured: MeasuredFlow,
        policy: Policy,
        time_slice: float,
        clock: Callable[[], float],
        *,
        seed: int,
    ) -> None:
        super().__init__(primitives, lot)
        self._measured, self._policy = measured, policy
        self._preempting = policy if isinstance(policy, Preempting) else None
        self._slice, self._clock, self._random = time_slice, clock, Random(seed)
        self._changing = Lock()
        self._ready: dict[InputPort, None] = {}

    def find(self, worker: int = 0) -> Port[Batch] | None:
        """Claim the port that the policy prefers; None if there is none to claim."""
        ready = self._schedulable()
        while ready:
            moment = self._moment(worker)
            operators = list(ready)
            chosen = operators[self._policy.choose(operators, moment)]
            for port in _oldest_first(ready.pop(chosen)):
                if self._take(port):
                    chosen.last_run = moment.now
                    if port.gate.admits_several and port.size() > 1:
                        self._list(port)
                    return port
        return None

    def keeps(self, port: InputPort, since: float, worker: int) -> bool:
        """Tell whether a worker that took an operator at that time may go on with it."""
        ran = self._clock() - since
        if self._preempting is None:
            return ran < self._slice
        return not self._preempting.preempt(port.station.counts, ran, self._moment(worker))

    def deliver(self, port: Port[Batch], batch: Batch, execute: Execute[Batch], stopped: Callable[[], bool]) -> None:
        """Take a batch; one that was read waits until the policy lets its source run."""
        if not isinstance(port, SourcePort):
            super().deliver(port, batch, execute, stopped)
            return
        while not stopped() and not self.push(port, batch):
            port.await_room(IDLE_SECONDS)

    def _moment(self, worker: int) -> Moment:
        return Moment(self._measured.look(), worker, self._random, self._slice)

    def _schedulable(self) -> dict[MeasuredOperator, list[InputPort]]:
        """Return the operators that have work and admit a worker, each with its ports that have work."""
        with self._changing:
            listed = list(self._ready)
        found: dict[MeasuredOperator, list[InputPort]] = {}
        for port in listed:
            counts = port.station.counts
            if counts.is_full or not port.has_work():
                if not self._take(port):
                    continue
                # There is something, or somebody may come in, after all: this look is for all to see.
                self.release(port)
                self._list(port)
            found.setdefault(counts, []).append(port)
        return found

    def _take(self, port: InputPort) -> bool:
        """Take a port off the list, and claim its operator if there is work for it.

        Off the list first: whoever has the last permit looks at the operator's ports when it gives it back.
        """
        with self._changing:
            self._ready.pop(port, None)
        if not self.claim(port):
            return False
        if port.has_work():
            return True
        self.release(port)
        return False

    def _list(self, port: Port[Batch]) -> None:
        assert isinstance(port, InputPort)
        if self._owned and (owner := self._owned.get(id(port))) is not None:
            self._lot.wake(owner)
            return
        with self._changing:
            if port in self._ready:
                return
            self._ready[port] = None
        self._lot.wake_one()


def _oldest_first(ports: list[InputPort]) -> list[InputPort]:
    """Return an operator's ports in the order to try them: what it has inside already is older than what comes in."""
    if len(ports) == 1:
        return ports
    fronts = {port: port.counts.front() or (0, 0.0) for port in ports}
    return sorted(ports, key=lambda port: (not port.inside, fronts[port]))
