"""Run a flow in this process: read the sources, bring batches to the processing element, write what it publishes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, field, replace
from threading import Event
from typing import Any, Literal

from penstock.clock import monotonic, perf_counter, process_time, thread_time
from penstock.connectors.interfaces import Feed, Slice
from penstock.connectors.tables import loaded
from penstock.elastic.base import Controller
from penstock.elastic.decisions import Decision
from penstock.elastic.pilot import Lever
from penstock.elastic.rebinding import Binding
from penstock.elastic.thread_level import ThreadStatistics
from penstock.errors import FlowError, PenstockError
from penstock.kernels.column_kernels import by_columns
from penstock.operators.stateless import rows_gather, rows_wait
from penstock.plan.graph import SourceNode
from penstock.plan.plan import Plan
from penstock.rows.chunk import Chunk
from penstock.rows.records import Row
from penstock.run import Change, Engine, SetPlan, SetReplicas, SetThreads
from penstock.statistics import FlowStats
from penstock.threads.batch import Header
from penstock.threads.brakes import Brakes
from penstock.threads.element import Element
from penstock.threads.ingress import Cut, Cutter
from penstock.threads.interpreter import fewer_collections, warn_of_gil, weakly
from penstock.threads.levers import (
    FED_POLLS,
    FIRST_ROWS,
    BindingLever,
    CoresLever,
    FirstBatches,
    PartitionsLever,
    ReplicasLever,
    batch_lever,
    in_flight_lever,
    most_small,
    pieces,
    pool_lever,
    waiting_operators,
    workers_lever,
)
from penstock.threads.outputs import LocalOutputs
from penstock.threads.pilot import PilotThread
from penstock.threads.settings import Settings, refuse_frames
from penstock.threads.tables import LocalTables

LeverName = Literal["batches", "cores", "pool", "rebinding", "replicas", "shards", "waits"]
IDLE_SECONDS = (0.0002, 0.002)
"""How long to wait before asking sources again that had nothing: at first, and at last."""
REPORT_SECONDS = 0.5
REPORT_RATIO = 50
"""From report to report, how many times as long as one takes: a flow of a thousand operators is told of less often."""
FILE_ROWS = 131_072


@dataclass(frozen=True)
class LocalOptions:
    """How a flow runs in this process."""

    batch_rows: int | None = None
    """Rows of a batch at most; None is found from what the first ones take."""
    end: bool = True
    """Whether exhausted sources end the flow, so that open windows come out."""
    settings: Settings = field(default_factory=Settings)
    elastic: bool = False
    """Whether the number of workers is found while the flow runs; for the dynamic model."""
    steer: frozenset[LeverName] = frozenset()
    """What else is found while the flow runs; `pool` is another way to find the number of workers."""
    period: float | None = None
    """Seconds from decision to decision; None is the pilot's own."""
    _: KW_ONLY
    latency: float | None = None
    """How long a batch may take, in seconds: for the workers, the batches, and what is steered as `cores`."""
    name_keys: bool = False
    """Whether hot keys are named; they are values of rows."""
    binding: Binding = field(default_factory=Binding)
    """What rebinds operators, where `rebinding` is steered."""
    level: Controller[Any, ThreadStatistics] | None = None
    """What finds the number of workers, where that is found by throughput; None is Penstock's own."""


class LocalEngine(Engine):
    """Run a plan in this process."""

    changes = frozenset({SetThreads, SetReplicas, SetPlan})

    def __init__(
        self,
        plan: Plan,
        options: LocalOptions,
        listener: Callable[[FlowStats], None] = lambda stats: None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        refuse_frames(plan, "ps.Threads(...)")
        plan = loaded(plan)
        self._plan, self._options, self._listener, self._clock = plan, options, listener, clock
        self._stop = Event()
        self._publishing = threading.local()
        self._ended = False
        self._outputs = LocalOutputs("ps.Threads(...)")
        self._outputs.add(plan)
        self._gathers = any(rows_gather(node.operator) for node in plan.nodes.values())
        waiting = {name for name, node in plan.nodes.items() if rows_wait(node.operator)}
        self._lingers = self._gathers or bool(waiting)
        """Whether batches may be here for long without anybody working on them."""
        columns = any(map(by_columns, plan.keyed))
        own_size = options.batch_rows is None
        self._sizing = FirstBatches(weakly(self.set_batch_rows), waiting, columns) if own_size else None
        self._cutter = Cutter(plan, options.batch_rows or FIRST_ROWS, tell_ends=options.end)
        # All sources from the start: a worker that reports goes through it while rows are read.
        self._backlogs: dict[str, int | None] = dict.fromkeys(node.name for node in plan.sources)
        """The rows of each source that are known to wait, where it knows."""
        self._limits = {node.name: self._limit(node) for node in plan.sources}
        self._changes: deque[tuple[Callable[[], int], Future[int]]] = deque()
        self._asking = threading.Lock()
        self._waited = 0.0
        self._rows_out: dict[str, int] = {}
        self._epochs = 0
        self.element = Element(plan, weakly(self._publish), options.settings, clock=clock)
        self._tables = LocalTables(self.element, plan, monotonic)
        self._told = self.statistics()
        self._next_report = self._told.at + REPORT_SECONDS
        self._brakes = Brakes(self.element, plan)
        self._begun: dict[str, Iterator[Cut]] = {}
        """What is left of slices whose sources can be held back in the middle."""
        self._drained = False
        """Whether all that was read of a source has just been cut: it may have more."""
        self._steered: dict[str, Lever] = {}
        """What is found for single operators, by their names."""
        self._own_replicas: set[str] = set()
        """The operators whose replicas the user has set."""
        self.pilot = PilotThread(weakly(self.statistics), self._levers(), period=options.period)
        if self._sizing is not None:
            self.pilot.begin(self._sizing)

    def _levers(self) -> list[Lever]:
        """Return what finds settings while the flow runs, in the order of its turns."""
        steer, target, levers = self._options.steer, self._options.latency, list[Lever]()
        ask = weakly(self.between_batches)
        # What sets the number of workers comes first: all others wait until it has settled.
        if self._options.elastic:
            levers.append(
                pool_lever(self.element)
                if "pool" in steer
                else workers_lever(self.element, target=target, controller=self._options.level)
            )
        if "rebinding" in steer:
            levers.append(BindingLever(self.element, self._options.binding.controller))
        if "cores" in steer:
            assert target is not None
            levers.append(CoresLever(self.element, ask, target, left_alone=self._own_replicas))
        elif "replicas" in steer:
            levers.append(ReplicasLever(self.element, ask, left_alone=self._own_replicas))
        levers += self._steer_operators()
        if "batches" in steer:
            rows = weakly(self.set_batch_rows), weakly(self._batch_rows)
            levers.append(batch_lever(*rows, target, weakly(self._size_no_more)))
        return levers

    def _steer_operators(self) -> list[Lever]:
        """Return what is found for single operators of the plan that were not there before; forget those that went."""
        steer, partitioned = self._options.steer, [n.name for n in self._plan.keyed if n.operator.kind == "partitioned"]
        keyed = partitioned if "shards" in steer else []
        waiting = waiting_operators(self._plan) if "waits" in steer else []
        there = {*keyed, *waiting}
        new = [name for name in (*keyed, *waiting) if name not in self._steered]
        self._steered = {name: lever for name, lever in self._steered.items() if name in there}
        for name in new:
            self._steered[name] = (
                PartitionsLever(self.element, weakly(self.between_batches), name, self._options.name_keys)
                if name in keyed
                else in_flight_lever(self.element, name)
            )
        return [self._steered[name] for name in new]

    @property
    def results(self) -> dict[str, list[Row]]:
        return self._outputs.results

    def decisions_since(self, known: int) -> tuple[list[Decision], int]:
        return self.pilot.journal.decisions_since(known)

    def set_threads(self, threads: int) -> None:
        """Set the number of workers; from now on no controller does."""
        self.element.set_workers(threads)
        self.pilot.leave(("threads", "pool"))
        self.element.set_workers(threads)  # a decision may just have been carried out

    def _size_no_more(self) -> None:
        """Leave the size of batches to the controller that sees whole periods; for the pilot, in its turn."""
        if self._sizing is not None:
            self.pilot.leave([self._sizing.name])
            self._sizing = None

    def _batch_rows(self) -> int:
        return self._cutter.batch_rows

    def set_batch_rows(self, rows: int) -> None:
        """Set how many rows a batch takes at most, from now on; any thread may ask."""
        self._cutter.batch_rows = rows
        self._limits = {node.name: self._limit(node) for node in self._plan.sources}

    def statistics(self) -> FlowStats:
        known = [backlog for backlog in list(self._backlogs.values()) if backlog is not None]
        stats = self.element.statistics()
        return replace(
            stats,
            rows_out=dict(self._rows_out),
            epochs=self._epochs,
            epoch=self._epochs,
            attempts=self._epochs,
            tasks=max(1, len(stats.workers)),
            waited=self._waited,
            computed=process_time(),
            backlog=sum(known) if known else None,
        )

    def stop(self) -> None:
        self._stop.set()
        self.element.hurry(pauses=True)

    def stop_now(self) -> None:
        """End at once: what came in and is not out yet is dropped."""
        self._stop.set()
        self.element.stop()

    def run(self) -> None:
        feeds: dict[str, Feed] = {}
        warn_of_gil()
        # To the very end: what came out is young until then, and the collector would look at all of it at once.
        with fewer_collections():
            try:
                feeds = self._feeds()
                self.element.start()
                self.pilot.start()
                self._loop(feeds)
                self.element.hurry(pauses=False)
                self.element.drain()
            finally:
                self._refuse_changes()
                self.pilot.stop()
                self.element.close()
                self._outputs.close()
                for feed in feeds.values():
                    feed.close()
        if self.element.error is not None:
            raise self.element.error
        self._tell()
        self._listener = lambda stats: None  # who has this engine, and would be kept by it

    def _feeds(self) -> dict[str, Feed]:
        return {node.name: node.operator.reader.feed(node.name, monotonic, aligned=True) for node in self._plan.sources}

    def _limit(self, node: SourceNode) -> int:
        """Return how many rows to ask a source for at once: files are opened for each time, so more of them."""
        rows = self._cutter.batch_rows
        return max(rows, FILE_ROWS) if node.operator.reader.opens else rows

    def _loop(self, feeds: dict[str, Feed]) -> None:
        open_sources = list(feeds)
        (idle, longest), fed = IDLE_SECONDS, FED_POLLS
        while open_sources and not self._stop.is_set():
            self._make_changes()
            self._tables.refresh()
            held = self._brakes.held(open_sources)
            asked = [
                name
                for name in open_sources
                if name not in held and name not in self._begun and self._cutter.wants(name)
            ]
            slices = self._poll({name: feeds[name] for name in asked})
            ended = [name for name in asked if name not in slices and feeds[name].exhausted()]
            fed = 0 if asked and not slices else fed + 1
            self._cutter.pieces = pieces(fed) if self._options.batch_rows is None else 1
            rows, taken = 0, bool(slices)
            for cut in self._cuts(slices, ended, open_sources):
                rows, taken = rows + cut.count, True
                if not self._submit(cut):
                    return
            idle = IDLE_SECONDS[0] if taken else idle
            open_sources = [name for name in open_sources if name not in ended]
            drained, self._drained = self._drained, False
            if drained:
                continue
            if rows < self._cutter.batch_rows and not self._gathers:
                # Rows that come meanwhile go together: many small batches in a queue would make all of them late.
                self.element.await_fewer_than(most_small(self.element.model.active, self._cutter.size))
            if not taken and not ended:
                self._outputs.tick()
                began = perf_counter()
                self._stop.wait(idle)
                self._waited += perf_counter() - began
                idle = min(2 * idle, longest)

    def _cuts(self, slices: dict[str, Slice], ended: Collection[str], open_sources: Collection[str]) -> Iterator[Cut]:
        """Cut what came in batches; where sources can be held back, one batch of each at a time."""
        if not self._brakes.active:
            yield from self._cutter.cut(slices, ended)
            return
        self._brakes.limit(self._cutter.batch_rows)
        self._cutter.most_rows = self._brakes.most_rows
        for name, given in slices.items():
            self._begun[name] = self._cutter.cut({name: given})
        for name in list(self._begun):
            # What is in flight must find room in the ports, so they are looked at when there is not too much of it.
            self.element.await_fewer_than(self._brakes.most_in_flight)
            if name in self._brakes.held(open_sources):
                continue
            cut = next(self._begun[name], None)
            if cut is None:
                del self._begun[name]
                self._drained = True
            else:
                yield cut
        yield from self._cutter.cut({}, ended)

    def _poll(self, feeds: dict[str, Feed]) -> dict[str, Slice]:
        """Ask sources for rows; what that takes beyond computing is waiting for them."""
        began, computed = perf_counter(), thread_time()
        slices = {}
        for name, feed in feeds.items():
            given = feed.poll(self._limits[name])
            if given is not None:
                slices[name] = given
                self._backlogs[name] = given.backlog
            elif self._backlogs.get(name):
                self._backlogs[name] = 0
        self._waited += max(0.0, (perf_counter() - began) - (thread_time() - computed))
        return slices

    def ask(self, change: Change) -> Future[int]:
        match change:
            case SetThreads(threads):
                done: Future[int] = Future()
                self.set_threads(threads)
                done.set_result(self.element.submitted)
                return done
            case SetReplicas(operator, replicas):
                self.refuse_inside()
                return self.between_batches(lambda: self._set_replicas(operator, replicas))
            case SetPlan(plan):
                if [node.name for node in plan.sources] != [node.name for node in self._plan.sources]:
                    raise FlowError(
                        "the sources of a flow that runs cannot change; start a flow of its own for the query"
                    )
                self.refuse_inside()
                return self.between_batches(lambda: self._change(plan))
        return super().ask(change)

    def _change(self, plan: Plan) -> int:
        plan = loaded(plan, self._plan)
        self._outputs.add(plan)
        number = self.element.change(plan)
        self._plan = plan
        self._cutter.change(plan)
        self._brakes.change(plan)
        self._tables.change(plan)
        before = dict(self._steered)
        new = self._steer_operators()
        self.pilot.leave([each.name for name, each in before.items() if name not in self._steered])
        self.pilot.add(new)
        return number

    def _set_replicas(self, operator: str, replicas: int) -> int:
        number = self.element.set_replicas(operator, replicas)
        self._own_replicas.add(operator)  # from now on no controller sets them
        return number

    def refuse_inside(self) -> None:
        if getattr(self._publishing, "now", False):
            raise PenstockError(
                "a flow cannot be changed from inside its own sinks and listeners, which it waits for; do it in "
                "another thread"
            )

    def between_batches(self, change: Callable[[], int]) -> Future[int]:
        """Make a change between two batches, in the thread that brings them in."""
        done: Future[int] = Future()
        with self._asking:
            if self._ended:
                done.set_exception(PenstockError("the flow has ended"))
            else:
                self._changes.append((change, done))
        return done

    def _make_changes(self) -> None:
        """Make the changes that were asked for: here, because only this thread brings batches in."""
        while self._changes:
            change, done = self._changes.popleft()
            try:
                done.set_result(change())
            except Exception as error:
                done.set_exception(error)

    def _refuse_changes(self) -> None:
        """Refuse the changes that were asked for and not made, and all that are asked for from now on."""
        with self._asking:
            self._ended = True
        while self._changes:
            self._changes.popleft()[1].set_exception(PenstockError("the flow has ended"))

    def _submit(self, cut: Cut) -> bool:
        if cut.late is not None:
            self.element.drain()
            self.element.fail(cut.late.error)
            return False
        for name, rows in cut.passed_over.items():
            self.element.stations[name].counts.add(errors=rows)
        if not self.element.submit(cut.rows, cut.marks, cut.steps, small=cut.count < self._cutter.batch_rows):
            return False
        sizing = self._sizing  # another thread may take it away
        if sizing is not None and sizing.is_due(self.element.submitted):
            # A batch of the size that was set last should be out: those before would tell the same again. But no row
            # is to be late for that: any will do where the sources have no more than what came, or rows wait.
            patient = cut.count >= self._cutter.batch_rows and not self._lingers
            self.element.await_fewer_than(self.element.submitted - (sizing.looked if patient else 0))
            self.pilot.try_turn(sizing, sizing.period(self.element.statistics()))
        return True

    def _publish(self, header: Header, chunks: list[Chunk | None]) -> None:
        self._publishing.now = True
        try:
            self._write(header, chunks)
        finally:
            self._publishing.now = False

    def _write(self, header: Header, chunks: list[Chunk | None]) -> None:
        written = self._outputs.publish(header.number + 1, dict(zip(header.sinks, chunks, strict=True)))
        for name, count in written.items():
            self._rows_out[name] = self._rows_out.get(name, 0) + count
        if self._clock() >= self._next_report:
            self._tell()

    def _tell(self) -> None:
        """Report what came and went since the last time; to listeners it is an epoch like any other."""
        self._epochs += 1
        now = self.statistics()
        done, self._told = now.since(self._told), now
        self._next_report = now.at + max(REPORT_SECONDS, REPORT_RATIO * (self._clock() - now.at))
        self._listener(done)
