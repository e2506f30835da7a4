"""Keep the bounded queues before the operators: what waits, what is on its way, who waits for room."""

from collections import deque

from penstock.lab.sim.events import Events
from penstock.lab.sim.graphs import Graph
from penstock.statistics import OperatorStats
from penstock.threads.policies import MeasuredFlow


class Batch:
    """Carry so many rows, the number of the source's batch that they come from, and when that was made."""

    __slots__ = ("born", "number", "rows", "targets")

    def __init__(self, rows: float, number: int, born: float) -> None:
        self.rows = rows
        self.number = number
        self.born = born
        self.targets: tuple[int, ...] = ()


class Ports:
    """Hold one queue for each operator, of the same capacity in batches.

    Room is kept for a batch when the claim begins that will produce it, so that a push never fails. A port
    with a lock keeps none: those who push to it come when they are done and wait there, spinning, as Streams'
    workers do.
    """

    def __init__(self, graph: Graph, capacity: int, events: Events, seen: bool = True) -> None:
        """Begin with empty queues; with `seen`, what waits in them is counted as the engine counts it, for policies."""
        self._seen, self._graph = seen, graph
        count = len(graph.operators)
        self.measured = MeasuredFlow(lambda: events.now)
        for i, operator in enumerate(graph.operators):
            self.measured.add(
                str(i),
                inputs=int(not operator.source),
                capacity=capacity,
                permits=operator.permits,
                is_source=operator.source,
            )
        self.operators = list(self.measured.operators.values())
        """What was measured of each operator."""
        for counts, operator in zip(self.operators, graph.operators, strict=True):
            counts.connect(self.operators[to].ports[0] for to in operator.outputs)
        self._kinds = ["stateful" if operator.permits == 1 else "stateless" for operator in graph.operators]
        self._locked = [operator.locked for operator in graph.operators]
        self._capacity, self._events = capacity, events
        self.queues: list[deque[Batch]] = [deque() for _ in range(count)]
        self.arrived = [0.0] * count
        self._reserved = [0] * count
        self._blocked: list[deque[int]] = [deque() for _ in range(count)]
        self.is_blocked = [False] * count
        self._full_time = [0.0] * count
        self._full_since: list[float | None] = [None] * count

    def room(self, port: int) -> int:
        room = self._capacity - len(self.queues[port])
        return room if self._locked[port] else room - self._reserved[port]

    def reserve(self, port: int) -> None:
        """Keep room for one batch that will come."""
        self._reserved[port] += 1

    def put(self, port: int, batch: Batch) -> None:
        """Add a batch for which room was kept."""
        self._reserved[port] -= 1
        self.arrived[port] += batch.rows
        if self._seen:
            self.operators[port].ports[0].came(batch.number, batch.rows, batch.born)
        self.queues[port].append(batch)
        self._note_full(port)

    def take(self, port: int, count: int) -> list[Batch]:
        queue = self.queues[port]
        batches = [queue.popleft() for _ in range(count)]
        for batch in batches if self._seen else ():
            self.operators[port].ports[0].went(batch.number, batch.rows)
        self._note_full(port)
        return batches

    def block(self, operator: int, on: int) -> None:
        """Have an operator wait for room in a queue."""
        self.is_blocked[operator] = True
        self._blocked[on].append(operator)
        self._note_full(on)

    def unblock(self, port: int) -> list[int]:
        """Return those that may go on now, in the order in which they came, as many as there is room for."""
        blocked = self._blocked[port]
        freed = [blocked.popleft() for _ in range(min(len(blocked), max(1, self.room(port))))]
        for operator in freed:
            self.is_blocked[operator] = False
        self._note_full(port)
        return freed

    def full_seconds(self, port: int) -> float:
        """Return how long a queue has been full so far."""
        since = self._full_since[port]
        return self._full_time[port] + (self._events.now - since if since is not None else 0.0)

    def statistics(self) -> dict[str, OperatorStats]:
        """Tell what each operator has done, and what waits for it."""
        return {
            counts.name: OperatorStats(
                totals.batches,
                totals.rows_in,
                totals.rows_out,
                totals.wall,
                totals.rows_in * operator.cost,
                name=counts.name,
                kind=kind,
                came=self.arrived[i],
                full=() if counts.is_source else (self.full_seconds(i),),
                queued=() if counts.is_source else (len(self.queues[i]),),
                rows_queued=sum(batch.rows for batch in self.queues[i]),
                permits=counts.permits,
                begun=totals.rows_in,
                in_flight=totals.rows_in * (operator.cost + operator.wait),
            )
            for i, (counts, operator, kind) in enumerate(
                zip(self.operators, self._graph.operators, self._kinds, strict=True)
            )
            for totals in (counts.totals(),)
        }

    def _note_full(self, port: int) -> None:
        since = self._full_since[port]
        # Room that is only kept does not count until somebody waits for it, who is write-blocked as by a full queue.
        if len(self.queues[port]) >= self._capacity or self._blocked[port]:
            if since is None:
                self._full_since[port] = self._events.now
        elif since is not None:
            self._full_time[port] += self._events.now - since
            self._full_since[port] = None
