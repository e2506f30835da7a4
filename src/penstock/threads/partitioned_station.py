"""Partitioned operators at work: a batch is cut in parts by key, and several workers have parts at once.

Who gets which part is for the workers to share, by one of Ordered's queues (the hybrid one, unless told otherwise), or
goes by a table from partition to replica: replicas of a partitioned operator, which C-Stream names and leaves undone,
and Elasticutor's elastic executor are the same thing here. A partition, with its state, goes from one replica to
another behind a label, while all others run on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from threading import get_ident, local
from typing import Any, Final, Literal, TypeAlias

from penstock.clock import perf_counter, thread_time
from penstock.errors import FlowError
from penstock.flow.building import check_count, refuse_replicas, replicas_hint
from penstock.kernels.failures import Failures, note_fit
from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import key_shards
from penstock.kernels.shards import Shard, settle
from penstock.order.executor import ElasticExecutor, spread
from penstock.order.parts import SplitBatch, split_by_shard
from penstock.order.primitives import EMPTY, Primitives
from penstock.order.queues import HybridQueue, PartitionedQueue, ShardQueue, SharedQueue, Visitor
from penstock.plan.graph import KeyedNode
from penstock.plan.plan import Plan
from penstock.rows.chunk import concat
from penstock.threads.batch import CALL, URGENT, Batch, Header
from penstock.threads.ports import Output, Outputs
from penstock.threads.replicas import Replica, Squad
from penstock.threads.stateful_station import PartRows, StatefulStation
from penstock.threads.stations import (
    INNER,
    Group,
    InnerPort,
    InputPort,
    Rows,
    Station,
    Surroundings,
)


@dataclass(frozen=True, slots=True)
class BatchPart:
    """The rows of one partition in one batch."""

    header: Header
    parts: list[PartRows]
    marks: Steps
    number: int
    whole: SplitBatch[Rows, Rows]

    def __len__(self) -> int:
        return sum(len(chunk) for _, chunk, _ in self.parts)

    def waiting(self) -> Sequence[tuple[int, int]]:
        """Return the rows of each input port; a part that has only marks waits as one without rows."""
        return [(port, len(chunk)) for port, chunk, _ in self.parts] or [(0, 0)]


class _Handover(Enum):
    HANDOVER = "HANDOVER"


HANDOVER: Final = _Handover.HANDOVER
"""What comes behind the last part of a partition that the workers have: the replicas have it from there on."""
Work: TypeAlias = BatchPart | Literal[_Handover.HANDOVER]
Queue = Callable[[Primitives, int], ShardQueue[Work]]
QUEUES: dict[str, Queue] = {"hybrid": HybridQueue, "partitioned": PartitionedQueue, "shared": SharedQueue}


class PartitionedStation(StatefulStation):
    """Run the partitions of a keyed operator side by side.

    One worker at a time cuts batches in parts; the queue, or the table of replicas, keeps each partition in order and
    with one worker. The last part of a batch brings it to the reorder buffer.
    """

    def __init__(self, node: KeyedNode, around: Surroundings, queue: Queue = HybridQueue, whole: bool = False) -> None:
        """With `whole`, batches are not cut as long as there are no replicas: nobody else would come for the parts."""
        super().__init__(node, around)
        count = self._operator.most_shards(around.partitions)
        self._count, self._whole = count, whole
        if not whole:
            self.part_state()
        self._queue, self._visitors = queue(around.primitives, count), local()
        self._reorder = self._make_reorder()
        self.counts.permits = 1 if whole else count
        self.work = InnerPort(self, "parts", count)
        self.squad: ShardSquad = ShardSquad(self, count)

    def part_state(self) -> None:
        """Give each key to its partition, where they were one till now; for whoever is alone with the state."""
        if len(self._shards) > 1:
            return
        self._settle()
        old, find = self._shards[0], partial(self._operator.shard, count=self._count)
        old.take_apart(self._operator.logic)
        shards = self._make_shards(self._count, old.states)
        if not self._one_dict:
            self._spread(old.states, shards)
        for timer in old.timers:
            shards[find(timer[3])].timers.append(timer)
        for shard in shards.values():
            heapq.heapify(shard.timers)
            shard.registered = old.registered
        self._have(shards)

    def _spread(self, states: Mapping[Any, Any], shards: Mapping[int, Shard]) -> None:
        """Give each partition the state of its keys."""
        assert self._operator.keys is not None
        found = self._operator.keys[0].shards(list(states), self._count).tolist()
        for number, (key, state) in zip(found, states.items(), strict=True):
            shards[number].states[key] = state

    def _separate(self) -> None:
        """Give each partition a dict of its own: workers that run at once would wait for each other to write to one.

        For whoever cuts batches, before the first part: until then nobody else has any of the state.
        """
        if not self._one_dict or self.around.primitives.takes_turns:
            return
        before = self.whole.states
        shards = {
            number: replace(shard, states={}, forgetting=replace(shard.forgetting))
            for number, shard in self._shards.items()
        }
        self._spread(before, shards)
        self._one_dict = False
        self._have(shards)

    def start(self, deliver: Callable[[InputPort, Batch], None]) -> None:
        """Get to know how replicas are called from outside."""
        self.squad.deliver = deliver

    def take(self, port: int, batch: Batch) -> Outputs[Batch]:
        """Cut a batch in parts, or, called to it, work on parts."""
        return self._work() if port == INNER else super().take(port, batch)

    def _take_group(self, header: Header, group: Group) -> Outputs[Batch]:
        replicas = self.squad.has(header.number)
        if replicas and self.squad.takes_over():
            yield from self._hand_over()
        if not replicas and (self._whole or self._is_alone(header)):
            yield from self.leave_in_order(header, self._measured(header, group, self.run))
            return
        wall, cpu = self.around.clock(), thread_time()
        self._separate()
        settle(self._all)
        marks = self._marks(header)
        cut = self._cut(group, every=len(marks) > 0)
        self.counts.add(
            batches=1,
            rows_in=sum(len(chunk) for chunk in group if chunk is not None),
            wall=self.around.clock() - wall,
            cpu=thread_time() - cpu,
        )
        if not cut:
            yield from self.leave_in_order(header, {})
            return
        whole: SplitBatch[Rows, Rows] = SplitBatch(self.around.primitives, len(cut), self._merged)
        found = [(each, BatchPart(header, parts, marks, n, whole)) for n, (each, parts) in enumerate(cut.items())]
        for _, part in found:
            for port, rows in part.waiting():
                self.counts.ports[port].came(header.number, rows, header.entered, inside=True)
        if replicas:
            yield from self.squad.share(found)
            return
        for partition, part in found:
            self._queue.put(partition, part)
            yield self.work, CALL

    def _is_alone(self, header: Header) -> bool:
        """Tell whether nothing is under way here and there is nobody to share the work with."""
        return self.around.active() <= 1 and self.progress()[0] == header.number

    def _hand_over(self) -> Outputs[Batch]:
        """Give the partitions to the replicas, each behind the last part that was not theirs."""
        self.part_state()
        for partition in self._shards:
            if self._whole:
                yield from self.squad.arrived(partition)
            else:
                self._queue.put(partition, HANDOVER)
                yield self.work, CALL

    def _cut(self, group: Group, every: bool) -> dict[int, list[PartRows]]:
        """Cut the rows of all ports by partition; with `every`, partitions without rows are there too."""
        count = len(self._shards)
        found: dict[int, list[PartRows]] = {number: [] for number in range(count)} if every else {}
        assert self._operator.keys is not None
        for port, chunk in enumerate(group):
            if chunk is None:
                continue
            shards = key_shards(self._operator.keys[port], chunk, count)
            if len(shards) and (shards == shards[0]).all():  # such as a row that came alone: nothing is copied
                found.setdefault(int(shards[0]), []).append((port, chunk.slice(0, len(chunk)), shards))
                continue
            split = split_by_shard(shards)
            for (shard, rows), part in zip(split, chunk.split([rows for _, rows in split]), strict=True):
                found.setdefault(shard, []).append((port, part, shards[rows]))
        return found

    def _work(self) -> Outputs[Batch]:
        until = self.around.clock() + self.around.turn
        work = self._queue.work(self._visitor())
        for partition, part in work:
            if part is HANDOVER:
                yield from self.squad.arrived(partition)
                continue
            yield from self.finish(partition, part)
            if self.around.clock() > until:
                work.close()
                if self._queue.waiting() > 0 and self.work.size() == 0:
                    # The calls for these parts are used up: what one worker leaves, another one must hear of. Who
                    # finds no more to do leaves nothing: the rest is with others, who come back for what waits for it.
                    yield self.work, CALL
                return

    def _visitor(self) -> Visitor:
        """Return what the worker that asks is to the queue."""
        found: Visitor | None = getattr(self._visitors, "found", None)
        if found is None:
            found = self._visitors.found = Visitor(get_ident())
        return found

    def finish(self, partition: int, part: BatchPart) -> Outputs[Batch]:
        """Do the work for a part; with the last one of a batch, send on what is next in order."""
        for port, rows in part.waiting():
            self.counts.ports[port].went(part.header.number, rows, inside=True)
        made = self._measured(part.header, [], partial(self._run_part, partition, part))
        whole = part.whole.finish(part.number, made)
        if whole is not EMPTY:
            yield from self.leave_in_order(part.header, whole)

    def _run_part(self, partition: int, part: BatchPart, header: Header, group: Group, failures: Failures) -> Rows:
        made = self._run_on(self._each[partition], part.header, part.parts, part.marks, failures, own=True)
        # Here, not for the whole batch: it is taken on by one worker at a time, which did not make most of its rows.
        for output in {link.output for link in self.links if link.declared is not None} & made.keys():
            note_fit(made[output])
        return made

    def _merged(self, results: Sequence[Rows]) -> Rows:
        ports = {port for result in results for port in result}
        return {port: concat([result[port] for result in results if port in result]).sorted() for port in ports}


class ShardSquad(Squad):
    """The replicas of a partitioned operator: each has some of the partitions, by a table that may change any time."""

    owner: PartitionedStation

    def __init__(self, owner: PartitionedStation, partitions: int) -> None:
        super().__init__(owner, most=partitions)
        self._executor: ElasticExecutor[BatchPart] | None = None
        self._since = 0
        self._taking_over = False
        self.table: tuple[int, ...] = ()
        """The replica that each partition has been given to; it may still be on its way."""
        self.deliver: Callable[[InputPort, Batch], None] = _not_started

    def has(self, number: int) -> bool:
        """Tell whether a batch is for the replicas."""
        return self._executor is not None and number >= self._since

    def takes_over(self) -> bool:
        """Tell, once, that the partitions were others' until now; to the one worker that cuts batches."""
        found, self._taking_over = self._taking_over, False
        return found

    def assign(self, first: int, settled: int) -> None:
        """Give each replica as many partitions as the others."""
        count = len(self.hired)
        if self._executor is None:
            self.table = tuple(number % count for number in range(self.most))
            # Before the first batch of all there is nothing to wait for.
            begun = first > self.owner.around.first
            self._since, self._taking_over = first, begun
            if not begun:
                self.owner.part_state()
            self._executor = ElasticExecutor(self.owner.around.primitives, self.table, len(self.members), begun)
            return
        for partition, replica in spread(self.table, count):
            self.move(partition, replica)

    def recruit(self, count: int) -> list[Replica]:
        """Have so many replicas, and a queue for each."""
        made = super().recruit(count)
        if self._executor is not None:
            while self._executor.workers < len(self.members):
                self._executor.grow()
        return made

    def move(self, partition: int, replica: int) -> None:
        """Give a partition to another replica, behind what the one that has it has still to do for it."""
        assert self._executor is not None
        self.table = (*self.table[:partition], replica, *self.table[partition + 1 :])
        self._executor.reassign(partition, replica)
        for port, call in self._calls(URGENT):
            assert isinstance(port, InputPort)
            self.deliver(port, call)

    def arrived(self, partition: int) -> Iterator[Output[Batch]]:
        """Take a partition over from those who had it before there were replicas."""
        assert self._executor is not None
        self._executor.labelled(partition)
        return self._calls(URGENT)

    def share(self, parts: Sequence[tuple[int, BatchPart]]) -> Iterator[Output[Batch]]:
        """Give parts to the replicas that have their partitions."""
        assert self._executor is not None
        for partition, part in parts:
            self._executor.submit(partition, part)
        return self._calls(CALL)

    def _calls(self, call: Batch) -> Iterator[Output[Batch]]:
        assert self._executor is not None
        for number in self._executor.called():
            yield self.members[number].port, call

    def serve(self, replica: Replica, batch: Batch) -> Outputs[Batch]:
        """Let a replica do what waits for it, for a while; labels among it go back by themselves."""
        executor, around = self._executor, self.owner.around
        assert executor is not None
        until = around.clock() + around.turn
        work = executor.work(replica.index)
        for partition, part in work:
            # A label that has just come out may have given others something to do.
            yield from self._calls(URGENT)
            began = perf_counter()
            outputs = self.owner.finish(partition, part)
            first = next(outputs, None)  # the work is done before anything comes out
            replica.count(len(part), began)
            if first is not None:
                yield first
                yield from outputs
            if around.clock() > until:
                work.close()
                break
        yield from self._calls(URGENT)
        if executor.waiting(replica.index) > 0:
            yield replica.port, URGENT

    def has_left(self, replica: Replica) -> bool:
        """Tell whether a replica that was let go is rid of its partitions."""
        executor = self._executor
        return executor is None or not (executor.owned(replica.index) or executor.waiting(replica.index))


def first_count(station: Station, replicas: int | Mapping[str, int], workers: int) -> int | None:
    """Return how many replicas an operator begins with; None where it has none.

    Who names the operator is heard first, then the flow's own hint, then what is said of all operators.
    """
    node = station.node
    named = replicas.get(node.name) if isinstance(replicas, Mapping) else None
    count = named if named is not None else replicas_hint(node)
    if count is not None:
        refuse_replicas(node)
        check_most(station, check_count(count, f"operator {node.name!r}"))
        return count
    if station.squad is None:
        return None
    most = station.squad.most
    if isinstance(replicas, int):
        return min(check_count(replicas, "replicas"), most)
    executor = isinstance(station, PartitionedStation) and station.around.partitioned == "executor"
    return min(workers, most) if executor else None


def check_replica_names(replicas: int | Mapping[str, int], plan: Plan) -> None:
    """Refuse replicas of operators that there are not."""
    for name in replicas if isinstance(replicas, Mapping) else ():
        if name not in plan.nodes:
            raise FlowError(f"replicas= names {name!r}; there are {', '.join(plan.nodes)}")


def check_most(station: Station, count: int) -> None:
    """Refuse more replicas than can have work."""
    if station.squad is None:
        raise FlowError(f"operator {station.name!r} has a single partition, which replicas cannot share")
    if count > station.squad.most:
        raise FlowError(
            f"operator {station.name!r}: {count} replicas; there may be {station.squad.most}"
            + (", one a partition" if isinstance(station, PartitionedStation) else "")
        )


def _not_started(port: InputPort, batch: Batch) -> None:
    raise RuntimeError("nobody runs the operator yet")
