"""The input sequence, in plain code: what docs/guarantees.md says of the order of several sources, row by row.

Only the reference engine and the test kit are fed by this. It shares nothing with the intake of the other engines,
because they are held to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.connectors.interfaces import Slice, read_split
from penstock.connectors.text import Unreadable
from penstock.plan.graph import SourceNode
from penstock.plan.plan import Plan
from penstock.rows.keys import order_place
from penstock.rows.records import Row, any_getter

Order = tuple[Any, ...]


class TakesRows(Protocol):
    """What takes the sequence: the reference engine, or something that writes it down."""

    def row(self, source: str, row: Row, part: int = 0) -> None:
        """Take a row."""

    def wake(self, source: str, part: int) -> None:
        """Take that a part of a source which was idle gives rows again."""

    def late(self, source: str, row: Row) -> None:
        """Take a row that came against `order_by`."""

    def end(self, source: str) -> None:
        """Take the end of a source."""


@dataclass
class _Waiting:
    """The rows of one part of a source that are not taken yet."""

    rows: deque[tuple[Order, bool, Row]] = field(default_factory=deque)
    """Each with the order that it is taken by, and whether it is late."""
    shown: Order | None = None
    """The highest order_by values of the part."""


class InputSequence:
    """Puts the rows that sources give in one sequence, and hands them on as soon as it is known which is next."""

    def __init__(self, plan: Plan, taker: TakesRows) -> None:
        self._plan, self._taker = plan, taker
        self._sources = {node.name: node for node in plan.sources}
        self._numbers = {node.name: number for number, node in enumerate(plan.sources)}
        self._waiting: dict[tuple[int, int], _Waiting] = {(number, 0): _Waiting() for number in self._numbers.values()}
        self._ended: list[str] = []
        self._told: set[str] = set()
        self._idle: set[tuple[int, int]] = set()
        self._turn = 0
        self._reached: Order | None = None
        """The order_by values of the last row that was handed on: a part that was not known begins there."""

    def know(self, source: str, parts: Iterable[int]) -> None:
        """Name parts of a source; what is below rows that were taken without one is late."""
        number = self._numbers[source]
        parts = list(parts)
        if parts and 0 not in parts and (number, 0) in self._waiting and not self._waiting[number, 0].rows:
            del self._waiting[number, 0]
        for part in parts:
            self._waiting.setdefault((number, part), _Waiting(shown=self._reached))

    def give(self, source: str, row: Row, part: int = 0) -> None:
        key = (self._numbers[source], part)
        if key in self._idle:
            self._idle.remove(key)
            self._taker.wake(source, part)
        waiting = self._waiting.setdefault(key, _Waiting(shown=self._reached))
        order = order_of(self._sources[source], row)
        # What cannot be read has no order: it is taken after the row before it.
        late = waiting.shown is not None and order < waiting.shown and not isinstance(row, Unreadable)
        waiting.shown = order if waiting.shown is None else max(order, waiting.shown)
        waiting.rows.append((waiting.shown, late, row))

    def give_all(self, slices: Mapping[str, Slice]) -> None:
        for name, node in self._sources.items():
            if name in slices:
                for part, row in slice_rows(node, slices[name]):
                    self.give(name, row, part)

    def end(self, source: str) -> None:
        """Take that a source will give no more."""
        self._ended.append(source)

    def idle(self, source: str, parts: Iterable[int]) -> None:
        """Wait for these parts of a source no longer; they are waited for again once they give a row."""
        self._idle |= {(self._numbers[source], part) for part in parts}

    def run(self) -> None:
        """Hand on what is known to be next."""
        match self._plan.layout.sequence:
            case "order":
                while self._take_by_order():
                    pass
            case "turns":
                while len(self._told) < len(self._sources) and self._take_turn():
                    pass
            case "own":
                for number, name in enumerate(self._sources):
                    for part in sorted(part for of, part in self._waiting if of == number):
                        while self._waiting[number, part].rows:
                            self._hand_on(name, part)
                for name in sorted(self._ended, key=lambda name: self._numbers[name]):
                    self._tell(name)

    def _take_turn(self) -> bool:
        """Take the next row of the source whose turn it is; False where it is not known whether it has one."""
        name = list(self._sources)[self._turn]
        if self._waiting[self._turn, 0].rows:
            self._hand_on(name, 0)
        elif name in self._ended:
            self._tell(name)
        else:
            return False
        self._turn = (self._turn + 1) % len(self._sources)
        return True

    def _take_by_order(self) -> bool:
        """Take the row that is first by order_by, then by source, then by part, if all others have come as far."""
        for name in self._ended:
            if name not in self._told and not self._left(name):
                self._tell(name)
                return True
        heads = [(waiting.rows[0][0], key) for key, waiting in self._waiting.items() if waiting.rows]
        if not heads:
            return False
        order, key = min(heads)
        names = list(self._sources)
        for other, waiting in self._waiting.items():
            if other == key or other in self._idle or names[other[0]] in self._ended:
                continue
            if waiting.shown is None or (waiting.shown, other) < (order, key):
                return False
        name = names[key[0]]
        source = self._sources[name].operator
        several = len(self._sources) > 1
        if several and self._left(name) == 1 and name not in self._ended and not source.reader.goes_on:
            return False  # if it is its last, the end of the source is next
        self._hand_on(name, key[1])
        self._reached = order
        for idle in self._idle:
            shown = self._waiting[idle].shown
            self._waiting[idle].shown = order if shown is None else max(shown, order)
        return True

    def _left(self, name: str) -> int:
        number = self._numbers[name]
        return sum(len(waiting.rows) for (of, _), waiting in self._waiting.items() if of == number)

    def _hand_on(self, name: str, part: int) -> None:
        _, late, row = self._waiting[self._numbers[name], part].rows.popleft()
        if late:
            self._taker.late(name, row)
        else:
            self._taker.row(name, row, part)

    def _tell(self, name: str) -> None:
        if name not in self._told:
            self._told.add(name)
            self._taker.end(name)


def order_of(node: SourceNode, row: Row) -> Order:
    """Return the order_by values of a row, as what stands for them: null is before everything else, NaN after."""
    source = node.operator
    if isinstance(row, Unreadable):
        return tuple(order_place(None) for _ in source.order_by)
    return tuple(order_place(any_getter([name])(row)) for name in source.order_by)


def slice_rows(node: SourceNode, slice_: Slice) -> Iterator[tuple[int, Row]]:
    source = node.operator
    for split in slice_.splits:
        for piece in read_split(source.reader, node.types[0], split, node.name):
            if piece.rows is not None:
                rows = piece.rows
            else:
                assert node.types[0] is not None
                rows = node.types[0].decode(piece.columns)
            for number, row in enumerate(rows):
                yield split.part, piece.unreadable.get(number, row)
