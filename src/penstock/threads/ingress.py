"""Cut the input of a flow in batches: rows with positions, and the marks that they raise.

What sources give waits here until it is known to be next: where they take turns, until each has its row; where they
have an order, until every other part has shown a larger value. Positions, lateness and marks are those of
`kernels/intake.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.clock import monotonic, time_of_day
from penstock.connectors.interfaces import Piece, Slice, Split, read_split
from penstock.kernels.failures import Failure
from penstock.kernels.intake import (
    LATE,
    UNREADABLE,
    Arrived,
    SourceIntake,
    SourceMarks,
    behind_row,
    clock_marks,
    clock_steps,
    first_late,
    follow,
    one_step,
    part_marks,
    source_steps,
    steps_at,
)
from penstock.kernels.marks import Steps, joined
from penstock.kernels.order import Key, Part, bound, no_time_failure, no_time_letters, untimed, within
from penstock.plan.plan import Plan
from penstock.rows.chunk import concat, sorting_order
from penstock.rows.timing import FOREVER, Ticks
from penstock.threads.sources import Given, SourceStream, count_before
from penstock.threads.stations import Rows


@dataclass
class Cut:
    """One batch of input."""

    rows: dict[str, Rows]
    """The rows of each source by its output port."""
    marks: dict[str, Ticks]
    steps: dict[str, Steps]
    count: int
    late: Failure | None = None
    """A row that came too late, where that ends the flow; nothing at or behind it is in the batch."""
    passed_over: dict[str, int] = field(default_factory=dict)
    """Rows of each source that could not be read or have no event time."""


TICK: Ticks = 100_000
"""How far the time of day goes on until all are told of it, where no rows arrive: a tenth of a second."""


class Cutter:
    """Cut what sources give in batches, keeping their watermarks."""

    def __init__(
        self, plan: Plan, batch_rows: int, *, tell_ends: bool = True, clock: Callable[[], float] = monotonic
    ) -> None:
        """Cut batches of so many rows at most; without `tell_ends` a source that gives no more has not ended."""
        self.plan, self.batch_rows, self._tell_ends, self._clock = plan, batch_rows, tell_ends, clock
        self._marks = {node.name: SourceMarks() for node in plan.sources}
        self._streams = {
            node.name: SourceStream(node, number, SourceIntake(plan, node), turns=plan.layout.sequence == "turns")
            for number, node in enumerate(plan.sources)
        }
        self.most_rows: int | None = None
        """Rows of a batch at most, whatever `batch_rows` says."""
        self._reached: Key | None = None
        """The highest order_by values that were taken: a part that was not known begins there."""
        self.pieces = 1
        """Batches to make of what would be one."""
        self._spoke: dict[tuple[str, int], float] = {}
        """When each part of a source that may be idle was last heard of."""
        self.time_of_day: Callable[[], float] = time_of_day
        """For rows whose time is when they arrive."""
        self._now: Ticks = 0
        """The time of day that was told last."""

    @property
    def size(self) -> int:
        """Rows of the next batch, at most."""
        rows = max(1, self.batch_rows // self.pieces)
        return min(rows, self.most_rows or rows)

    def change(self, plan: Plan) -> None:
        """Cut for another plan of the same sources from now on."""
        self.plan = plan
        for name, stream in self._streams.items():
            stream.node = plan.source(name)
            stream.intake.change(plan, stream.node)
            for key, chunk in stream.held.items():
                rows = None if chunk.rows is None else chunk.get_rows()
                piece = Piece(chunk.positions[0], chunk.columns, rows)
                times = stream.intake.times(piece) if key[1] != UNREADABLE else np.zeros(len(chunk), np.int64)
                stream.held[key] = replace(chunk, times=times if stream.intake.timed else None)

    @property
    def marks(self) -> dict[str, Ticks]:
        """Return the watermark of each source, and how far the time of day has come there."""
        waters = {name: marks.water for name, marks in self._marks.items()}
        return waters | clock_marks(self.plan, self._marks, self._now)

    def wants(self, source: str) -> bool:
        """Tell whether a source is to be asked for rows: not while it has given what could not be taken yet.

        One row may wait just for the answer, because it may be the last. Of several parts, one of which nothing is held
        may be what the others wait for.
        """
        held, parts = self._streams[source].held, self._marks[source].counting
        if len(parts) > 1 and not parts.keys() <= {part for part, _ in held}:
            return True
        return self._streams[source].waiting < 2

    def cut(self, slices: Mapping[str, Slice], ended: Collection[str] = ()) -> Iterator[Cut]:
        """Cut the rows that are next, in order, and the ends of sources that will give no more."""
        for name, given in slices.items():
            stream = self._streams[name]
            stream.reading, stream.dry = itertools.chain(stream.reading, self._arrived(stream, given.splits)), False
            if given.parts:
                new = set(given.parts) - self._marks[name].parts.keys()
                self._marks[name].know(given.parts)
                if self._reached is not None:
                    for part in new:
                        stream.intake.raise_floor(part, self._reached)
        for name in ended:
            self._streams[name].ended = True
        yield from self._rest(slices)
        match self.plan.layout.sequence:
            case "order":
                yield from self._cut_ordered()
            case "turns":
                yield from self._cut_turns()
            case "own":
                yield from self._cut_own(slices)

    def ends(self, sources: Collection[str]) -> Cut:
        """Return the batch that ends sources behind all rows: no rows, and their last marks."""
        ends = {name: self.plan.layout.behind_all(self._streams[name].number) for name in sources}
        return self._made([], ends)

    def taken(self, slices: Mapping[str, Slice]) -> Iterator[Cut]:
        """Cut rows that are known to be next, whatever others will give."""
        given = [
            Given(name, port, chunk, parts)
            for name, some in slices.items()
            for arrived in self._arrived(self._streams[name], some.splits)
            for port, chunk, parts in arrived.chunks()
        ]
        yield from self._cut_merged(given, {})

    def _arrived(self, stream: SourceStream, splits: tuple[Split, ...]) -> Iterator[Arrived]:
        source = stream.node.operator
        waits = self.plan.layout.sequence != "own"
        for split in splits:
            for piece in read_split(source.reader, stream.node.types[0], split, stream.node.name):
                first, length = stream.rows, piece.positions.shape[-1]
                stream.rows += length
                # Counted as they come: then no rows of a text file need to be counted before, and rows that wait
                # are before those of the next slice, whose files are numbered from 0 again.
                counted = waits and piece.parts is None
                numbers = np.arange(first, first + length, dtype=np.int64) if counted else piece.positions
                yield stream.intake.take(replace(piece, positions=numbers))

    # Idle parts -------------------------------------------------------------------------------------------------

    def _rest(self, slices: Mapping[str, Slice]) -> Iterator[Cut]:
        """Leave out parts that have given nothing for as long as their source says, and count those that have."""
        now, changed = self._clock(), False
        for name, stream in self._streams.items():
            source = stream.node.operator
            if source.idle_after is None or stream.ended:
                continue
            marks = self._marks[name]
            speaking = {split.part for split in slices[name].splits} if name in slices else set()
            speaking |= {part for part, _ in stream.held}
            for part in marks.parts:
                if part in speaking:
                    self._spoke[name, part] = now
                self._spoke.setdefault((name, part), now)
            idle = frozenset(p for p in marks.parts if now - self._spoke[name, p] >= source.idle_after)
            if idle != marks.idle:
                changed = changed or bool(idle - marks.idle)
                marks.idle = idle
        if changed or (self.plan.clocked and self._moment() - self._now >= TICK):
            yield self._made([], {})

    def _moment(self) -> Ticks:
        """Return the time of day, which never goes back."""
        return max(self._now, int(self.time_of_day() * 1e6))

    def _arriving(self, given: list[Given]) -> list[Given]:
        """Give rows whose time that is the moment at which they arrive."""
        self._now = self._moment()
        return [
            replace(each, chunk=replace(each.chunk, times=np.full(len(each.chunk), self._now)))
            if each.name in self.plan.by_arrival and each.port != UNREADABLE and each.chunk.times is not None
            else each
            for each in given
        ]

    # Rows in the order in which they come -----------------------------------------------------------------------

    def _cut_own(self, slices: Mapping[str, Slice]) -> Iterator[Cut]:
        for name, stream in self._streams.items():
            if name not in slices:
                continue
            for arrived in stream.reading:
                chunks = list(arrived.chunks())
                if len(chunks) > 1:  # among the others is what could not be read
                    yield from self._cut_merged([Given(name, *each) for each in chunks], {})
                    continue
                for port, chunk, parts in chunks:
                    start = 0
                    while start < len(chunk):
                        stop = min(start + self.size, len(chunk))
                        some = None if parts is None else parts[start:stop]
                        given = [Given(name, port, chunk.slice(start, stop), some)]
                        failure = self._failure(given)
                        if failure is not None:
                            yield from self._cut_failing(given, failure)
                            return
                        yield self._made(given, {})
                        start = stop
            stream.dry = True
        ends = self._new_ends(lambda stream: self.plan.layout.behind_all(stream.number))
        if ends:
            yield self._made([], ends)

    # Rows in turn -----------------------------------------------------------------------------------------------

    def _cut_turns(self) -> Iterator[Cut]:
        """Cut as many rows of each source as all of them have; one that has ended is passed over."""
        while True:
            counts = []
            for stream in self._streams.values():
                stream.fill()
                if stream.holds:
                    counts.append(stream.waiting)
                elif not stream.ended:
                    return  # it is not known whether it has the next row
            ends = self._new_ends(lambda stream: self.plan.layout.place(stream.number, stream.rows))
            if not counts and not ends:
                return
            count = min(counts, default=0)
            place = self.plan.layout.place
            given = [
                each
                for stream in self._streams.values()
                if stream.holds
                for each in stream.take_turns(count, place(stream.number, stream.turned + count))
            ]
            yield from self._cut_merged(given, ends)

    def _new_ends(self, place: Callable[[SourceStream], tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Return where sources end that have, of which no row is left and which were not told yet."""
        ends = {}
        for name, stream in self._streams.items():
            if stream.over and not stream.told and not stream.holds:
                stream.told, ends[name] = True, place(stream)
        return ends if self._tell_ends else {}

    # Rows by order_by -------------------------------------------------------------------------------------------

    def _cut_ordered(self) -> Iterator[Cut]:
        """Cut what is next by order_by: each row once all parts that count have come as far."""
        while True:
            for stream in self._streams.values():
                stream.fill()
            tops = {
                (stream.number, part): stream.intake.tops.get(part)
                for name, stream in self._streams.items()
                for part in self._counting(name)
            }
            reached = bound(tops, tops)
            given = [] if reached is None and tops else list(self._within(reached))
            ends = self._new_ends(self._end)
            if given or ends:
                self._raise_floors(given)
                yield from self._cut_merged(given, ends)
            elif not self._read_more(tops, reached):
                return

    def _counting(self, name: str) -> list[int]:
        """Return the parts of a source that others wait for."""
        stream, marks = self._streams[name], self._marks[name]
        if stream.over:
            return []
        return [part for part in marks.parts if part not in marks.idle]

    def _within(self, reached: tuple[Key, Part] | None) -> Iterator[Given]:
        """Take the rows within a bound; all where there is none.

        Of a source that may end with what it has shown, one row stays: its end is just behind its last row.
        """
        order = self.plan.layout.order
        for stream in self._streams.values():
            source = stream.node.operator
            stays = len(self._streams) > 1 and not stream.over and not source.reader.goes_on
            last = max((chunk.position(len(chunk) - 1) for chunk in stream.held.values()), default=())
            for (part, port), chunk in list(stream.held.items()):
                columns = chunk.positions[:order]
                count = len(chunk) if reached is None else within(columns, (stream.number, part), reached)
                if stays and count == len(chunk) and chunk.position(count - 1) == last:
                    count -= 1
                yield from stream.take(part, port, count)

    def _end(self, stream: SourceStream) -> tuple[int, ...]:
        return self.plan.layout.before_all(stream.number) if stream.last is None else behind_row(stream.last)

    def _raise_floors(self, given: list[Given]) -> None:
        """Have idle parts know what was taken without them."""
        order = self.plan.layout.order
        tops = [each.chunk.position(len(each.chunk) - 1)[:order] for each in given]
        self._reached = max([*tops, *([] if self._reached is None else [self._reached])], default=None)
        for name, stream in self._streams.items() if tops else ():
            for part in self._marks[name].idle:
                stream.intake.raise_floor(part, max(tops))

    def _read_more(self, tops: Mapping[Part, Key | None], reached: tuple[Key, Part] | None) -> bool:
        """Read more of the source that holds all others up; False where it has nothing now."""
        slowest = {part[0] for part, top in tops.items() if top is None} or ({reached[1][0]} if reached else set())
        return any(stream.read() for stream in self._streams.values() if stream.number in slowest)

    # Batches ----------------------------------------------------------------------------------------------------

    def _cut_merged(self, given: list[Given], ends: Mapping[str, tuple[int, ...]]) -> Iterator[Cut]:
        """Cut rows of several sources at common positions, and ends where they stand among them."""
        failure = self._failure(given)
        if failure is not None:
            yield from self._cut_failing(given, failure)
            return
        if not given:
            if ends:
                yield self._made([], ends)
            return
        columns = [np.concatenate(parts) for parts in zip(*(each.chunk.positions for each in given), strict=True)]
        order = sorting_order(columns)
        order = np.arange(len(columns[0]), dtype=np.int64) if order is None else order
        places = {name: count_before(columns, position) for name, position in ends.items()}
        starts = np.cumsum([0, *(len(each.chunk) for each in given)])
        start = 0
        while start < len(order):
            stop = min(start + self.size, len(order))
            taken = np.sort(order[start:stop])
            some = []
            for number, each in enumerate(given):
                low, high = np.searchsorted(taken, [starts[number], starts[number + 1]]).tolist()
                if low < high:
                    first = int(taken[low] - starts[number])
                    parts = None if each.parts is None else each.parts[first : first + high - low]
                    some.append(Given(each.name, each.port, each.chunk.slice(first, first + high - low), parts))
            here = {name: ends[name] for name, place in places.items() if start < place <= stop or place == start == 0}
            yield self._made(some, here)
            start = stop

    def _failure(self, given: list[Given]) -> Failure | None:
        """Return the first row that ends the flow: one that is late, or has no event time, where neither may be."""
        failures = []
        for each in given:
            node = self.plan.source(each.name)
            if each.port == LATE and not node.operator.diverts:
                failures.append(first_late(node, each.chunk))
            elif node.operator.on_error == "fail" and len(missing := untimed(node, each.chunk)[1]):
                failures.append(no_time_failure(node, each.chunk, int(missing[0])))
        return min(failures, key=lambda failure: failure.position, default=None)

    def _cut_failing(self, given: list[Given], first: Failure) -> Iterator[Cut]:
        """Cut what is before the row that ends the flow, and say so."""
        before = []
        for each in given:
            count = count_before(each.chunk.positions, first.position)
            if count:
                parts = None if each.parts is None else each.parts[:count]
                before.append(Given(each.name, each.port, each.chunk.slice(0, count), parts))
        yield from self._cut_merged(before, {})
        yield Cut({}, self.marks, {}, 0, first)

    def _usable(self, given: list[Given], rows: dict[str, Rows], passed_over: dict[str, int]) -> Iterator[Given]:
        """Take out rows that could not be read or have no event time; dead letters, if wanted, go to `rows`."""
        for each in given:
            node = self.plan.source(each.name)
            unreadable = each.port == UNREADABLE
            chunk, missing = untimed(node, each.chunk)
            if not unreadable and not len(missing):
                yield each
                continue
            letters = each.chunk if unreadable else no_time_letters(node, each.chunk, missing)
            passed_over[each.name] = passed_over.get(each.name, 0) + (len(each.chunk) if unreadable else len(missing))
            if node.operator.on_error == "dead_letter":
                ports, port = rows.setdefault(each.name, {}), node.operator.outputs.index("errors")
                ports[port] = concat([ports[port], letters]).sorted() if port in ports else letters
            if not unreadable and len(chunk):
                yield Given(each.name, each.port, chunk, None if each.parts is None else np.delete(each.parts, missing))

    def _made(self, given: list[Given], ends: Mapping[str, tuple[int, ...]]) -> Cut:
        """Put the marks to the rows, each just before the row that raises it."""
        before, rows, passed_over = self.marks, dict[str, Rows](), dict[str, int]()
        given = self._arriving(given) if self.plan.clocked else given
        raised: dict[str, dict[int, Steps]] = {}
        tops: dict[str, dict[int, Ticks]] = {}
        for each in self._usable(given, rows, passed_over):
            ports = rows.setdefault(each.name, {})
            ports[each.port] = concat([ports[each.port], each.chunk]).sorted() if each.port in ports else each.chunk
            source, marks = self.plan.source(each.name).operator, self._marks[each.name]
            if each.port == LATE:
                continue
            start = {part: marks.start(part) for part in marks.parts}
            for part, index, values, top in part_marks(source, each.chunk, each.parts, start):
                tops.setdefault(each.name, {})[part] = top
                if len(index):
                    raised.setdefault(each.name, {})[part] = steps_at(each.chunk, index, values)
        steps: dict[str, Steps] = {}
        for name, marks in self._marks.items():
            spoken = {part: raised.get(name, {}).get(part) or _none(self.plan) for part in tops.get(name, {})}
            found = source_steps(marks, spoken, self.plan.layout.before_all(self._streams[name].number))
            if found is not None and len(found):
                steps[name] = found
        firsts = {name: self.plan.layout.before_all(stream.number) for name, stream in self._streams.items()}
        steps = follow(self._marks, steps, firsts)
        for name, marks in self._marks.items():
            marks.rise(tops.get(name, {}))
            if name in steps:
                marks.water = max(marks.water, int(steps[name].values[-1]))
        for name, position in ends.items():
            found = joined([*([steps[name]] if name in steps else []), one_step(position)])
            assert found is not None
            steps[name], self._marks[name].water = found, FOREVER
        steps |= clock_steps(self.plan, self._now, before, ends)
        return Cut(rows, before, steps, sum(len(each.chunk) for each in given), passed_over=passed_over)


def _none(plan: Plan) -> Steps:
    return Steps([np.empty(0, np.int64)] * plan.layout.base, np.empty(0, np.int64))
