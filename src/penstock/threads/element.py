"""A processing element: a flow's operators in this process, from batches that come in to batches that are published.

The owner of the element brings batches in with `submit`, one after the other, and gets them back through `publish`, in
the same order, each with the rows of all sinks. A batch in which something failed is not published, nor is any after
it; the error is the one that a one-row-at-a-time run would have met first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from penstock.clock import perf_counter
from penstock.errors import FlowError, PenstockError
from penstock.flow.building import check_count, refuse_replicas
from penstock.kernels.failures import Failure, first_failure
from penstock.kernels.marks import Steps
from penstock.operators.stateless import rows_wait
from penstock.order.parts import SplitBatch
from penstock.order.primitives import Primitives
from penstock.order.threads import RealThreads
from penstock.plan.plan import Plan
from penstock.rows.chunk import Chunk
from penstock.rows.timing import Ticks
from penstock.statistics import FlowStats
from penstock.threads.batch import Header, Taken
from penstock.threads.building import by_operator, check_change, extend
from penstock.threads.meters import Latencies
from penstock.threads.models.base import Model
from penstock.threads.models.bound import Bound
from penstock.threads.models.scheduled import Scheduled, threaded_ports
from penstock.threads.partitioned_station import ShardSquad, check_most, check_replica_names, first_count
from penstock.threads.policies import MeasuredFlow
from penstock.threads.replicas import Replica
from penstock.threads.settings import Settings
from penstock.threads.sources import Read, SourceStation
from penstock.threads.stations import SOON, Rows, Station, Surroundings
from penstock.threads.statistics import operator_stats, query_latencies
from penstock.threads.uncounted import leave_uncounted

QUEUE_PARTITIONS = 8
"""Parts of a keyed operator whose workers take what waits longest: some more than workers, for each part costs time."""


class Element:
    """The operators of a flow, and the threads that run them."""

    def __init__(
        self,
        plan: Plan,
        publish: Callable[[Header, list[Chunk | None]], None],
        settings: Settings,
        *,
        clock: Callable[[], float] = perf_counter,
        primitives: Primitives | None = None,
        first: int = 0,
    ) -> None:
        """Make the stations; `first` is the number of the first batch, where an earlier element had those before."""
        self._plan, self._publish, self._clock, self._began = plan, publish, clock, clock()
        self._settings = settings
        self._primitives = primitives or RealThreads()
        self.around = Surroundings(
            plan,
            self._primitives,
            self._report,
            self._take,
            clock,
            settings.capacity,
            in_flight=settings.in_flight,
            partitions=self._partitions(plan),
            turn=min(SOON, settings.quantum),
            published=settings.reorder(self._primitives, settings.in_flight + 1, first=first),
            active=lambda: self.model.active,
            measured=MeasuredFlow(clock),
            first=first,
            partitioned=settings.partitioned,
            reorder=settings.reorder,
            keeps_frames=settings.keeps_frames,
        )
        check_replica_names(settings.replicas, plan)
        self._alone = settings.model != "dynamic"
        # The other models are about which thread runs which operator.
        self._fuse = settings.fuse and settings.model in ("dynamic", "manual")
        self.stations: dict[str, Station] = {}
        self._engage(self._extend())
        self._retired: list[tuple[int, Station]] = []
        self.model = self._make_model(settings)
        self._moved = threading.Condition()
        self._stopped = False
        self._issued = self._published = first
        self._failures: list[tuple[int, Failure]] = []
        self.error: BaseException | None = None
        self._entered: dict[int, float] = {}
        self._latencies = Latencies()
        self._rows = 0
        self._few = 0

    def _partitions(self, plan: Plan) -> int:
        settings = self._settings
        if settings.partitions is not None:
            return settings.partitions
        return plan.shards if settings.partitioned == "executor" else QUEUE_PARTITIONS

    def _make_model(self, settings: Settings) -> Model:
        if settings.model == "bound":
            if threaded_ports(self._everybody()):
                name = threaded_ports(self._everybody())[0].station.name
                raise FlowError(
                    f'operator {name!r} reads a threaded() stream, and model="bound" gives operators to workers by '
                    f'itself; leave out threaded(), or use model="dynamic"'
                )
            return Bound(
                self._primitives,
                self._everybody(),
                self._is_stopped,
                self.fail,
                workers=settings.workers,
                quantum=settings.quantum,
                barrier=settings.barrier,
                clock=self._clock,
            )
        return Scheduled(
            settings.model,
            self._primitives,
            self.around.measured,
            self._everybody(),
            self._is_stopped,
            self.fail,
            workers=settings.workers,
            policy=settings.policy,
            quantum=settings.quantum,
            clock=self._clock,
            seed=settings.seed,
        )

    # From the owner's thread ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers."""
        leave_uncounted(self._plan)
        for station in self.stations.values():
            station.start(self.model.deliver)
        self.model.start()

    def submit(
        self, rows: Mapping[str, Rows], marks: Mapping[str, Ticks], steps: Mapping[str, Steps], *, small: bool = False
    ) -> bool:
        """Bring in the next batch: the rows of each source by output port; False if nothing is taken any more.

        Waits while there are as many batches in flight as there may be: a slow sink slows the sources. A `small` batch
        may be run by the calling thread, which has nothing better to do while its sources have so little, if nothing
        else is in flight.
        """
        with self._moved:
            if self._issued - self._published >= self._most_in_flight:
                self._await_room()
            if self._stopped:
                return False
            number = self._issued
            self._issued += 1
            stands_in = small and number == self._published
        if self._retired:
            self._settle()
        sinks = tuple(node.name for node in self._plan.sinks)
        parts: SplitBatch[Chunk | None, list[Chunk | None]] = SplitBatch(self._primitives, len(sinks), list)
        header = Header(number, dict(marks), dict(steps), self._clock(), sinks, parts)
        self._entered[number] = header.entered
        self._rows += sum(len(chunk) for ports in rows.values() for chunk in ports.values())
        with self.model.standing_in() if stands_in else nullcontext(self.model.deliver) as deliver:
            for node in self._plan.sources:
                station, rows_of_source = self.stations[node.name], rows.get(node.name, {})
                assert isinstance(station, SourceStation)
                if isinstance(self.model, Scheduled) and self.model.schedules_sources:
                    deliver(station.intake, Read(header, rows_of_source))
                    continue
                for port, batch in station.bring(header, rows_of_source):
                    deliver(port, batch)  # type: ignore[arg-type]
        return True

    @property
    def _most_in_flight(self) -> int:
        """How many batches may be in the element.

        For one worker no more than a port holds: the thread that brings batches in would find it full and help out,
        and two threads would pull at the interpreter's lock where one is asked for. Rows that wait need no worker.
        """
        settings = self._settings
        if isinstance(self.model, Scheduled) and self.model.has_one_worker and not self._waits:
            return min(settings.in_flight, settings.capacity)
        return settings.in_flight

    def _await_room(self) -> None:
        """Wait until half of the batches are out: waking the thread that brings them in costs more than it brings.

        The sources are blocked meanwhile, by a flow that is full.
        """
        began = perf_counter()
        self._await_fewer(self._most_in_flight // 2 + 1)
        for node in self._plan.sources:
            self.stations[node.name].counts.add(below_full=perf_counter() - began)

    def change(self, plan: Plan) -> int:
        """Run another plan from the next batch on, and return its number; from the thread that submits.

        Operators that are in both go on as they are, with their state; nothing that is in flight is touched.
        """
        check_change(self.stations, plan)
        self.around = replace(self.around, plan=plan, first=self._issued)
        self._settle()
        made = self._extend(self._published)
        made += self._engage(made)
        self._plan = plan
        leave_uncounted(plan)
        names = [
            name for name, each in self.stations.items() if not any(node.name in plan.nodes for node in each.nodes)
        ]
        gone = [self.stations.pop(name) for name in names]
        gone += [replica for each in gone if each.squad is not None for replica in each.squad.disband()]
        self._retired += [(self._issued, station) for station in gone]
        for station in made:
            station.start(self.model.deliver)
        self.model.add([station for station in made if station.host is None], self._issued)
        return self._issued

    def hurry(self, *, pauses: bool) -> None:
        """Let no operator wait for rows, or where the flow is to stop for `pauses`; any thread may ask."""
        for station in list(self.stations.values()):
            station.hurry(pauses)

    def _settle(self) -> None:
        """Let stations go that were retired, once the last batch that they had is out."""
        kept = []
        for first, station in self._retired:
            if isinstance(station, Replica) and station.hired:
                continue  # it has come back
            if first <= self._published and self._has_left(station):
                station.close()
                if station.host is None:
                    self.model.retire(station)
            else:
                kept.append((first, station))
        self._retired = kept

    def _has_left(self, station: Station) -> bool:
        """Tell whether a replica has given away what it had; where the whole operator goes, it is not asked."""
        if not isinstance(station, Replica) or station.owner.squad is None:
            return True
        # A query that was cancelled and added again has another station of the same name.
        return self.stations.get(station.name) is not station.owner or station.owner.squad.has_left(station)

    def _extend(self, settled: int = 0) -> list[Station]:
        """Make the stations of the plan that are not there; an operator with replicas of its own is not fused."""
        named = self._settings.replicas
        self._waits = any(rows_wait(node.operator) for node in self.around.plan.nodes.values())
        return extend(
            self.stations,
            self.around,
            alone=self._alone,
            fuse=self._fuse,
            sinks=self._settings.fuse and self._settings.model != "dedicated",
            apart=named if isinstance(named, Mapping) else (),
            settled=settled,
        )

    def _everybody(self) -> list[Station]:
        """List all stations that workers come to, with their replicas."""
        stations = [station for station in self.stations.values() if station.host is None]
        return [*stations, *(each for station in stations if station.squad for each in station.squad.hired)]

    def _engage(self, stations: Sequence[Station]) -> list[Station]:
        """Give new stations the replicas that they are to begin with; return these."""
        made: list[Station] = []
        for station in stations:
            count = first_count(station, self._settings.replicas, self._settings.workers)
            if count is not None and station.squad is not None:
                made += station.squad.recruit(count)
                station.squad.assign(self.around.first, self.around.first)
        return made

    def set_replicas(self, operator: str, count: int) -> int:
        """Have so many replicas of an operator; from the thread that submits. Returns the next batch's number.

        Batches that are in flight stay with those that have them, and state goes along with its partition.
        """
        station = self._station(operator)
        refuse_replicas(station.node)
        check_most(station, check_count(count, f"operator {operator!r}"))
        assert station.squad is not None
        before = station.squad.hired
        replicas = station.squad.recruit(count)
        self.model.add(replicas, self._issued)
        self._retired += [(self._issued, each) for each in before if not each.hired]
        station.squad.assign(self._issued, self._published)
        self._settle()
        return self._issued

    def move_partition(self, operator: str, partition: int, replica: int) -> None:
        """Give a partition of an operator to another of its replicas; from the thread that submits."""
        squad = self._station(operator).squad
        if not isinstance(squad, ShardSquad) or not squad.hired:
            raise FlowError(f"operator {operator!r} has no partitions that belong to replicas; give it some first")
        if not (0 <= partition < len(squad.table) and 0 <= replica < len(squad.hired)):
            raise FlowError(
                f"operator {operator!r}: no partition {partition} or no replica {replica}; there are "
                f"{len(squad.table)} and {len(squad.hired)}"
            )
        squad.move(partition, replica)

    def _station(self, operator: str) -> Station:
        stations = by_operator(self.stations)
        if operator not in stations:
            raise FlowError(f"there is no operator {operator!r}; there are {', '.join(stations)}")
        return stations[operator]

    @property
    def submitted(self) -> int:
        """How many batches came in."""
        return self._issued

    @property
    def leaving(self) -> int:
        """How many workers were told to go and are still in an operator."""
        return self.model.leaving if isinstance(self.model, Scheduled) else 0

    def set_workers(self, count: int) -> None:
        """Change the number of workers of the dynamic model."""
        if not isinstance(self.model, Scheduled) or not self.model.has_pool:
            raise PenstockError(f'the {self._settings.model} model has the threads it has; use model="dynamic"')
        try:
            self.model.set_workers(count)
        except ValueError as error:
            raise PenstockError(str(error)) from None

    def await_fewer_than(self, batches: int) -> None:
        """Wait until fewer batches are in flight, or the element has stopped."""
        with self._moved:
            self._await_fewer(batches)

    def _await_fewer(self, batches: int) -> None:
        self._few = batches
        while self._issued - self._published >= batches and not self._stopped:
            self._moved.wait()
        self._few = 0

    def drain(self) -> None:
        """Wait until everything that came in is published, or the element has stopped."""
        with self._moved:
            while self._published < self._issued and not self._stopped:
                self._moved.wait()

    def stop(self) -> None:
        """Drop what is in flight; workers finish the batch that they are in, but for co-routines, which they leave."""
        with self._moved:
            self._stopped = True
            self._moved.notify_all()

    def close(self) -> None:
        """Stop, and wait for the workers to end."""
        self.stop()
        self.model.stop()
        for station in [*self._everybody(), *(station for _, station in self._retired)]:
            station.gate.drop_begun()
            station.close()

    def statistics(self) -> FlowStats:
        """Tell what the element is doing (a snapshot); any thread may ask."""
        now, entered, stations = self._clock(), self._entered.copy(), list(self.stations.values())
        return FlowStats(
            now,
            now - self._began,
            self._rows,
            batches_in=self._issued,
            batches_out=self._published,
            operators=operator_stats(stations, now, entered),
            workers=tuple(self.model.workers()),
            latency=self._latencies.summary(),
            queries=query_latencies(stations),
            capacity=self._settings.capacity,
            most_in_flight=self._settings.in_flight,
            oldest=now - min(entered.values(), default=now),
        )

    # From the workers -------------------------------------------------------------------------------------------

    def _is_stopped(self) -> bool:
        return self._stopped

    def fail(self, error: BaseException) -> None:
        """Stop because of an error, unless there was one before; from any thread."""
        with self._moved:
            if self.error is None:
                self.error = error
        self.stop()

    def _report(self, number: int, failure: Failure) -> None:
        with self._moved:
            self._failures.append((number, failure))

    def _take(self, taken: Taken) -> None:
        """Publish a batch that all sinks have. One worker at a time is here, and batches come in order."""
        header, chunks = taken
        failed = [failure for number, failure in self._failures if number == header.number]
        if self._stopped:
            return
        try:
            if failed:
                raise first_failure(self._plan, failed).error
            self._publish(header, chunks)
        except BaseException as error:
            self.fail(error)
            return
        self._latencies.add(self._clock() - self._entered.pop(header.number))
        with self._moved:
            self._published += 1
            left = self._issued - self._published
            if left == 0 or left < self._few:
                self._moved.notify_all()
