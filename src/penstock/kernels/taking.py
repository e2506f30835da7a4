"""What an epoch takes of each source, decided before anything is read: for engines whose rows are read elsewhere.

Where sources take turns, an epoch has the same numbers of rows of each that still has some. Where they have an order,
the driver reads the `order_by` columns of what is new, so that it knows how far each source has come, and takes what no
other source can come before. What is left stays in the sources for the next epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.graph import Node
from penstock.ingress.feeds import Feed, Slice
from penstock.ingress.splits import Split, read_split
from penstock.kernels.intake import SourceMarks, behind_row
from penstock.kernels.order import Bound, Key, bound, climb, within
from penstock.operators.base import Source
from penstock.pe.chunk import Ints
from penstock.pe.source_rows import order_column
from penstock.plan import Plan
from penstock.read import Files, Generated
from penstock.rows import RowType, row_type

log = logging.getLogger(__name__)

Json = dict[str, Any]


@dataclass
class Taken:
    """What an epoch takes of sources that the driver feeds."""

    slices: dict[str, Slice] = field(default_factory=dict)
    ends: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Where sources end that give no more."""
    idle: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The parts of sources that hold nobody back in this epoch."""

    def to_json(self) -> Json:
        """Write what a replay needs."""
        return {
            "slices": {name: {"logged": s.logged, "offset": s.offset} for name, s in self.slices.items()},
            "ends": {name: list(position) for name, position in self.ends.items()},
            "idle": {name: list(parts) for name, parts in self.idle.items()},
        }


@dataclass
class _Ahead:
    """What was seen of a source and not taken yet: for each row the values that it is placed by."""

    columns: list[Ints]
    over: bool = False
    """Whether the source gives no more than this."""

    def __len__(self) -> int:
        return len(self.columns[0])


class Taker:
    """Decides what each epoch takes."""

    def __init__(self, plan: Plan, feeds: Mapping[str, Feed], clock: Callable[[], float]) -> None:
        self._plan, self._feeds, self._clock = plan, feeds, clock
        self._numbers = {node.name: number for number, node in enumerate(plan.sources)}
        order = plan.layout.order
        self._ahead = {name: _Ahead([np.empty(0, np.int64)] * order) for name in feeds}
        self._turn = 0
        """The number of the row whose turn is next."""
        self._tops: dict[str, Key] = {}
        """The highest order_by values that were taken of each source."""
        self._spoke: dict[tuple[str, int], float] = {}
        self._taken_keys: dict[str, list[Ints]] = {}
        self._floors: dict[str, Key] = {}
        """What rows of each source had come to before the epoch that was taken last."""
        self._blocked: str | None = None

    def state(self) -> Json:
        """Return what the next epoch begins with, for the checkpoint."""
        return {"turn": self._turn, "tops": {name: list(top) for name, top in self._tops.items()}}

    def restore(self, state: Json) -> None:
        """Go on behind what was committed."""
        self._turn = state.get("turn", 0)
        self._tops = {name: tuple(top) for name, top in state.get("tops", {}).items()}

    def exhausted(self, ended: Collection[str]) -> bool:
        """Tell whether no source will give anything more."""
        return all(
            name in ended or (feed.exhausted() and not self._waiting(name)) for name, feed in self._feeds.items()
        )

    def _waiting(self, name: str) -> bool:
        """Tell whether a source has rows that could not be taken yet."""
        return bool(self._plan.layout.order) and len(self._ahead[name]) > 0

    def take(self, limit: int, marks: Mapping[str, SourceMarks], ended: Collection[str]) -> Taken:
        """Take about `limit` rows of each source, those left out that have ended."""
        taken = Taken()
        open_feeds = {name: feed for name, feed in self._feeds.items() if name not in ended}
        match self._plan.layout.sequence:
            case "own":
                self._take_own(open_feeds, limit, taken)
            case "turns":
                self._take_turns(open_feeds, limit, taken)
            case "order":
                for name in open_feeds:
                    self._look_ahead(name, limit)
        self._rest(open_feeds, marks, taken)
        if self._plan.layout.sequence == "order":
            self._take_ordered(open_feeds, limit, marks, taken)
        return self._placed(taken)

    def replay(self, intent: Json) -> Taken:
        """Take exactly what an epoch that was begun before a crash was to read."""
        ends = intent["ends"]
        if isinstance(ends, list):  # before ends had a place of their own they were behind all rows of their epoch
            ends = {name: self._plan.layout.behind_all(self._numbers[name]) for name in ends}
        taken = Taken(
            ends={name: tuple(position) for name, position in ends.items()},
            idle={name: tuple(parts) for name, parts in intent.get("idle", {}).items()},
        )
        for name, body in intent["slices"].items():
            taken.slices[name] = self._feeds[name].replay(body["logged"], body["offset"])
            self._feeds[name].restore(body["offset"])
            if self._plan.layout.order:
                self._taken_keys[name] = self._climbed(name, taken.slices[name], 0, self._tops.get(name))
        return self._placed(taken)

    # Each way to make one sequence ------------------------------------------------------------------------------

    def _take_own(self, feeds: Mapping[str, Feed], limit: int, taken: Taken) -> None:
        """Take what is new, as it comes."""
        for name, feed in feeds.items():
            found = feed.poll(limit)
            if found is not None:
                taken.slices[name] = found
            elif feed.exhausted():
                taken.ends[name] = self._plan.layout.behind_all(self._numbers[name])

    def _take_turns(self, feeds: Mapping[str, Feed], limit: int, taken: Taken) -> None:
        """Take the same numbers of rows of each; one that has fewer ends where its next row would be."""
        for name, feed in feeds.items():
            found = feed.poll(limit)
            rows = 0 if found is None else found.rows
            assert rows is not None, f"source {name!r} takes turns, and its rows are not counted"
            if found is not None:
                taken.slices[name] = found
            if rows < limit:
                taken.ends[name] = self._plan.layout.place(self._numbers[name], self._turn + rows)

    def _take_ordered(
        self, feeds: Mapping[str, Feed], limit: int, marks: Mapping[str, SourceMarks], taken: Taken
    ) -> None:
        """Take the rows of each that no other source can come before."""
        tops = {(self._numbers[name], 0): self._shown(name) for name in feeds}
        counting = [
            (self._numbers[name], 0) for name in feeds if not self._ahead[name].over and 0 not in marks[name].idle
        ]
        reached = bound(tops, counting)
        if reached is None and counting:
            self._tell_blocked(next(name for name in feeds if self._shown(name) is None))
            return
        rows = {name: self._rows_within(name, reached, limit) for name in feeds}
        for name, feed in feeds.items():
            ahead, count = self._ahead[name], rows[name]
            if count:
                found = feed.poll(count)
                assert found is not None
                assert found.rows == count, f"source {name!r} gave {found.rows} rows instead of {count}"
                taken.slices[name] = found
                self._taken_keys[name] = [column[:count] for column in ahead.columns]
            if ahead.over and count == len(ahead):
                taken.ends[name] = self._end(name, taken.slices.get(name))
            self._ahead[name] = replace(ahead, columns=[column[count:] for column in ahead.columns])
        if any(rows.values()) or taken.ends:
            self._blocked = None
        elif reached is not None and any(map(len, self._ahead.values())):
            self._tell_blocked(self._plan.sources[reached[1][0]].name)

    def _rows_within(self, name: str, reached: Bound | None, limit: int) -> int:
        ahead = self._ahead[name]
        count = len(ahead) if reached is None else within(ahead.columns, (self._numbers[name], 0), reached)
        if not ahead.over and not self._source(name).reader.goes_on:
            count = min(count, len(ahead) - 1)  # its end is just behind its last row, so one stays until that is known
        return max(0, min(count, limit))

    def _end(self, name: str, found: Slice | None) -> tuple[int, ...]:
        layout, number = self._plan.layout, self._numbers[name]
        if found is None:
            return layout.before_all(number)
        last = found.splits[-1]
        own = np.array([last.first + (last.rows or 0) - 1], np.int64)
        values = [int(column[-1]) for column in self._taken_keys[name]]
        return behind_row((*values, *(int(column[0]) for column in layout.places(number, [own]))))

    # How far sources have come ----------------------------------------------------------------------------------

    def _source(self, name: str) -> Source:
        source = self._plan.nodes[name].operator
        assert isinstance(source, Source)
        return source

    def _shown(self, name: str) -> Key | None:
        """Return the highest order_by values that a source has shown."""
        ahead = self._ahead[name]
        if len(ahead):
            return tuple(int(column[-1]) for column in ahead.columns)
        return self._tops.get(name)

    def _look_ahead(self, name: str, limit: int) -> None:
        """See what a source has, up to one row more than an epoch may take; nothing is taken."""
        ahead, feed = self._ahead[name], self._feeds[name]
        if ahead.over or len(ahead) > limit:
            return
        found = feed.poll(limit + 1)
        over = (found is None or (found.rows or 0) <= limit) and feed.exhausted()
        columns = ahead.columns
        if found is not None:
            new = self._climbed(name, found, len(ahead), self._shown(name))
            columns = [np.concatenate(parts) for parts in zip(columns, new, strict=True)]
            feed.undo()
        self._ahead[name] = _Ahead(columns, over)

    def _climbed(self, name: str, found: Slice, skip: int, floor: Key | None) -> list[Ints]:
        """Read the order_by columns of a slice, behind rows that are known; return the values rows are placed by."""
        node = self._plan.nodes[name]
        read = _only(node, self._source(name).order_by)
        parts: list[list[Ints]] = []
        for split in found.splits:
            rows = split.rows or 0
            if skip >= rows:
                skip -= rows
                continue
            wanted = split if split.payload is not None else split.cut(split.start + skip, split.stop)
            passed = skip if split.payload is not None else 0
            for piece in read_split(self._source(name).reader, read, wanted, name):
                columns = [order_column(piece, field)[passed:] for field in self._source(name).order_by]
                passed = max(0, passed - piece.positions.shape[-1])
                if len(columns[0]):
                    climbed, _ = climb(columns, floor)
                    floor = tuple(int(column[-1]) for column in climbed)
                    parts.append(climbed)
            skip = 0
        if not parts:
            return [np.empty(0, np.int64)] * self._plan.layout.order
        return [np.concatenate(columns) for columns in zip(*parts, strict=True)]

    # Idle parts -------------------------------------------------------------------------------------------------

    def heard(self, source: str, parts: Collection[int]) -> None:
        """Note that parts of a source have given rows."""
        self._spoke.update(dict.fromkeys(((source, part) for part in parts), self._clock()))

    def _rest(self, feeds: Mapping[str, Feed], marks: Mapping[str, SourceMarks], taken: Taken) -> None:
        """Leave out parts that have given nothing for as long as their source says."""
        now = self._clock()
        for name, each in marks.items():
            idle_after = self._source(name).idle_after
            if idle_after is None:
                continue
            speaking = {split.part for split in taken.slices[name].splits} if name in taken.slices else set()
            if name in feeds and self._waiting(name):
                speaking.add(0)
            self.heard(name, speaking)
            for part in each.parts:
                self._spoke.setdefault((name, part), now)
            idle = tuple(part for part in each.parts if now - self._spoke[name, part] >= idle_after)
            if idle:
                taken.idle[name] = idle

    def _tell_blocked(self, name: str) -> None:
        """Say once which source all others wait for."""
        if self._blocked != name:
            self._blocked = name
            log.info(
                "rows wait for source %r, which may still give some that come before them by order_by; "
                "give it idle_after= if it may be silent for long",
                name,
            )

    # What tasks read --------------------------------------------------------------------------------------------

    def _placed(self, taken: Taken) -> Taken:
        """Give rows their turn, and remember where the next epoch begins."""
        if self._plan.layout.sequence == "turns":
            for name, found in taken.slices.items():
                at, splits = self._turn, []
                for split in found.splits:
                    splits.append(replace(split, place=at))
                    at += split.rows or 0
                taken.slices[name] = replace(found, splits=tuple(splits))
            self._turn += max((found.rows or 0 for found in taken.slices.values()), default=0)
        self._floors = dict(self._tops)
        if self._plan.layout.sequence == "order":
            for name in taken.slices:
                self._tops[name] = tuple(int(column[-1]) for column in self._taken_keys[name])
            tops = [self._tops[name] for name in taken.slices]
            for name in taken.idle.keys() - taken.slices.keys() if tops else ():
                self._tops[name] = max([*tops, *([self._tops[name]] if name in self._tops else [])])
        return taken

    def floors(self, name: str, groups: list[list[Split]]) -> list[list[Split]]:
        """Tell each split of an epoch how far its source had come before it."""
        if self._plan.layout.sequence != "order":
            return groups
        keys, at = self._taken_keys[name], 0
        made = []
        for group in groups:
            some = []
            for split in group:
                floor = self._floors.get(name) if at == 0 else tuple(int(column[at - 1]) for column in keys)
                some.append(replace(split, floor=floor))
                at += split.rows or 0
            made.append(some)
        return made


def _only(node: Node, fields: tuple[str, ...]) -> RowType | None:
    """Return the type of just these fields where a source can be read by columns, else that of its rows."""
    declared = node.types[0]
    reader = node.operator.reader  # type: ignore[attr-defined]
    by_columns = isinstance(reader, Generated) or (isinstance(reader, Files) and reader.format == "parquet")
    if declared is None or not by_columns:
        return declared
    return row_type(pa.schema([declared.schema.field(name) for name in fields]), node.name)
