"""What an epoch takes of each source, decided before anything is read: for engines whose rows are read elsewhere.

Where sources take turns, an epoch has the same numbers of rows of each that still has some. Where they have an order,
the driver learns how far each part of each source has come (`ahead.py`), and takes what no other part can come before.
What is left stays in the sources for the next epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.connectors.interfaces import ROW_BITS, Feed, Slice, Split, cut_splits
from penstock.kernels.ahead import Ahead, OrderReader
from penstock.kernels.intake import SourceMarks, behind_row
from penstock.kernels.order import Key, Part, bound
from penstock.operators.base import Source
from penstock.plan.plan import Plan

log = logging.getLogger(__name__)

Json = dict[str, Any]
Lane = tuple[str, int]
"""A source, and a part of it."""


@dataclass
class Taken:
    """What an epoch takes of sources that the driver feeds."""

    slices: dict[str, Slice] = field(default_factory=dict)
    ends: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Where sources end that give no more."""
    idle: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The parts of sources that hold no other back in this epoch."""

    def to_json(self) -> Json:
        return {
            "slices": {name: {"logged": s.logged, "offset": s.offset} for name, s in self.slices.items()},
            "ends": {name: list(position) for name, position in self.ends.items()},
            "idle": {name: list(parts) for name, parts in self.idle.items()},
        }


class Taker:
    """Decides what each epoch takes."""

    def __init__(self, plan: Plan, feeds: Mapping[str, Feed], clock: Callable[[], float]) -> None:
        self._plan, self._feeds, self._clock = plan, feeds, clock
        self._numbers = {node.name: number for number, node in enumerate(plan.sources)}
        self._readers = {name: OrderReader(plan.source(name)) for name in feeds}
        self._parts: dict[str, Mapping[int, Feed]] = {}
        """The parts of each source that are known, in their order; as long as an epoch is taken none is new."""
        self._ahead: dict[Lane, Ahead] = {}
        """What was seen of each part and not taken yet."""
        self._turn = 0
        """The number of the row whose turn is next."""
        self._tops: dict[Lane, Key] = {}
        """The highest order_by values that were taken of each part, or of others without it."""
        self._spoke: dict[Lane, float] = {}
        self._taken: dict[Lane, Ahead] = {}
        """What the epoch that was taken last has of each part."""
        self._floors: dict[Lane, Key] = {}
        """What each part had come to before that epoch."""
        self._blocked: Lane | None = None

    def state(self) -> Json:
        """Return what the next epoch begins with, for the checkpoint."""
        tops: dict[str, dict[int, list[int]]] = {}
        for (name, part), top in self._tops.items():
            tops.setdefault(name, {})[part] = list(top)
        return {"turn": self._turn, "tops": tops}

    def restore(self, state: Json) -> None:
        """Go on after what was committed."""
        self._turn = state.get("turn", 0)
        for name, tops in state.get("tops", {}).items():
            # Before parts were told apart here, each source was one.
            parts = tops if isinstance(tops, dict) else {0: tops}
            self._tops.update({(name, int(part)): tuple(top) for part, top in parts.items()})

    def exhausted(self, ended: Collection[str]) -> bool:
        """Tell whether no source will give anything more."""
        if self._plan.layout.order:
            left = [lane for lane, ahead in self._ahead.items() if not ahead.over or len(ahead)]
            return bool(self._ahead) and all(name in ended for name, _ in left)
        return all(name in ended or feed.exhausted() for name, feed in self._feeds.items())

    def _waiting(self, name: str) -> set[int]:
        """Return the parts of a source that have rows which could not be taken yet."""
        return {part for (source, part), ahead in self._ahead.items() if source == name and len(ahead)}

    def take(self, limit: int, marks: Mapping[str, SourceMarks], ended: Collection[str]) -> Taken:
        """Take about `limit` rows of each source, those left out that have ended."""
        taken = Taken()
        open_feeds = {name: feed for name, feed in self._feeds.items() if name not in ended}
        self._know(marks)
        match self._plan.layout.sequence:
            case "own":
                self._take_own(open_feeds, limit, taken)
            case "turns":
                self._take_turns(open_feeds, limit, taken)
            case "order":
                for name in open_feeds:
                    for part, each in self._parts[name].items():
                        self._look_ahead((name, part), each, self._share(name, limit))
        self._rest(open_feeds, marks, taken)
        if self._plan.layout.sequence == "order":
            self._take_ordered(open_feeds, limit, taken)
        return self._placed(taken)

    def replay(self, intent: Json, marks: Mapping[str, SourceMarks]) -> Taken:
        """Take exactly what an epoch that was begun before a crash was to read."""
        ends = intent["ends"]
        if isinstance(ends, list):  # before ends had a place of their own they were after all rows of their epoch
            ends = {name: self._plan.layout.behind_all(self._numbers[name]) for name in ends}
        taken = Taken(
            ends={name: tuple(position) for name, position in ends.items()},
            idle={name: tuple(parts) for name, parts in intent.get("idle", {}).items()},
        )
        self._know(marks)
        self._taken = {}
        for name, body in intent["slices"].items():
            taken.slices[name] = given = self._feeds[name].replay(body["logged"], body["offset"])
            self._feeds[name].restore(body["offset"])
            for part in {split.part for split in given.splits} if self._plan.layout.order else ():
                splits = [split for split in given.splits if split.part == part]
                seen = self._readers[name].stretches(splits, 0, self._tops.get((name, part)))
                self._taken[name, part] = Ahead(tuple(seen))
        return self._placed(taken)

    def _know(self, marks: Mapping[str, SourceMarks]) -> None:
        """Have all know of the parts that there are by now. What was taken without a new one is before its rows."""
        for name, feed in self._feeds.items():
            self._parts[name] = dict(feed.parts())
            if feed.parted:
                marks[name].know(self._parts[name])
            for part in self._parts[name] if self._plan.layout.order else ():
                if (name, part) not in self._ahead:
                    self._ahead[name, part] = Ahead()
                    if self._tops:
                        self._tops.setdefault((name, part), max(self._tops.values()))

    # Each way to make one sequence ------------------------------------------------------------------------------

    def _take_own(self, feeds: Mapping[str, Feed], limit: int, taken: Taken) -> None:
        """Take what is new, as it comes."""
        for name, feed in feeds.items():
            given = feed.poll(limit)
            if given is not None:
                taken.slices[name] = given
            elif feed.exhausted():
                taken.ends[name] = self._plan.layout.behind_all(self._numbers[name])

    def _take_turns(self, feeds: Mapping[str, Feed], limit: int, taken: Taken) -> None:
        """Take the same numbers of rows of each; one that has fewer ends where its next row would be."""
        for name, feed in feeds.items():
            given = feed.poll(limit)
            rows = 0 if given is None else given.rows
            assert rows is not None, f"source {name!r} takes turns, and its rows are not counted"
            if given is not None:
                taken.slices[name] = given
            if rows < limit:
                taken.ends[name] = self._plan.layout.place(self._numbers[name], self._turn + rows)

    def _take_ordered(self, feeds: Mapping[str, Feed], limit: int, taken: Taken) -> None:
        """Take the rows of each part that no other part can come before."""
        lanes: dict[Part, Lane] = {}
        most: dict[Lane, int] = {}
        tops: dict[Part, Key | None] = {}
        for name in feeds:
            for rank, part in enumerate(self._parts[name]):
                lane, place = (name, part), (self._numbers[name], rank)
                lanes[place], ahead = lane, self._ahead[lane]
                most[lane] = self._most(lane, self._share(name, limit))
                if most[lane] < len(ahead):  # what is left is before everything that comes
                    tops[place] = ahead.least(most[lane])
                elif not ahead.over and part not in taken.idle.get(name, ()):
                    tops[place] = self._shown(lane)
        reached = bound(tops, tops)
        self._taken = {}
        if reached is not None or not tops:
            for place, lane in lanes.items():
                ahead = self._ahead[lane]
                count = most[lane] if reached is None else ahead.within(place, reached, most[lane])
                if count:
                    self._taken[lane], self._ahead[lane] = ahead.divided(count)
            for name, feed in feeds.items():
                self._take_parts(name, feed, taken)
        if taken.slices or taken.ends:
            self._blocked = None
        elif any(map(len, self._ahead.values())):
            self._tell_blocked(lanes[min(tops, key=lambda place: (tops[place] or (), place))])

    def _take_parts(self, name: str, feed: Feed, taken: Taken) -> None:
        """Take what was decided of the parts of a source, and its end where that is all."""
        slices: dict[int, Slice] = {}
        for part, each in self._parts[name].items():
            count = len(self._taken.get((name, part), ()))
            if count:
                given = each.poll(count)
                assert given is not None
                slices[part] = given
                assert given.rows == count, f"source {name!r} gave {given.rows} rows instead of {count}"
        if slices:
            taken.slices[name] = feed.whole(slices)
        mine = [self._ahead[name, part] for part in self._parts[name]]
        if all(ahead.over and not len(ahead) for ahead in mine):
            taken.ends[name] = self._end(name, taken.slices.get(name))

    def _share(self, name: str, limit: int) -> int:
        """Return how many rows of each part an epoch may take that may take so many of the source."""
        return max(1, limit // len(self._parts[name]))

    def _most(self, lane: Lane, limit: int) -> int:
        """Return how many of the rows that were seen of a part may be taken at most."""
        ahead = self._ahead[lane]
        # The end of a source is just after its last row, so one stays until that is known.
        stays = not ahead.over and not self._source(lane[0]).reader.goes_on
        return ahead.most(max(0, min(limit, len(ahead) - stays)))

    def _end(self, name: str, found: Slice | None) -> tuple[int, ...]:
        layout, number = self._plan.layout, self._numbers[name]
        if found is None:
            return layout.before_all(number)
        ends = []
        for split in self._with_places(name, found).splits:
            own = np.array([split.first + (split.rows or 0) - 1], np.int64)
            top = self._taken[name, split.part].shown
            assert top is not None
            ends.append((*top, *(int(column[0]) for column in layout.places(number, [own]))))
        return behind_row(max(ends))

    # How far sources have come ----------------------------------------------------------------------------------

    def _source(self, name: str) -> Source:
        return self._plan.source(name).operator

    def _shown(self, lane: Lane) -> Key | None:
        """Return the highest order_by values that a part has shown."""
        return self._ahead[lane].shown or self._tops.get(lane)

    def _look_ahead(self, lane: Lane, feed: Feed, limit: int) -> None:
        """See what a part has, up to one row more than an epoch may take; nothing is taken."""
        ahead = self._ahead[lane]
        if ahead.over or len(ahead) > limit:
            return
        given = feed.poll(limit + 1)
        over = (given is None or (given.rows or 0) <= limit) and feed.exhausted()
        stretches = ahead.stretches
        if given is not None:
            reader = self._readers[lane[0]]
            stretches += tuple(reader.stretches(given.splits, len(ahead), self._shown(lane), spare=not over))
            feed.undo()
        self._ahead[lane] = Ahead(stretches, over)

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
            if name in feeds:
                speaking |= self._waiting(name)
            self.heard(name, speaking)
            for part in each.parts:
                self._spoke.setdefault((name, part), now)
            idle = tuple(part for part in each.parts if now - self._spoke[name, part] >= idle_after)
            if idle:
                taken.idle[name] = idle

    def _tell_blocked(self, lane: Lane) -> None:
        """Say once what all others wait for."""
        if self._blocked != lane:
            self._blocked = lane
            feed = self._feeds[lane[0]]
            part = f"{feed.part_name(lane[1])} of " if feed.parted else ""
            log.info(
                "rows wait for %ssource %r, which may still give some that come before them by order_by; "
                "give it idle_after= if it may be silent for long",
                part,
                lane[0],
            )

    # What tasks read --------------------------------------------------------------------------------------------

    def _placed(self, taken: Taken) -> Taken:
        """Give rows their turn, and remember where the next epoch begins."""
        if self._plan.layout.sequence == "turns":
            for name, given in taken.slices.items():
                at, splits = self._turn, []
                for split in given.splits:
                    splits.append(replace(split, place=at))
                    at += split.rows or 0
                taken.slices[name] = replace(given, splits=tuple(splits))
            self._turn += max((given.rows or 0 for given in taken.slices.values()), default=0)
        self._floors = dict(self._tops)
        if self._plan.layout.sequence == "order":
            for name, given in taken.slices.items():
                taken.slices[name] = self._with_places(name, given)
            tops = {lane: ahead.shown for lane, ahead in self._taken.items() if ahead.shown is not None}
            self._tops.update(tops)
            for lane in [(name, part) for name, parts in taken.idle.items() for part in parts] if tops else ():
                highest = max(tops.values())
                self._tops[lane] = max(highest, self._tops.get(lane, highest))
        return taken

    def _with_places(self, name: str, found: Slice) -> Slice:
        """Give rows of several parts their places: by part, then as they follow each other."""
        if not self._feeds[name].parted:
            return found
        passed = {part: rank << ROW_BITS for rank, part in enumerate(self._parts[name])}
        splits = []
        for split in found.splits:
            splits.append(replace(split, place=passed[split.part]))
            passed[split.part] += split.rows or 0
        return replace(found, splits=tuple(splits))

    def cut(self, name: str, found: Slice, pieces: int) -> list[list[Split]]:
        """Divide what an epoch takes of a source among tasks, and tell each split how far its part had come before."""
        if self._plan.layout.sequence != "order":
            return cut_splits(found.splits, pieces)
        splits, whole = found.splits, False
        borders = {part: self._taken[name, part].borders() for part in {split.part for split in splits}}
        if any(borders.values()) and sum(len(each or ()) for each in borders.values()) > pieces:
            splits, whole = tuple(_at_borders(splits, borders)), True
        passed: dict[int, int] = {}
        tasks = []
        for group in cut_splits(splits, pieces, whole=whole):
            some = []
            for split in group:
                lane, at = (name, split.part), passed.get(split.part, 0)
                floor = self._taken[lane].key(at - 1) if at else self._floors.get(lane)
                some.append(replace(split, floor=floor))
                passed[split.part] = at + (split.rows or 0)
            tasks.append(some)
        return tasks


def _at_borders(splits: tuple[Split, ...], borders: Mapping[int, list[int] | None]) -> Iterator[Split]:
    """Cut splits where the place of the row before is known."""
    passed: dict[int, int] = {}
    for split in splits:
        first = passed.get(split.part, 0)
        last = passed[split.part] = first + (split.rows or 0)
        inside = [row for row in borders[split.part] or () if first < row < last]
        for start, stop in pairwise([first, *inside, last]):
            yield split.cut(split.start + start - first, split.start + stop - first)
