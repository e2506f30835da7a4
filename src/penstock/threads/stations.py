"""Operators at work: a station has an operator's input ports, admits its workers, and turns batch n into batch n.

What a station does depends on how many workers it may admit: any number for operators without memory (a reorder buffer
puts their batches back in order), one for each partition of a keyed operator, one for everything else.
"""

from __future__ import annotations

import dataclasses
import math
import traceback
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

import numpy as np

from penstock.clock import thread_time
from penstock.errors import PenstockError
from penstock.kernels.failures import Failure, Failures, fitted
from penstock.kernels.stateless import run_stateless
from penstock.operators.base import Source
from penstock.order.fanin import BatchFanIn
from penstock.order.primitives import Primitives
from penstock.order.reorder import MakeReorder, Reorder, ReorderBuffer
from penstock.plan.graph import Node
from penstock.plan.plan import Plan
from penstock.plan.positions import Shape
from penstock.rows.chunk import Chunk, concat
from penstock.rows.records import RowType
from penstock.statistics import Totals
from penstock.threads.batch import Batch, Call, Header, Taken
from penstock.threads.policies import MeasuredFlow, MeasuredPort
from penstock.threads.ports import OperatorGate, Output, Outputs, Port

if TYPE_CHECKING:
    from penstock.threads.replicas import Squad

Partitioned = Literal["hybrid", "partitioned", "shared", "executor"]
T = TypeVar("T")
SOON = 0.001
"""Seconds after which a worker looks around between two batches or parts: what it has sent down waits for a worker.

It costs some 30 us. Were workers to stay for their whole quantum, outputs would wait below as long."""

INNER = -1
"""The number of a port that is none of the operator's inputs."""

Rows = dict[int, Chunk]
"""What an operator gives for a batch: the rows of each output port that has any."""
Group = list[Chunk | None]
"""The rows of one batch on each input port."""


class InputPort(Port[Batch]):
    """An input of a station."""

    inside: ClassVar[bool] = False
    """Whether what comes here has been taken from another port of the operator, so that it has been counted there."""
    counts: MeasuredPort

    def __init__(self, primitives: Primitives, station: Station, index: int, capacity: int) -> None:
        super().__init__(primitives, f"{station.label}[{index}]", station.gate, capacity, station.around.clock)
        self.station, self.index, self.counts = station, index, station.counts.ports[index]

    def sequence(self, batch: Batch) -> int:
        """Number a batch among all that the station gets, without a gap: each port brings each batch once."""
        return batch.header.number * len(self.station.ports) + self.index

    def held_back(self, seconds: float, full: bool) -> None:
        """Note that whoever runs the operator stood still, with something for a port below."""
        self.station.counts.add(below_full=seconds if full else 0.0, below_taken=0.0 if full else seconds)

    def note_queued(self, batch: Batch) -> None:
        """Count a batch that waits; a call is none."""
        if not isinstance(batch, Call):
            self.counts.came(batch.header.number, len(batch), batch.header.entered, self.inside)

    def note_taken(self, batch: Batch) -> None:
        """Count a batch that waits no more."""
        if not isinstance(batch, Call):
            self.counts.went(batch.header.number, len(batch), self.inside)

    def note_workers(self, change: int) -> None:
        """Count a worker in or out."""
        self.station.counts.change_workers(change)

    def note_begun(self, batch: Batch | None) -> None:
        """Count a batch that waits again, or waits no more."""
        begun = None if batch is None else (batch.header.number, len(batch), batch.header.entered)
        self.station.counts.set_begun(begun)


class InnerPort(InputPort):
    """Where a station has its own workers called, for batches that it took before and for parts of them.

    There is always room, for there is no more than the element admits, and who brings a batch may be no worker.
    """

    inside = True

    def __init__(self, station: Station, name: str, permits: int | None = None) -> None:
        primitives = station.around.primitives
        gate: OperatorGate[Batch] = OperatorGate(primitives, f"{station.name}.{name}", permits)
        Port.__init__(self, primitives, gate.name, gate, 1)
        self.station, self.index, self.counts = station, INNER, station.counts.ports[0]

    def try_push(self, batch: Batch) -> bool:
        """Add a batch."""
        self.note_queued(batch)
        self._queue.push(batch)
        return True


@dataclass(frozen=True)
class Link:
    """An edge of the flow: which output goes to which port, and what happens to rows on the way."""

    output: int
    target: InputPort
    edge: int | None
    """The component that the edge adds to positions, where its branches meet again."""
    declared: RowType | None
    """The type that rows take here, where they enter an operator with state or a sink."""
    keeps_times: bool
    since: int = 0
    _: KW_ONLY
    until: float = math.inf
    """The batches that take this way: queries come and go while a flow runs."""


@dataclass(frozen=True)
class Surroundings:
    """What all stations of an element share."""

    plan: Plan
    primitives: Primitives
    report: Callable[[int, Failure], None]
    """Takes what failed in a batch."""
    publish: Callable[[Taken], None]
    """Takes batches that all sinks have, in order."""
    clock: Callable[[], float]
    capacity: int
    """Batches that an input port holds."""
    _: KW_ONLY
    in_flight: int
    """Batches that are in the element at once, at most."""
    partitions: int
    turn: float
    """Seconds after which who works on parts looks around."""
    published: Reorder[Taken]
    """Puts complete batches in order."""
    active: Callable[[], int]
    """Tells how many workers there are."""
    measured: MeasuredFlow
    """What is counted of the stations: policies see it."""
    first: int = 0
    """The first batch that the stations get."""
    partitioned: Partitioned = "hybrid"
    """How the workers of a partitioned operator share its partitions."""
    reorder: MakeReorder = ReorderBuffer
    """Makes what puts batches back in order."""
    keeps_frames: bool = True
    """Whether co-routines go on after their waits."""

    @property
    def slots(self) -> int:
        """Slots of a reorder buffer: one more than there are batches in flight.

        A batch may be out of the element before the worker that sent it down has said so to the buffer.
        """
        return self.in_flight + 1


class Station:
    """An operator that one worker runs at a time."""

    permits: int | None = 1
    squad: Squad | None = None
    """Its replicas, where it can have some."""
    _reorder: Reorder[tuple[Header, Rows]] | None = None
    """Puts batches back in order, where several workers may be in the operator."""
    host: Station | None = None
    """The station whose worker runs it, too, without a queue in between: of a sink, the one that feeds it."""

    def __init__(self, node: Node, around: Surroundings) -> None:
        self.name = self.label = node.name
        self.node: Node = node
        self.around = around
        self.nodes: tuple[Node, ...] = (node,)
        """The operators that run here: several where they are fused."""
        self.counts = around.measured.add(
            node.name,
            inputs=len(node.inputs),
            capacity=around.capacity,
            permits=self.permits,
            is_source=isinstance(node.operator, Source),
        )
        self.gate: OperatorGate[Batch] = OperatorGate(around.primitives, node.name, self.permits)
        self.ports = [InputPort(around.primitives, self, i, around.capacity) for i in range(len(node.inputs))]
        self.links: list[Link] = []
        self._fan_in: BatchFanIn[Batch] | None = (
            BatchFanIn(len(self.ports), first=around.first) if len(self.ports) > 1 else None
        )

    def start(self, deliver: Callable[[InputPort, Batch], None]) -> None:
        """Get ready, before the first batch; `deliver` brings a batch from a thread that is no worker."""

    def hurry(self, pauses: bool) -> None:
        """Wait for no more rows, because none will come, nor, where the flow is to stop, for `pauses` between attempts.

        Any thread may ask.
        """

    def close(self) -> None:
        """End what the station has started, after the last batch."""

    def first_task(self, first: int) -> int:
        """Return what `InputPort.sequence` gives the first batch, if that has the number `first`."""
        return first * max(1, len(self.ports))

    def take(self, port: int, batch: Batch) -> Outputs[Batch]:
        """Take a batch from a port; yield what goes on to which port."""
        if self._fan_in is None:
            yield from self._take_group(batch.header, [batch.chunk])
            return
        for group in self._fan_in.add(port, batch.header.number, batch):
            yield from self._take_group(group[0].header, [each.chunk for each in group])

    def _take_group(self, header: Header, group: Group) -> Outputs[Batch]:
        yield from self.leave(header, self._measured(header, group, self.run))

    def _make_reorder(self) -> Reorder[tuple[Header, Rows]]:
        """Make a reorder buffer with enough slots that no worker is ever refused."""
        around = self.around
        return around.reorder(around.primitives, around.slots, first=around.first)

    def leave_in_order(self, header: Header, made: Rows) -> Outputs[Batch]:
        """Send on what a batch led to once it is next in order, and what waited for it."""
        assert self._reorder is not None
        offer(self._reorder, header.number, (header, made))
        for ready, rows in self._reorder.drain():
            yield from self.leave(ready, rows)

    def run(self, header: Header, group: Group, failures: Failures) -> Rows:
        """Do the operator's work for one batch."""
        raise NotImplementedError

    def _measured(self, header: Header, group: Group, run: Callable[[Header, Group, Failures], Rows]) -> Rows:
        """Do the work, count it, and report what fails; whatever happens, the batch goes on."""
        failures = Failures()
        wall, cpu = self.around.clock(), thread_time()
        try:
            made = run(header, group, failures)
        except BaseException as error:
            made = self._broken(error, failures)
        self._account(header, group, made, failures, self.around.clock() - wall, thread_time() - cpu)
        return made

    def _broken(self, error: BaseException, failures: Failures) -> Rows:
        """Note an error that is none of a row, with everything that helps to find it; while it is handled."""
        problem = PenstockError(f"operator {self.name!r}: {error!r}\n{traceback.format_exc()}")
        failures.fatal.append(Failure("", (), problem))
        return {}

    def _account(
        self, header: Header, group: Group, made: Rows, failures: Failures, wall: float = 0.0, cpu: float = 0.0
    ) -> None:
        """Count what was done for a batch, and report what failed."""
        self.counts.add(
            batches=int(bool(group)),  # a part of a batch has none: its batch was counted when it was cut
            rows_in=sum(len(chunk) for chunk in group if chunk is not None),
            rows_out=sum(map(len, made.values())),
            wall=wall,
            cpu=cpu,
            errors=sum(failures.passed_over.values()),
            retries=sum(failures.retried.values()),
            timeouts=sum(failures.timed_out.values()),
            forgotten=sum(failures.forgotten.values()),
        )
        for failure in failures.fatal:
            self.around.report(header.number, failure)

    def leave(self, header: Header, made: Rows) -> Iterator[Output[Batch]]:
        """Send what a batch led to on its ways."""
        for link in self.links:
            if link.since <= header.number < link.until:
                chunk = self._carried(header, link, made.get(link.output))
                if link.target.station.host is not None:
                    link.target.station.write(header, chunk)
                else:
                    yield link.target, Batch(header, chunk)

    def write(self, header: Header, chunk: Chunk | None) -> None:
        """Take the rows of a batch, of which nothing comes out; only sinks can."""
        raise NotImplementedError

    def _carried(self, header: Header, link: Link, chunk: Chunk | None) -> Chunk | None:
        """Give rows what they need on an edge: a component of their position, and their declared type."""
        if chunk is None or not len(chunk):
            return None
        if link.edge is not None:
            chunk = chunk.extended(np.full(len(chunk), link.edge, np.int64))
        if not link.keeps_times and chunk.times is not None:
            chunk = dataclasses.replace(chunk, times=None)
        if link.declared is None:
            return chunk
        failures = Failures()
        chunk = fitted(self.node_of(link.output), chunk, failures)
        for failure in failures.fatal:
            self.around.report(header.number, failure)
        return chunk if len(chunk) else None

    @property
    def shape(self) -> Shape:
        """The layout of positions that the station was made for."""
        return self.around.plan.layout.shapes[self.name]

    def node_of(self, output: int) -> Node:
        """Return the operator whose rows leave by an output."""
        return self.node

    def output_of(self, node: str, port: int) -> int:
        """Return the number of an operator's output among those of the station."""
        return port

    def measured(self) -> Iterator[tuple[Node, Totals]]:
        """Tell what each operator did."""
        yield self.node, self.counts.totals()

    def progress(self) -> tuple[int, int]:
        """Return the oldest batch that has not left and how many later ones wait for it, where that can be."""
        return (0, 0) if self._reorder is None else self._reorder.progress()


class UnionStation(Station):
    """Join streams into one."""

    def run(self, header: Header, group: Group, failures: Failures) -> Rows:
        """Merge the rows of all ports by position."""
        width = self.around.plan.layout.shapes[self.name].width
        # One by one first, because rows of different types forget theirs here.
        chunks = [run_stateless(self.node, chunk.widened(width), failures)[0] for chunk in group if chunk is not None]
        return {0: concat(chunks).sorted()} if chunks else {}


def offer(buffer: Reorder[T], number: int, value: T) -> None:
    """Give a reorder buffer a batch, for which it must have room: one that it refused would never be seen again."""
    if not buffer.offer(number, value):
        raise RuntimeError(f"the reorder buffer has no room for batch {number}")


def run_port(port: Port[Batch], batch: Batch) -> Outputs[Batch]:
    """Run the station behind a port: what a scheduler does with a batch."""
    assert isinstance(port, InputPort)
    return port.station.take(port.index, batch)
