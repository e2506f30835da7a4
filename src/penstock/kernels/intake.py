"""Rows as they come in: from pieces of sources to chunks with positions, late rows set apart, and marks.

Both engines that run in batches bring their rows in here. Only the reference engine has its own way to the same
sequence, because everything else is held to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.connectors.interfaces import Piece
from penstock.connectors.text import MOST_SHOWN, Unreadable
from penstock.errors import SourceError
from penstock.flow.checks import DEAD_LETTER, DeadLetter
from penstock.kernels.failures import Failure
from penstock.kernels.marks import Steps, joined, lowest, rises
from penstock.kernels.order import Key, climb, order_column, row_times
from penstock.operators.base import Source
from penstock.plan.graph import SourceNode
from penstock.plan.plan import Plan
from penstock.plan.positions import clock_of
from penstock.rows.chunk import Chunk, Ints, sorting_order
from penstock.rows.timing import BEFORE, FOREVER, Ticks
from penstock.sequential import late_row_message

ON_TIME, LATE, UNREADABLE = 0, 1, -1
"""The output ports of a source; what cannot be read leaves on the port for errors, if there is one."""


@dataclass(frozen=True)
class Arrived:
    """Rows of one source, in the order of their positions."""

    rows: Chunk
    late: Chunk | None = None
    """Rows that came against `order_by`, each at the place where it came."""
    parts: Ints | None = None
    """The part of each row that is on time; None where there is one."""
    late_parts: Ints | None = None
    unreadable: Chunk | None = None
    """Dead letters of rows that cannot be read, each in its place."""
    unreadable_parts: Ints | None = None

    def chunks(self) -> Iterator[tuple[int, Chunk, Ints | None]]:
        """Return the rows of each output port that has some, with their parts."""
        if len(self.rows):
            yield ON_TIME, self.rows, self.parts
        if self.late is not None:
            yield LATE, self.late, self.late_parts
        if self.unreadable is not None:
            yield UNREADABLE, self.unreadable, self.unreadable_parts


class SourceIntake:
    """Takes in pieces of one source. Where there is `order_by`, those of a part must come in its order."""

    def __init__(self, plan: Plan, node: SourceNode, floors: Mapping[int, Key] | None = None) -> None:
        """Begin after rows whose highest order_by values, in each part, were `floors`."""
        self.change(plan, node)
        self.now: Ticks = 0
        """When rows arrive, where that is their time."""
        self.tops: dict[int, Key] = dict(floors or {})
        """The highest order_by values of each part so far."""

    def change(self, plan: Plan, node: SourceNode) -> None:
        """Take in what comes from now on for another plan of the same sources."""
        source = node.operator
        self._layout, self._node, self._source = plan.layout, node, source
        self._number = plan.sources.index(node)
        self.timed = node.name in plan.timed
        """Whether something below needs event times."""

    def times(self, piece: Piece) -> Ints | None:
        """Return the event times of rows, where something below needs them."""
        if not self.timed:
            return None
        if self._source.by_arrival:
            return np.full(piece.positions.shape[-1], self.now, np.int64)
        if self._source.time is None:
            return np.zeros(piece.positions.shape[-1], np.int64)
        return row_times(piece, self._source.time)

    def take(self, piece: Piece) -> Arrived:
        """Give rows their positions and times, in order, and set those apart that are late."""
        own = [piece.positions] if piece.positions.ndim == 1 else list(piece.positions)
        order = [order_column(piece, field) for field in self._source.order_by]
        late = np.zeros(0, bool)
        if order and len(own[0]):
            order, late = self._climbed(piece, order)
        positions = [*order, *self._layout.places(self._number, own)]
        chunk = Chunk(positions, self.times(piece), self._node.types[0], piece.columns, piece.rows).of_width(
            self._layout.base
        )
        parts = piece.parts
        unreadable = piece.unreadable if self._source.corrupt is None else _corrupt(piece, self._source.corrupt)
        if unreadable:
            chunk, late, parts, letters, of = self._without_unreadable(unreadable, chunk, late, parts)
            return replace(self._sorted(piece, chunk, late, parts), unreadable=letters, unreadable_parts=of)
        return self._sorted(piece, chunk, late, parts)

    def _without_unreadable(
        self, unreadable: Mapping[int, Unreadable], chunk: Chunk, late: np.ndarray, parts: Ints | None
    ) -> tuple[Chunk, np.ndarray, Ints | None, Chunk | None, Ints | None]:
        """Take out rows that cannot be read: return what is left, and the dead letters with their parts."""
        keep = np.setdiff1d(np.arange(len(chunk)), np.fromiter(unreadable, np.int64))
        told = {number: why for number, why in sorted(unreadable.items()) if why.told}
        index = np.fromiter(told, np.int64)
        letters = [DeadLetter(self._node.name, why.reason, why.where, why.text) for why in told.values()]
        made = Chunk(
            [component[index] for component in chunk.positions],
            None if chunk.times is None else np.zeros(len(index), np.int64),
            DEAD_LETTER,
            None,
            letters,
        )
        return (
            chunk.select(keep),
            late[keep] if len(late) else late,
            None if parts is None else parts[keep],
            made if letters else None,
            None if parts is None else parts[index],
        )

    def _sorted(self, piece: Piece, chunk: Chunk, late: np.ndarray, parts: Ints | None) -> Arrived:
        if self._source.order_by or not piece.in_order:
            sorts = sorting_order(chunk.positions)
            if sorts is not None:
                chunk, parts = chunk.select(sorts), None if parts is None else parts[sorts]
                late = late[sorts] if len(late) else late
        if not late.any():
            return Arrived(chunk, None, parts)
        apart, keep = np.flatnonzero(late), np.flatnonzero(~late)
        if parts is None:
            return Arrived(chunk.select(keep), chunk.select(apart))
        return Arrived(chunk.select(keep), chunk.select(apart), parts[keep], parts[apart])

    def raise_floor(self, part: int, floor: Key) -> None:
        """Have rows of a part late that are below what was taken of others meanwhile."""
        top = self.tops.get(part)
        self.tops[part] = floor if top is None else max(top, floor)

    def _climbed(self, piece: Piece, order: list[Ints]) -> tuple[list[Ints], np.ndarray]:
        """Return the order_by values that rows are placed by, and which rows are late."""
        if piece.parts is None:
            return self._climbed_part(0, order)
        places, late = [np.empty_like(column) for column in order], np.zeros(len(order[0]), bool)
        for part in np.unique(piece.parts).tolist():
            index = np.flatnonzero(piece.parts == part)
            columns, late[index] = self._climbed_part(part, [column[index] for column in order])
            for place, column in zip(places, columns, strict=True):
                place[index] = column
        return places, late

    def _climbed_part(self, part: int, order: list[Ints]) -> tuple[list[Ints], np.ndarray]:
        places, late = climb(order, self.tops.get(part))
        self.tops[part] = tuple(int(column[-1]) for column in places)
        return places, late


def _corrupt(piece: Piece, field: str) -> Mapping[int, Unreadable]:
    """Return the rows in whose place something stood that could not be read, as a field of them tells."""
    assert piece.columns is not None
    texts = piece.columns.column(field)
    unreadable = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)).tolist()
    reason = f"not a record of the schema (it is in {field!r})"
    told = {number: Unreadable("", reason, str(texts[number].as_py())[:MOST_SHOWN]) for number in unreadable}
    return {**told, **piece.unreadable}


def first_late(node: SourceNode, late: Chunk) -> Failure:
    """Return what ends the flow where a source may have no late rows."""
    return Failure(node.name, late.position(0), SourceError(late_row_message(node.name, late.get_rows()[0])))


@dataclass
class SourceMarks:
    """How far event time has come in one source: the lowest of its parts, those left out that are idle."""

    water: Ticks = BEFORE
    """The source's watermark, which never goes back."""
    parts: dict[int, Ticks] = field(default_factory=lambda: {0: BEFORE})
    """The watermark of each part that is known; a source is one part until it says otherwise."""
    idle: frozenset[int] = frozenset()

    @property
    def counting(self) -> dict[int, Ticks]:
        """Return the watermarks of the parts that count."""
        return {part: mark for part, mark in self.parts.items() if part not in self.idle}

    @property
    def is_idle(self) -> bool:
        return bool(self.idle) and not self.counting

    def know(self, parts: Iterable[int]) -> None:
        """Count parts from now on, those that are new as before everything."""
        parts = tuple(parts)
        if parts and self.parts == {0: BEFORE}:
            self.parts = {}  # stood for the only part, as long as nothing else was known
        for part in parts:
            self.parts.setdefault(part, BEFORE)

    def start(self, part: int) -> Ticks:
        """Return what a row's mark must be above to be told of; a part that does not count must be heard of first."""
        return BEFORE if part in self.idle else self.parts.get(part, BEFORE)

    def rise(self, tops: Mapping[int, Ticks]) -> None:
        """Take in the highest marks of parts after an epoch or a batch; a part that has rows counts again."""
        self.idle -= tops.keys()
        for part, top in tops.items():
            self.parts[part] = max(top, self.parts.get(part, BEFORE))
        self.settle()

    def settle(self) -> None:
        """Have the watermark where the parts that count have come to."""
        self.water = max(self.water, min(self.counting.values(), default=self.water))


def source_steps(marks: SourceMarks, steps: Mapping[int, Steps], before: tuple[int, ...]) -> Steps | None:
    """Return how a source's watermark rises, given how those of its parts do."""
    if steps.keys() == marks.parts.keys() == {0} and not marks.idle:
        return steps[0]  # most sources have one part
    start = {part: mark for part, mark in marks.parts.items() if part not in marks.idle or part in steps}
    return lowest(steps, start, marks.water, before)


def follow(
    marks: Mapping[str, SourceMarks], steps: dict[str, Steps], before: Mapping[str, tuple[int, ...]]
) -> dict[str, Steps]:
    """Have sources that are idle go along with the slowest of the others, so that they hold no other back.

    Their rows that are behind by then are late.
    """
    idle = [name for name, each in marks.items() if each.is_idle and name not in steps and each.water < FOREVER]
    if not idle:
        return steps
    others = {name: each.water for name, each in marks.items() if name not in idle}
    following = dict(steps)
    for name in idle:
        going = {other: rising for other, rising in steps.items() if other not in idle}
        rising = lowest(going, others, marks[name].water, before[name])
        # The end of others is not its own.
        keep = None if rising is None else np.flatnonzero(rising.values < FOREVER)
        if rising is not None and keep is not None and len(keep):
            following[name] = Steps([component[keep] for component in rising.positions], rising.values[keep])
    return following


def raise_idle(marks: Mapping[str, SourceMarks], ends: Mapping[str, tuple[int, ...]]) -> None:
    """Raise the watermarks of idle sources as `follow` does, after an epoch in which some sources end."""
    others = {name: each.water for name, each in marks.items() if not each.is_idle and each.water < FOREVER}
    going = {name: water for name, water in others.items() if name not in ends}
    if not going and others:  # they went along with the last one until that ended
        last = max(others, key=lambda name: ends[name])
        going = {last: others[last]}
    for each in marks.values():
        if each.is_idle and each.water < FOREVER and going:
            each.water = max(each.water, min(going.values()))


def part_marks(
    source: Source, rows: Chunk, parts: Ints | None, start: Mapping[int, Ticks]
) -> Iterator[tuple[int, Ints, Ints, Ticks]]:
    """Return, for each part with rows: (part, the rows that raise its watermark, all rows' marks, the highest).

    `start` has the watermark of each part before the rows. Numbers of rows are those in the chunk.
    """
    if rows.times is None or source.time is None or not len(rows):
        return
    marks = rows.times - source.slack
    if parts is None:
        yield 0, rises(marks, start.get(0, BEFORE)), marks, int(marks.max())
        return
    for part in np.unique(parts).tolist():
        index = np.flatnonzero(parts == part)
        mine = marks[index]
        yield part, index[rises(mine, start.get(part, BEFORE))], marks, int(mine.max())


def steps_at(rows: Chunk, index: Ints, marks: Ints) -> Steps:
    """Return marks at some rows of a chunk: each stands just before its row."""
    if len(index) == len(rows):  # each row raises it
        return Steps([*rows.positions[:-1], rows.positions[-1] - 1], marks)
    positions = [component[index] for component in rows.positions]
    positions[-1] = positions[-1] - 1
    return Steps(positions, marks[index])


def one_step(position: tuple[int, ...], mark: Ticks = FOREVER) -> Steps:
    """Return one mark, by default that at the end of a source."""
    return Steps([np.array([component], np.int64) for component in position], np.array([mark], np.int64))


def clock_marks(plan: Plan, marks: Mapping[str, SourceMarks], reached: Ticks) -> dict[str, Ticks]:
    """Return how far the time of day has come where sources begin; one that has ended holds no other back."""
    return {clock_of(node.name): FOREVER if marks[node.name].water == FOREVER else reached for node in plan.clocked}


def clock_steps(
    plan: Plan, now: Ticks, marks: Mapping[str, Ticks], ends: Mapping[str, tuple[int, ...]]
) -> dict[str, Steps]:
    """Return how the time of day goes on in an epoch or a batch: to one moment before all of it, and after an end.

    `marks` has how far it had come before, as `clock_marks` tells.
    """
    steps = {}
    for node in plan.clocked:
        clock = clock_of(node.name)
        found = [one_step(plan.layout.clock_place(plan.sources.index(node)), now)] if now > marks[clock] else []
        found += [one_step(ends[node.name])] if node.name in ends else []
        together = joined(found)
        if together is not None:
            steps[clock] = together
    return steps


def behind_row(position: tuple[int, ...]) -> tuple[int, ...]:
    """Return the place of a mark that stands just after a row."""
    return (*position[:-1], position[-1] + 1)
