"""What the epochs of a run read: from feeds and streaming DataFrames, again where an epoch was begun before a crash."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.connectors.files import Files
from penstock.connectors.interfaces import Feed
from penstock.errors import CheckpointError
from penstock.kernels.intake import SourceMarks, clock_marks, raise_idle
from penstock.kernels.taking import Taken, Taker
from penstock.plan.plan import Plan
from penstock.rows.timing import BEFORE, FOREVER, Ticks
from penstock.spark.frames import FrameFeeds, SparkBatch, is_streaming
from penstock.spark.staging import Staging, is_staged
from penstock.spark.tables import SparkTables
from penstock.store.checkpoint import Position
from penstock.store.keeper import Keeper

IDLE_SECONDS = 0.05


@dataclass
class EpochInput(Taken):
    """What an epoch is to read."""

    handed: dict[str, SparkBatch] = field(default_factory=dict)
    """The batches of streaming DataFrames, by source."""
    tables: dict[str, str] = field(default_factory=dict)
    """What each lookup's table has, by the name under which it is kept."""
    now: Ticks | None = None
    """When its rows arrive, where something goes by that."""

    @property
    def rows(self) -> int | None:
        """How many rows the epoch will read, None where they are not counted."""
        counts = [found.rows for found in self.slices.values()]
        return None if self.handed or None in counts else sum(count or 0 for count in counts)

    def intent(self) -> dict[str, Any]:
        """Return what is logged before the epoch begins, as plain JSON."""
        batches = {name: {"batch": handed.batch, **handed.places.to_json()} for name, handed in self.handed.items()}
        return {**self.to_json(), "batches": batches, "tables": self.tables, "now": self.now}


class RunInput:
    """The sources of a run, each standing after what was committed."""

    def __init__(
        self,
        framed: Plan,
        plan: Plan,
        feeds: dict[str, Feed],
        keeper: Keeper,
        position: Position,
        path: str,
        *,
        now: Callable[[], float],
        time_of_day: Callable[[], float],
    ) -> None:
        """Take the feeds of `plan`, and open the streaming DataFrames of `framed`, which it was made from."""
        self._plan, self._position, self._path, self._time_of_day = plan, position, path, time_of_day
        streaming = [node.name for node in filter(is_streaming, framed.sources)]
        self.feeds = dict(feeds)
        self.frames = FrameFeeds(framed, path) if streaming else None
        self.staging: Staging | None = None
        if self.frames is not None and is_staged(framed):
            self.staging = Staging(framed, keeper, self.frames)
            self.feeds.update(self.staging.feeds)
        self._last_offsets: dict[str, Any] = {}
        """The newest offset of each source that is not a directory: a manifest has all of them."""
        for offsets in keeper.offsets(position):
            for name, offset in offsets.items():
                if name in self.feeds:
                    self._last_offsets[name] = offset
                    self.feeds[name].restore(offset)
        self._taker = Taker(plan, self.feeds, now)
        self._taker.restore(position.intake)
        self._tables = SparkTables(plan, keeper, position, now)
        self.cut = self._taker.cut
        self.marks = {node.name: SourceMarks(position.marks[node.name]) for node in plan.sources}
        for name, parts in position.intake.get("parts", {}).items():
            self.marks[name].parts = {int(part): mark for part, mark in parts.items()}
        self._told: Ticks = position.intake.get("now", 0)
        """The time of day that was committed last."""
        self._read_older_clock()
        for node in filter(is_streaming, plan.sources):
            if self.marks[node.name].parts == {0: BEFORE}:
                self.marks[node.name].parts = {}  # its rows tell which parts it has

    def start(self, every: float) -> None:
        """Start the queries of streaming DataFrames, a batch each so many seconds at the most."""
        if self.frames is not None:
            self.frames.start(every, available_now=False)

    def take(self, rows: int, end: bool) -> EpochInput | None:
        """Take what is new from all sources, so many rows of each at most; None where nothing is."""
        if self.staging is not None:
            self.staging.take(0.0)
        found = self._taker.take(rows, self.marks, self._position.ended)
        taken = EpochInput(found.slices, found.ends, found.idle)
        if self.frames is not None and self.staging is None:
            # Where everything comes from Spark there is nothing to do but wait for it.
            wait = 0.0 if taken.slices or self.feeds else IDLE_SECONDS
            taken.handed = self.frames.poll(wait, self._position.batches)
        if not end:
            taken.ends = {}
        rests = any(set(parts) - self.marks[name].idle for name, parts in taken.idle.items())
        taken.now = self._reached()
        if not (taken.slices or taken.handed or taken.ends or rests or self._is_due(taken.now)):
            return None
        taken.tables = self._tables.take()
        return taken

    def replay(self, intent: dict[str, Any]) -> EpochInput | None:
        """Take exactly what an epoch that was begun before a crash was to read; None while Spark has not brought it."""
        handed: dict[str, SparkBatch] = {}
        if intent.get("batches"):
            begun = f"epoch {self._position.epoch + 1} of {self._path}"
            if self.staging is not None:
                raise CheckpointError(
                    f"{begun} was begun by an earlier release, which read streaming DataFrames with order_by in "
                    f"another way; finish it with that release, or start with a new checkpoint"
                )
            if self.frames is None:
                raise CheckpointError(
                    f"{begun} was reading a streaming DataFrame, and the flow has none now; put it back, or start with "
                    f"a new checkpoint"
                )
            again = self.frames.again(intent["batches"], IDLE_SECONDS, self._position.batches)
            if again is None:
                return None
            handed = again
        for name in intent["slices"]:
            if name not in self.feeds:
                raise CheckpointError(f"the source {name!r} of an epoch that was begun is gone from the flow")
        found = self._taker.replay(intent, self.marks)
        tables = self._tables.replay(intent.get("tables", {}))
        return EpochInput(found.slices, found.ends, found.idle, handed, tables, intent.get("now"))

    def _reached(self) -> Ticks | None:
        """Return the time of day, which never goes back; None where nothing goes by it."""
        return max(int(self._time_of_day() * 1e6), self._told) if self._plan.clocked else None

    @property
    def clocks(self) -> dict[str, Ticks]:
        """Return how far the time of day has come where each source begins."""
        return clock_marks(self._plan, self.marks, self._told)

    def _read_older_clock(self) -> None:
        """Take the time of day from where earlier releases kept it: it was the watermark of sources that go by it."""
        for name in self._plan.by_arrival & self.marks.keys():
            marks = self.marks[name]
            if BEFORE < marks.water < FOREVER:
                self._told = max(self._told, marks.water)
                self.marks[name] = SourceMarks(BEFORE, dict.fromkeys(marks.parts, BEFORE))

    def _is_due(self, now: Ticks | None) -> bool:
        """Tell whether the time of day alone makes something happen: timers that no epoch has reached yet."""
        if now is None:
            return False
        clocks = self.clocks.keys()
        for name, index in self._position.state.items():
            routes = self._plan.layout.shapes[name].marks if name in self._plan.nodes else ()
            delays = [route.delay for route in routes if route.source in clocks]
            if delays and any(self._told < due + max(delays) <= now for due in index.due.values()):
                return True
        return False

    def exhausted(self) -> bool:
        return self.frames is None and self._taker.exhausted(self._position.ended)

    def goes_on(self, taken: EpochInput) -> bool:
        """Tell whether rows are known to come after those of an epoch, or may come for ever."""
        left = any(found.backlog for found in taken.slices.values())
        return left or any(node.operator.reader.goes_on for node in self._plan.sources)

    def begin(self, taken: EpochInput) -> None:
        """Learn of the parts of sources that an epoch has rows of, and of those that rest."""
        for name, marks in self.marks.items():
            marks.know(taken.slices[name].parts if name in taken.slices else ())
            marks.know(taken.handed[name].places.parts() if name in taken.handed else ())
            marks.idle = frozenset(taken.idle.get(name, ()))

    def raise_marks(self, taken: EpochInput, told: dict[str, dict[int, Ticks]]) -> None:
        """Note how far the parts of all sources have come, for the next epoch."""
        for name, marks in self.marks.items():
            marks.rise(told.get(name, {}))
            if name in taken.handed:
                self._taker.heard(name, told.get(name, {}))  # only its tasks have seen whose rows came
        raise_idle(self.marks, taken.ends)
        for name in taken.ends:
            self.marks[name].water = FOREVER
        self._position.marks = {name: marks.water for name, marks in self.marks.items()}
        parts = {name: marks.parts for name, marks in self.marks.items()}
        self._position.intake = {**self._taker.state(), "parts": parts, "tables": taken.tables}
        if taken.now is not None:
            self._position.intake["now"] = self._told = taken.now

    def offsets(self, taken: EpochInput, full: bool) -> dict[str, Any]:
        """Return the offsets to commit: of directories what is new, or all where it is to be `full`."""
        offsets = {name: found.offset for name, found in taken.slices.items()}
        directories = {name: feed for name, feed in self.feeds.items() if feed.adds_up}
        if full:
            offsets.update({name: feed.full_offset() for name, feed in directories.items()})
        self._last_offsets.update(offsets)
        return {**{name: each for name, each in self._last_offsets.items() if name not in directories}, **offsets}

    def give_back(self, taken: EpochInput, keep: bool) -> None:
        """Let Spark go on after the batches of an epoch; again is no harm."""
        for handed in taken.handed.values():
            assert self.frames is not None
            self.frames.finish(handed, keep)

    def close(self) -> None:
        for feed in self.feeds.values():
            feed.close()
        if self.frames is not None:
            self.frames.stop()


def materialised(plan: Plan, keeper: Keeper, path: str) -> Plan:
    """Write batch DataFrames once, with their order in the names of files: then an epoch can begin anywhere in them."""
    nodes = {}
    for node in plan.sources:
        source = node.operator
        if source.reader.needs_spark and not source.reader.goes_on:
            frame = source.reader.frame
            ordered = frame.orderBy(*source.order_by) if source.order_by else frame
            keeper.keep(f"sources/{node.name}", ordered.write.mode("overwrite").parquet)
            reader = Files(f"{path}/sources/{node.name}", "parquet", node.types[0], by_name=True)
            nodes[node.name] = dataclasses.replace(node, operator=dataclasses.replace(source, reader=reader))
    return dataclasses.replace(plan, graph=plan.graph.replaced(nodes)) if nodes else plan
