"""Operators at work: a station has an operator's input ports, admits its workers, and turns batch n into batch n.

What a station does depends on how many workers it may admit: any number for operators without memory (a reorder buffer
puts their batches back in order), one for each partition of a keyed operator, one for everything else.
"""

from __future__ import annotations

import dataclasses
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from penstock.errors import PenstockError
from penstock.graph import Node
from penstock.operators.base import Keyed
from penstock.order.fanin import BatchFanIn
from penstock.order.parts import SplitBatch
from penstock.order.primitives import EMPTY, Primitives
from penstock.order.queues import HybridQueue, ShardQueue
from penstock.order.reorder import Reorder, ReorderBuffer
from penstock.pe.batch import Batch, Header, Taken
from penstock.pe.chunk import Chunk, Ints, concat
from penstock.pe.failures import Failure, Failures
from penstock.pe.fitting import fitted
from penstock.pe.keyed import KeyedRunner
from penstock.pe.marks import Steps, arrival, watermark
from penstock.pe.meters import Latencies, Meter, Meters
from penstock.pe.ports import OperatorGate, Outputs, Port
from penstock.pe.row_keys import key_shards
from penstock.pe.shards import Shard
from penstock.pe.stateless import run_stateless
from penstock.plan import Plan, takes_marks
from penstock.positions import Shape
from penstock.rows import RowType

T = TypeVar("T")
Rows = dict[int, Chunk]
"""What an operator gives for a batch: the rows of each output port that has any."""
Group = list[Chunk | None]
"""The rows of one batch on each input port."""
PartRows = tuple[int, Chunk, Ints]
"""Rows of one input port, with the partition of each."""


class InputPort(Port[Batch]):
    """An input of a station."""

    def __init__(self, primitives: Primitives, station: Station, index: int, capacity: int) -> None:
        super().__init__(primitives, f"{station.name}[{index}]", station.gate, capacity)
        self.station, self.index = station, index


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
    in_flight: int
    """Batches that are in the element at once, at most."""
    partitions: int
    time_slice: float
    published: Reorder[Taken]
    """Puts complete batches in order."""
    active: Callable[[], int]
    """Tells how many workers there are."""
    first: int = 0
    """The first batch that the stations get."""

    @property
    def slots(self) -> int:
        """Slots of a reorder buffer: one more than there are batches in flight.

        A batch may be out of the element before the worker that sent it down has said so to the buffer.
        """
        return self.in_flight + 1


class Station:
    """An operator that one worker runs at a time."""

    permits: int | None = 1

    def __init__(self, node: Node, around: Surroundings) -> None:
        self.name, self.node, self._around = node.name, node, around
        self.nodes: tuple[Node, ...] = (node,)
        """The operators that run here: several where they are fused."""
        self.gate: OperatorGate[Batch] = OperatorGate(around.primitives, node.name, self.permits)
        self.ports = [InputPort(around.primitives, self, i, around.capacity) for i in range(len(node.inputs))]
        self.links: list[Link] = []
        self.meters = Meters()
        self._fan_in: BatchFanIn[Batch, list[Batch]] | None = (
            BatchFanIn(len(self.ports), list, first=around.first) if len(self.ports) > 1 else None
        )

    def start(self, deliver: Callable[[InputPort, Batch], None]) -> None:
        """Get ready, before the first batch; `deliver` brings a batch from a thread that is no worker."""

    def close(self) -> None:
        """End what the station has started, behind the last batch."""

    def take(self, port: int, batch: Batch) -> Outputs[Batch]:
        """Take a batch from a port; yield what goes on to which port."""
        if self._fan_in is None:
            yield from self._take_group(batch.header, [batch.chunk])
            return
        for _, group in self._fan_in.add(port, batch.header.number, batch):
            yield from self._take_group(group[0].header, [each.chunk for each in group])

    def _take_group(self, header: Header, group: Group) -> Outputs[Batch]:
        yield from self.leave(header, self._measured(header, group, self.run))

    def run(self, header: Header, group: Group, failures: Failures) -> Rows:
        """Do the operator's work for one batch."""
        raise NotImplementedError

    def _measured(self, header: Header, group: Group, run: Callable[[Header, Group, Failures], Rows]) -> Rows:
        """Do the work, count it, and report what fails; whatever happens, the batch goes on."""
        meter, failures = self.meters.mine(), Failures()
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            made = run(header, group, failures)
        except BaseException as error:  # not an error of a row, so everything that helps to find it
            problem = PenstockError(f"operator {self.name!r}: {error!r}\n{traceback.format_exc()}")
            failures.fatal.append(Failure("", (), problem))
            made = {}
        meter.wall += time.perf_counter() - wall
        meter.cpu += time.thread_time() - cpu
        meter.batches += bool(group)  # a part of a batch has none: its batch was counted when it was cut
        meter.rows_in += sum(len(chunk) for chunk in group if chunk is not None)
        meter.rows_out += sum(map(len, made.values()))
        for failure in failures.fatal:
            self._around.report(header.number, failure)
        return made

    def leave(self, header: Header, made: Rows) -> Outputs[Batch]:
        """Send what a batch led to on its ways."""
        for link in self.links:
            if link.since <= header.number < link.until:
                yield link.target, Batch(header, self._carried(header, link, made.get(link.output)))

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
        chunk = fitted(self.node, chunk, failures)
        for failure in failures.fatal:
            self._around.report(header.number, failure)
        return chunk if len(chunk) else None

    @property
    def shape(self) -> Shape:
        """The layout of positions that the station was made for."""
        return self._around.plan.layout.shapes[self.name]

    def output_of(self, node: str, port: int) -> int:
        """Return the number of an operator's output among those of the station."""
        return port

    def measured(self) -> Iterator[tuple[Node, Meter]]:
        """Tell what each operator did."""
        yield self.node, self.meters.total()

    def progress(self) -> tuple[int, int]:
        """Return the oldest batch that has not left and how many later ones wait for it, where that can be."""
        return 0, 0


class UnionStation(Station):
    """Join streams into one."""

    def run(self, header: Header, group: Group, failures: Failures) -> Rows:
        """Merge the rows of all ports by position."""
        width = self._around.plan.layout.shapes[self.name].width
        # One by one first, because rows of different types forget theirs here.
        chunks = [run_stateless(self.node, chunk.widened(width), failures)[0] for chunk in group if chunk is not None]
        return {0: concat(chunks).sorted()} if chunks else {}


class SinkStation(Station):
    """Hand rows to the sink; the one that completes a batch publishes it, and what waited for it."""

    def __init__(self, node: Node, around: Surroundings) -> None:
        super().__init__(node, around)
        self.latencies = Latencies()

    def _take_group(self, header: Header, group: Group) -> Outputs[Batch]:
        meter = self.meters.mine()
        meter.batches += 1
        meter.rows_in += 0 if group[0] is None else len(group[0])
        self.latencies.add(self._around.clock() - header.entered)
        complete = header.finish(self.name, group[0])
        if complete is not EMPTY:
            offer(self._around.published, header.number, (header, complete))
            for taken in self._around.published.drain():
                self._around.publish(taken)
        yield from ()


class StatelessStation(Station):
    """Let any number of workers in: each takes a batch, and the reorder buffer restores the order."""

    permits = None

    def __init__(self, node: Node, around: Surroundings) -> None:
        super().__init__(node, around)
        self._width = around.plan.layout.shapes[node.name].width
        # Enough slots that no worker is ever refused.
        self._reorder: Reorder[tuple[Header, Rows]] = ReorderBuffer(around.primitives, around.slots, first=around.first)

    def _take_group(self, header: Header, group: Group) -> Outputs[Batch]:
        offer(self._reorder, header.number, (header, self._measured(header, group, self.run)))
        for ready, made in self._reorder.drain():
            yield from self.leave(ready, made)

    def run(self, header: Header, group: Group, failures: Failures) -> Rows:
        """Take the rows through the operator."""
        chunk = group[0]
        return {} if chunk is None else run_stateless(self.node, chunk.widened(self._width), failures)

    def progress(self) -> tuple[int, int]:
        """Return the oldest batch that has not left and how many later ones wait for it."""
        return self._reorder.progress()  # type: ignore[attr-defined, no-any-return]


class _Partitions:
    """The shards of some partitions, as a keyed runner asks for them."""

    def __init__(self, shards: dict[int, Shard]) -> None:
        self._shards = shards

    def get(self, shard: int) -> Shard:
        return self._shards[shard]

    def due(self, mark: int) -> list[int]:
        return [n for n, shard in self._shards.items() if shard.timers and shard.timers[0][0] <= mark]


class StatefulStation(Station):
    """Run a keyed operator as a whole, one batch after the other."""

    def __init__(self, node: Node, around: Surroundings) -> None:
        super().__init__(node, around)
        operator = node.operator
        assert isinstance(operator, Keyed)
        self._operator = operator
        # Without timers all partitions share one dict: they have no key in common, and no need to be told apart.
        self._one_dict = operator.logic.emits != "timed"
        states: dict[Any, Any] = {}
        self._shards = {
            number: Shard(states if self._one_dict else {}, all_touched=True)  # nobody asks what has changed
            for number in range(self._count())
        }
        self._all = _Partitions(self._shards)
        self._each = {number: _Partitions({number: shard}) for number, shard in self._shards.items()}
        self._shape = around.plan.layout.shapes[node.name]
        self._marked = takes_marks(node)

    def _count(self) -> int:
        return 1

    def run(self, header: Header, group: Group, failures: Failures) -> Rows:
        """Run the operator over the rows of all ports and the marks among them."""
        parts = [(port, chunk, self._shards_of(port, chunk)) for port, chunk in enumerate(group) if chunk is not None]
        return self._run_on(self._all, header, parts, self._marks(header), failures)

    def _shards_of(self, port: int, chunk: Chunk) -> Ints:
        """Return the partition of each row, as far as it matters where one worker has them all."""
        if self._one_dict or len(self._shards) == 1:
            return np.zeros(len(chunk), np.int64)
        assert self._operator.keys is not None
        return key_shards(self._operator.keys[port], chunk, len(self._shards))

    def _marks(self, header: Header) -> Steps:
        if self._marked and header.steps:
            return arrival(self._shape.marks, dict(header.steps), dict(header.marks), self._shape.width)
        return Steps([np.empty(0, np.int64)] * self._shape.width, np.empty(0, np.int64))

    def _run_on(
        self, shards: _Partitions, header: Header, parts: list[PartRows], marks: Steps, failures: Failures
    ) -> Rows:
        water = watermark(self._shape.marks, dict(header.marks))
        return KeyedRunner(self.node, self._shape.width, header.number, shards, failures).run(parts, marks, water)


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one partition in one batch."""

    header: Header
    parts: list[PartRows]
    marks: Steps
    number: int
    whole: SplitBatch[Rows, Rows]


class PartitionedStation(StatefulStation):
    """Run the partitions of a keyed operator side by side.

    One worker at a time cuts batches in parts; any worker takes a part from the hybrid queue, which keeps each
    partition in order and with one worker. The last part of a batch brings it to the reorder buffer.
    """

    def __init__(
        self,
        node: Node,
        around: Surroundings,
        queue: Callable[[Primitives, int], ShardQueue[_Part]] = HybridQueue,
    ) -> None:
        super().__init__(node, around)
        count = len(self._shards)
        self._queue = queue(around.primitives, count)
        self._reorder: ReorderBuffer[tuple[Header, Rows]] = ReorderBuffer(
            around.primitives, around.slots, first=around.first
        )
        self._work_gate: OperatorGate[Batch] = OperatorGate(around.primitives, f"{node.name}.parts", count)
        self.work = _WorkPort(around.primitives, self, self._work_gate, around.in_flight * count)

    def _count(self) -> int:
        return self._around.partitions

    def take(self, port: int, batch: Batch) -> Outputs[Batch]:
        """Cut a batch in parts, or, for a token, work on parts."""
        return self._work() if port < 0 else super().take(port, batch)

    def _take_group(self, header: Header, group: Group) -> Outputs[Batch]:
        if self._around.active() <= 1 and self._reorder.progress()[0] == header.number:
            # Nothing is under way here and there is nobody to share the work with.
            offer(self._reorder, header.number, (header, self._measured(header, group, self.run)))
            yield from self._drain()
            return
        meter = self.meters.mine()
        meter.batches += 1
        meter.rows_in += sum(len(chunk) for chunk in group if chunk is not None)
        marks = self._marks(header)
        cut = self._cut(group, every=len(marks) > 0)
        if not cut:
            offer(self._reorder, header.number, (header, {}))
            yield from self._drain()
            return
        whole: SplitBatch[Rows, Rows] = SplitBatch(self._around.primitives, len(cut), self._merged)
        for number, (partition, parts) in enumerate(cut.items()):
            self._queue.put(partition, _Part(header, parts, marks, number, whole))
            yield self.work, Batch(header, None)

    def _cut(self, group: Group, every: bool) -> dict[int, list[PartRows]]:
        """Cut the rows of all ports by partition; with `every`, partitions without rows are there too."""
        count = len(self._shards)
        found: dict[int, list[PartRows]] = {number: [] for number in range(count)} if every else {}
        assert self._operator.keys is not None
        for port, chunk in enumerate(group):
            if chunk is None:
                continue
            shards = key_shards(self._operator.keys[port], chunk, count)
            order = np.argsort(shards, kind="stable")
            ordered = shards[order]
            starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])).tolist()
            for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
                part = chunk.select(order[start:stop])
                found.setdefault(int(ordered[start]), []).append((port, part, ordered[start:stop]))
        return found

    def _work(self) -> Outputs[Batch]:
        until = self._around.clock() + self._around.time_slice
        work = self._queue.work()
        for partition, part in work:
            made = self._measured(part.header, [], partial(self._run_part, partition, part))
            whole = part.whole.finish(part.number, made)
            if whole is not EMPTY:
                offer(self._reorder, part.header.number, (part.header, whole))
                yield from self._drain()
            if self._around.clock() > until:
                work.close()
                break
        if self._queue.waiting() > 0:
            # The tokens of these parts may be used up: what one worker leaves, another one must hear of.
            yield self.work, _TOKEN

    def _run_part(self, partition: int, part: _Part, header: Header, group: Group, failures: Failures) -> Rows:
        return self._run_on(self._each[partition], part.header, part.parts, part.marks, failures)

    def _merged(self, results: Sequence[Rows]) -> Rows:
        ports = {port for result in results for port in result}
        return {port: concat([result[port] for result in results if port in result]).sorted() for port in ports}

    def _drain(self) -> Outputs[Batch]:
        for header, made in self._reorder.drain():
            yield from self.leave(header, made)

    def progress(self) -> tuple[int, int]:
        """Return the oldest batch that has not left and how many later ones wait for it."""
        return self._reorder.progress()


class _WorkPort(InputPort):
    """Where the workers of a partitioned operator are called: a token for each part."""

    def __init__(self, primitives: Primitives, station: Station, gate: OperatorGate[Batch], capacity: int) -> None:
        Port.__init__(self, primitives, f"{station.name}.parts", gate, capacity)
        self.station, self.index = station, -1


_TOKEN: Batch = Batch(None, None)  # type: ignore[arg-type]


def offer(buffer: Reorder[T], number: int, value: T) -> None:
    """Give a reorder buffer a batch, for which it must have room: one that it refused would never be seen again."""
    if not buffer.offer(number, value):
        raise RuntimeError(f"the reorder buffer has no room for batch {number}")


def run_port(port: Port[Batch], batch: Batch) -> Outputs[Batch]:
    """Run the station behind a port: what a scheduler does with a batch."""
    assert isinstance(port, InputPort)
    return port.station.take(port.index, batch)
