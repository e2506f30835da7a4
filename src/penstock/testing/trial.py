"""One run of a flow in a processing element, cut, stopped and begun again as a test says."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.connectors.reader import Slice, Split
from penstock.connectors.sequence import InputSequence
from penstock.errors import PenstockError
from penstock.order.primitives import TryLock
from penstock.order.threads import RealThreads
from penstock.plan.plan import Plan
from penstock.rows.chunk import Chunk
from penstock.rows.records import Row
from penstock.threads.batch import Header
from penstock.threads.element import Element
from penstock.threads.ingress import Cut, Cutter
from penstock.threads.settings import Settings
from penstock.threads.stateful_station import StatefulStation


class Refusing(RealThreads):
    """Primitives for real threads, with port queues that take only every other batch that is pushed.

    A push that does not get the producer's lock is refused just as one that finds the queue full; whoever pushes must
    keep the batch, make room below, and come again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def try_lock(self, name: str, permits: int | None = 1) -> TryLock:
        """Make a try-lock; a producer's is the moody one."""
        lock = super().try_lock(name, permits)
        return _EveryOther(lock, self) if name.endswith(".producer") else lock

    def pause(self, seconds: float) -> None:
        """Let other threads run, without waiting: the next push is taken."""
        super().pause(0)


class _EveryOther:
    def __init__(self, lock: TryLock, owner: Refusing) -> None:
        self._lock, self._owner, self._asked = lock, owner, 0

    def try_acquire(self) -> bool:
        self._asked += 1
        if self._asked % 2:
            self._owner.refused += 1
            return False
        return self._lock.try_acquire()

    def release(self) -> None:
        self._lock.release()


InputRows = list[tuple[str, Row]]
"""The input of a flow: the rows of all sources in one order, each with its source."""
Saved = dict[str, bytes]
"""The state of each operator that has some, pickled."""
ALONE = Settings(model="manual", capacity=1)


@dataclass
class Outcome:
    """What came out, by sink, and the error that ended it."""

    rows: dict[str, list[Row]]
    error: PenstockError | None = None


def input_sequence(plan: Plan) -> InputRows:
    """Return the input as the reference engine takes it: by `order_by` where there is one, else in turn."""
    written = _Written()
    sequence = InputSequence(plan, written)
    for node in plan.sources:
        source = node.operator
        for row in source.reader.items:
            sequence.give(node.name, row if node.types[0] is None else node.types[0].roundtrip(row))
        sequence.end(node.name)
    sequence.run()
    return written.rows


class _Written:
    """Writes the sequence down; ends are the test's to place."""

    def __init__(self) -> None:
        self.rows: InputRows = []

    def row(self, source: str, row: Row, part: int = 0) -> None:
        self.rows.append((source, row))

    late = row

    def wake(self, source: str, part: int) -> None:
        pass

    def end(self, source: str) -> None:
        pass


@dataclass
class Trial:
    """Feed a plan parts of its input, one after the other, through one element after the other."""

    plan: Plan
    settings: Settings = ALONE
    primitives: Refusing = field(default_factory=Refusing)
    results: dict[str, list[Row]] = field(default_factory=dict)
    _number: int = 0
    _element: Element | None = None

    def __post_init__(self) -> None:
        self.results = {node.name: [] for node in self.plan.sinks}
        self._cutter = Cutter(self.plan, batch_rows=1 << 40)
        self._cutter.time_of_day = lambda: 0.0  # rows arrive when they do for the reference engine
        self._taken = {node.name: 0 for node in self.plan.sources}
        self._published: dict[str, list[Row]] = {}
        self.begin({})

    def parts(self, sequence: InputRows) -> list[Cut]:
        rows: dict[str, list[Row]] = {}
        for name, row in sequence:
            rows.setdefault(name, []).append(row)
        slices = {}
        for name, some in rows.items():
            start = self._taken[name]
            self._taken[name] += len(some)
            split = Split(0, start, start + len(some), payload=pickle.dumps(some, pickle.HIGHEST_PROTOCOL))
            slices[name] = Slice((split,), {}, {}, len(some))
        return list(self._cutter.taken(slices))

    def ends(self, *names: str) -> Cut:
        """Make the batch that ends some sources; all if none is named."""
        return self._cutter.ends(list(names) or [node.name for node in self.plan.sources])

    def begin(self, saved: Saved, plan: Plan | None = None) -> None:
        """Go on in another element, of the same plan or a copy, with the state that was saved."""
        self.close()
        self.plan = plan or self.plan
        self._element = Element(self.plan, self._publish, self.settings, primitives=self.primitives, first=self._number)
        for name, data in saved.items():
            station = self._element.stations[name]
            assert isinstance(station, StatefulStation)
            station.restore(pickle.loads(data))
        self._element.start()

    def save(self) -> Saved:
        """Pickle all state, as a checkpoint does."""
        assert self._element is not None
        saved = {}
        for name, station in self._element.stations.items():
            if isinstance(station, StatefulStation):
                kept = {key: state for key, state in station.states().items() if state is not None}
                try:
                    saved[name] = pickle.dumps(kept, pickle.HIGHEST_PROTOCOL)
                except Exception as error:
                    raise AssertionError(
                        f"operator {name!r}: its state cannot be saved: {error}; keep plain values (numbers, text, "
                        f"tuples, lists, dicts, dataclasses of an importable module) in state"
                    ) from None
        return saved

    def run(self, batches: Sequence[Cut], *, count: bool = True) -> None:
        """Take batches through the element; with `count=False` as if they had never been."""
        assert self._element is not None
        self._published = {name: [] for name in self.results}
        for cut in batches:
            if not self._element.submit(cut.rows, cut.marks, cut.steps):
                break
        self._element.drain()
        if count:
            self._number += len(batches)
            for name, rows in self._published.items():
                self.results[name] += rows
            if self._element.error is not None:
                raise self._element.error

    def close(self) -> None:
        if self._element is not None:
            self._element.close()

    def _publish(self, header: Header, chunks: list[Chunk | None]) -> None:
        for name, chunk in zip(header.sinks, chunks, strict=True):
            if chunk is not None:
                self._published[name] += chunk.get_rows()


def cuts(length: int, most: int, random: Any) -> Iterator[tuple[int, ...]]:
    """Give the sizes of consecutive parts: every way to cut so many rows, or `most` of them, the extremes first."""
    if length == 0:
        yield ()
        return
    if 1 << (length - 1) <= most:
        masks: Iterator[int] = iter(range(1 << (length - 1)))
    else:
        everywhere = (1 << (length - 1)) - 1
        masks = iter([0, everywhere, *(random.getrandbits(length - 1) for _ in range(most - 2))])
    for mask in masks:
        edges = [0, *(at + 1 for at in range(length - 1) if mask >> at & 1), length]
        yield tuple(stop - start for start, stop in itertools.pairwise(edges))
