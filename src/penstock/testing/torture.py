"""Treat a flow worse than any engine does, and see that what comes out is what it means.

The flow runs in the processing elements that engines use, its output ports refusing every other push, and is held to
the reference engine. A correct operator passes whatever is done here; one that keeps something outside of its state,
or looks at where a batch ends, does not.
"""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

from penstock.connectors.interfaces import Slice, Split
from penstock.connectors.sequence import InputSequence, Order, order_of
from penstock.connectors.tables import loaded
from penstock.errors import FlowError, OperatorError, PenstockError
from penstock.order.primitives import TryLock
from penstock.order.threads import RealThreads
from penstock.plan.plan import Plan, make_plan
from penstock.rows.chunk import Chunk
from penstock.rows.records import Row
from penstock.sequential import SequentialEngine
from penstock.testing.kit import Rows, SourceOptions, Tested, assert_same, flow_under_test, one_or_all
from penstock.threads.batch import Header
from penstock.threads.element import Element
from penstock.threads.ingress import Cut, Cutter
from penstock.threads.settings import Settings
from penstock.threads.stateful_station import StatefulStation


class Refusing(RealThreads):
    """Primitives for real threads, with port queues that take only every other batch that is pushed.

    A push that does not get the producer's lock is refused just as one that finds the queue full; the pusher must
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


CROWD = Settings(workers=4, partitions=3, capacity=1, quantum=0.0)
CUTS = (
    "no result may depend on where a stream is cut in batches: look at rows, not at the batch (in map_batches), and "
    "keep what must be remembered in the operator's state"
)
RESTARTS = (
    "what an operator must remember belongs in its state, and must be the same when it is pickled and read again; what "
    "is kept in variables, attributes or globals is gone after a restart"
)
REPLAYS = (
    "after a crash rows are processed again with the state from before: keep nothing outside of the state, and use "
    "neither the clock nor randomness"
)
CROWDS = (
    "rows of different keys, and of operators without state, are processed side by side: share nothing between them, "
    "and give rows out in an order that does not depend on timing"
)


def torture(
    tested: Tested,
    rows: Rows,
    *,
    most: int = 128,
    seed: int = 0,
    restarts: bool = True,
    **options: Unpack[SourceOptions],
) -> Any:
    """Run a flow, or a stage, in every unkind way; return what comes out, or fail with the first difference.

    - every cut of the input in batches, or `most` of them, drawn by `seed`, where there are more;
    - state saved, and read by a fresh copy of the flow, between any two rows, and between all of them and all ends
      of sources: a co-routine then begins again at each of its waits;
    - each row processed, thrown away and processed again with the state from before, as after a crash;
    - output ports that are full at every other push, in all of these;
    - several workers at once, one row per batch, co-routines put aside wherever they can be.

    With `restarts=False` nothing is saved and read, for flows that never run where it is: co-routines whose frames must
    live on. `rows` and `options` are those of `run_list`. A flow that fails must fail in the same way each time; the
    error is then raised.
    """
    if most < 2:
        raise ValueError(f"most={most}; at least the whole and single rows are tried")
    rack = _Rack(loaded(make_plan(flow_under_test(tested, rows, options))), most, seed)
    rack.cut()
    if restarts:
        rack.restart()
        rack.replay()
    rack.crowd()
    if rack.meant.error is not None:
        raise rack.meant.error
    return one_or_all(rack.meant.rows)


class _Rack:
    """The flow that is tested, and what it means."""

    def __init__(self, plan: Plan, most: int, seed: int) -> None:
        from penstock.spark.ship import pack_plan

        self.sequence = input_sequence(plan)
        # Packed before anything has run, and unpacked for each trial: each begins with what the user wrote.
        self._plan, self._packed = plan, pack_plan(plan, {})
        self._most, self._random = most, random.Random(seed)
        self.meant = reference(self.copy(), self.sequence)

    def copy(self) -> Plan:
        from penstock.spark.ship import unpack_plan

        return loaded(unpack_plan(self._packed).plan, self._plan)

    def cut(self) -> None:
        for sizes in cuts(len(self.sequence), self._most, self._random):

            def run(trial: Trial, sizes: tuple[int, ...] = sizes) -> None:
                start = 0
                for size in sizes:
                    trial.run(trial.parts(self.sequence[start : start + size]))
                    start += size
                trial.run([trial.ends()])

            self.compare(
                Trial(self.copy()), run, f"the input cut in batches of {', '.join(map(str, sizes))} rows", CUTS
            )

    def restart(self) -> None:
        length = len(self.sequence)
        places = range(length + 1)
        if length + 1 > self._most:
            places = sorted(self._random.sample(places, self._most))  # type: ignore[assignment]
        for place in places:

            def run(trial: Trial, place: int = place) -> None:
                trial.run(trial.parts(self.sequence[:place]))
                trial.begin(trial.save(), self.copy())
                trial.run(trial.parts(self.sequence[place:]))
                trial.run([trial.ends()])

            self.compare(Trial(self.copy()), run, f"state saved and read again after row {place}", RESTARTS)

        def everywhere(trial: Trial) -> None:
            for item in self.sequence:
                trial.run(trial.parts([item]))
                trial.begin(trial.save(), self.copy())
            for node in trial.plan.sources:
                trial.run([trial.ends(node.name)])
                trial.begin(trial.save(), self.copy())

        self.compare(
            Trial(self.copy()), everywhere, "state saved and read again after each row and each source", RESTARTS
        )

    def replay(self) -> None:
        def run(trial: Trial) -> None:
            for item in [*self.sequence, None]:
                batches = [trial.ends()] if item is None else trial.parts([item])
                saved = trial.save()
                trial.run(batches, count=False)
                trial.begin(saved)
                trial.run(batches)

        self.compare(
            Trial(self.copy()), run, "each row processed, thrown away and processed again, as after a crash", REPLAYS
        )

    def crowd(self) -> None:
        def run(trial: Trial) -> None:
            batches = [cut for item in self.sequence for cut in trial.parts([item])]
            trial.run([*batches, trial.ends()])

        self.compare(Trial(self.copy(), CROWD), run, f"{CROWD.workers} workers at once, one row per batch", CROWDS)

    def compare(self, trial: Trial, run: Callable[[Trial], None], what: str, hint: str) -> None:
        """Run a trial and hold it to what the flow means."""
        error: PenstockError | None = None
        try:
            run(trial)
        except PenstockError as found:
            error = found
        finally:
            trial.close()
        problem = self._difference(Outcome(trial.results, error))
        if problem is not None:
            raise AssertionError(f"with {what}, something else comes out than row by row.\n{problem}\n{hint}")

    def _difference(self, found: Outcome) -> str | None:
        meant = self.meant
        if _described(found.error) != _described(meant.error):
            return f"  expected {_described(meant.error)}\n  found    {_described(found.error)}"
        rows = meant.rows
        if meant.error is not None:
            # What was published before the error is a prefix of what is meant; how long a one depends on the cut.
            rows = {name: some[: len(found.rows[name])] for name, some in rows.items()}
        try:
            assert_same(rows, found.rows)
        except AssertionError as error:
            return str(error)
        return None


def reference(plan: Plan, sequence: InputRows) -> Outcome:
    """Run the input on the reference engine."""
    engine = SequentialEngine(plan)
    shown: dict[str, Order] = {}
    try:
        for name, row in sequence:
            order = order_of(plan.source(name), row)
            shown[name] = max(order, shown.get(name, order))
            take = engine.row if order == shown[name] else engine.late
            take(name, row)
        for node in plan.sources:
            engine.end(node.name)
    except FlowError:
        raise
    except PenstockError as error:
        return Outcome(engine.results, error)
    return Outcome(engine.results)


def _described(error: PenstockError | None) -> str:
    if error is None:
        return "no error"
    return f"{error.operator!r}: {error.error}; row {error.row}" if isinstance(error, OperatorError) else str(error)
