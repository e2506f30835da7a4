"""Let a policy choose which operator a worker runs next, from what was measured of those that have work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

from penstock.order.parking import ParkingLot
from penstock.order.primitives import EMPTY, Primitives
from penstock.pe.batch import Batch
from penstock.pe.ports import Port, PortScheduler
from penstock.pe.stations import InputPort, Station
from penstock.policies import Moment, OperatorFlow, OperatorView, Policy, solve_flow

_GONE = OperatorFlow(0, 1.0, 1.0, 0.0)
FLOW_SECONDS = 1.0
"""How long selectivities are taken to be the same."""


class PolicyScheduler(PortScheduler[Batch]):
    """A scheduler that asks a policy, among the operators with work, instead of taking the one that waited longest."""

    def __init__(
        self,
        primitives: Primitives,
        lot: ParkingLot,
        stations: Mapping[str, Station],
        policy: Policy,
        time_slice: float,
        clock: Callable[[], float],
        seed: int,
    ) -> None:
        super().__init__(primitives, lot)
        self._views = Views(stations, clock)
        self._policy, self._slice, self._clock, self._random = policy, time_slice, clock, Random(seed)

    def find(self) -> Port[Batch] | None:
        """Claim the port that the policy prefers; None if there is none to claim."""
        ready = self._listed()
        chosen = None
        while ready and chosen is None:
            views = [self._views.view(port) for port in ready]
            moment = Moment(self._clock(), 0, self._random, self._slice)
            port = ready.pop(self._policy.choose(views, moment))
            # Whoever has the last permit looks at the operator's ports when it gives it back.
            if not self.claim(port):
                continue
            if port.has_work():
                chosen = port
            else:
                self.release(port)
        if chosen is not None:
            self._views.began(chosen)
            if chosen.gate.admits_several and chosen.size() > 1:
                self._list(chosen)
        for port in ready:
            self._list(port)
        return chosen

    def _listed(self) -> list[InputPort]:
        """Take all ports off the list; return those with work."""
        found = []
        while (port := self._free.pop()) is not EMPTY:
            port.listed.release()
            if port.has_work():
                assert isinstance(port, InputPort)
                found.append(port)
        return found


class Views:
    """What was measured of operators, as policies see it."""

    def __init__(self, stations: Mapping[str, Station], clock: Callable[[], float]) -> None:
        self._stations, self._clock = stations, clock
        self._last_run: dict[str, float] = {}
        self._flows: dict[str, OperatorFlow] = {}
        self._solved_at = -math.inf

    def began(self, port: Port[Batch]) -> None:
        """Note that an operator was given to a worker."""
        assert isinstance(port, InputPort)
        self._last_run[port.station.name] = self._clock()

    def view(self, port: InputPort) -> OperatorView:
        """Describe the operator behind a port that has work."""
        station = port.station
        meter = station.meters.total()
        rows_a_batch = max(1.0, meter.rows_in / meter.batches) if meter.batches else 1.0
        below = [link.target for link in station.links]
        flow = self._flow(station.name)
        begun = station.gate.is_begun()
        return OperatorView(
            name=station.name,
            order=flow.order,
            permits=station.permits,
            queued=tuple(int((each.size() + (begun and each is port)) * rows_a_batch) for each in station.ports),
            front_number=meter.batches,
            downstream=tuple(each.station.name for each in below),
            downstream_queued=tuple(int(each.size() * rows_a_batch) for each in below),
            downstream_room=tuple(int((each.capacity - each.size()) * rows_a_batch) for each in below),
            last_run=self._last_run.get(station.name, -math.inf),
            read_rates=(meter.rows_in / meter.wall,) * len(station.ports) if meter.wall else (),
            write_rates=(meter.rows_out / meter.wall,) * len(below) if meter.wall else (),
            cost=meter.wall / meter.rows_in if meter.rows_in else None,
            window_time=meter.wall,
            inflow=flow.inflow,
            outflow_share=flow.outflow_share,
        )

    def _flow(self, name: str) -> OperatorFlow:
        """Return an operator's place in the flow, and the rows that reach and leave it for a row of input."""
        now = self._clock()
        if now - self._solved_at > FLOW_SECONDS or name not in self._flows:
            self._solved_at, self._flows = now, self._solve()
        # One that was cancelled may still have work.
        return self._flows.get(name, _GONE)

    def _solve(self) -> dict[str, OperatorFlow]:
        meters = {name: station.meters.total() for name, station in list(self._stations.items())}
        selectivities = {name: m.rows_out / m.rows_in if m.rows_in else 1.0 for name, m in meters.items()}
        edges = [(name, link.target.station.name) for name, each in list(self._stations.items()) for link in each.links]
        edges = [(above, below) for above, below in edges if below in meters]
        return solve_flow(selectivities, edges)
