"""Find sequences of rows: steps that follow each other within some time, for each key.

A *run* is a match that has begun: the rows that it has taken, step by step. What a run does with a row depends on the
run and the row alone, so that there is one way to go on, never several.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from penstock.operators.base import Context, Emits, Key, Logic, Position
from penstock.operators.lookup import NEVER
from penstock.rows.records import Row, RowType, make_record, read_field
from penstock.rows.timing import Ticks, TimeKind, ticks_to_time, time_to_ticks, time_type

Times = int | str | tuple[int, int | None]


@dataclass(frozen=True)
class Step:
    """Some rows of a pattern for which a predicate holds."""

    name: str
    predicate: Callable[..., Any]
    times: Times = 1


@dataclass(frozen=True)
class Absent:
    """Rows that may not come between two steps of a pattern, or after the last one."""

    name: str
    predicate: Callable[..., Any]


def step(name: str, predicate: Callable[..., Any], *, times: Times = 1) -> Step:
    """Describe a step of a pattern: rows for which `predicate(row)`, or `predicate(row, match)`, holds.

    `times` says how many: a number, (least, most) with None for any number, or "+" for one or more.
    """
    return Step(name, predicate, times)


def absent(name: str, predicate: Callable[..., Any]) -> Absent:
    """Describe rows that end a match which has come so far; after the last step, until its time is over."""
    return Absent(name, predicate)


class Match:
    """The rows of a match, by step: `match["failed"]` is a list of rows. Also the first and last, and their times."""

    __slots__ = ("_names", "_rows", "end", "key", "start")

    def __init__(self, names: tuple[str, ...], rows: tuple[tuple[Row, ...], ...], key: Any, start: Any, end: Any):
        self._names, self._rows = names, rows
        self.key, self.start, self.end = key, start, end

    def __getitem__(self, step: str) -> list[Row]:
        if step not in self._names:
            raise KeyError(f"no step {step!r}; the steps are {', '.join(self._names)}")
        place = self._names.index(step)
        return list(self._rows[place]) if place < len(self._rows) else []

    @property
    def rows(self) -> list[Row]:
        """All rows, in order."""
        return [row for taken in self._rows for row in taken]

    @property
    def first(self) -> Row:
        """The first row."""
        return self._rows[0][0]

    @property
    def last(self) -> Row:
        """The last row."""
        return self._rows[-1][-1]


class Run(NamedTuple):
    """A match that has begun."""

    first: Ticks
    """The time of its first row."""
    opened: Position
    rows: tuple[tuple[Row, ...], ...]
    """What each step has taken, up to the one that it has come to."""


@dataclass(frozen=True)
class Place:
    """A step in its place: how many rows it takes, and what may not come after it."""

    name: str
    predicate: Callable[..., Any]
    low: int
    high: int | None
    barred: tuple[Callable[..., Any], ...] = ()


@dataclass(frozen=True)
class Pattern(Logic):
    """Emit one row for each match: at its last row or, where rows must be absent after it, when its time is over.

    State: the runs of the key, in the order in which they began.
    """

    emits: ClassVar[Emits] = "timed"
    places: tuple[Place, ...]
    within: Ticks
    combine: Callable[[Match], Row] | None
    returns: RowType | None
    key: Key | None
    kind: TimeKind
    """Of the times that are compared."""
    _: KW_ONLY
    time: str | None = None
    """The field that has a row's time; None is its event time."""
    strict: bool = False
    overlap: bool = False

    @property
    def needs_time(self) -> bool:  # type: ignore[override]
        return self.time is None

    @property
    def mark_grid(self) -> tuple[Ticks, Ticks] | None:  # type: ignore[override]
        """Where rows tell the time, marks do nothing."""
        return None if self.time is None else NEVER

    @property
    def shape(self) -> str:
        """Describe the steps: runs that were saved by a pattern with other steps do not fit this one."""
        return ", ".join(
            f"{place.name} {place.low} to {place.high}, {len(place.barred)} barred" for place in self.places
        )

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        now = context.time if self.time is None else time_to_ticks(read_field(row, self.time))
        kept: list[Run] = []
        done: list[Run] = []
        for run in state or ():
            if now >= run.first + self.within:
                # By event time, rows in time may still come; the run goes when the watermark says that none will.
                if self.time is None and not (self.strict and not self._waits(run)):
                    kept.append(run)
                continue
            going = self._advance(context, run, row, now)
            if going is not None:
                (done if going is not run and self._is_done(going) else kept).append(going)
        begun = self._begin(context, row, now) if self.overlap or not done else None
        if begun is not None:
            (done if self._is_done(begun) else kept).append(begun)
        for run in done if self.overlap else done[:1]:
            self._emit(context, run, now, None)
        if done and not self.overlap:
            return None
        if begun is not None and self.time is None and kept and kept[-1] is begun:
            context.timer(begun.first + self.within, begun.opened)
        return kept or None

    def _begin(self, context: Context, row: Row, now: Ticks) -> Run | None:
        """Begin a run with a row that fits the first step, unless its time is over already."""
        if self.time is None and now + self.within <= context.watermark:
            return None
        run = Run(now, context.position, ((row,),))
        return run if self._holds(self.places[0].predicate, row, Run(now, context.position, ()), context, now) else None

    def _advance(self, context: Context, run: Run, row: Row, now: Ticks) -> Run | None:
        """Return what a row makes of a run; None where it ends it."""
        number = len(run.rows) - 1
        place, taken = self.places[number], run.rows[-1]
        if len(taken) >= place.low:
            if any(self._holds(barred, row, run, context, now) for barred in place.barred):
                return None
            if number + 1 < len(self.places):
                if self._holds(self.places[number + 1].predicate, row, run, context, now):
                    return run._replace(rows=(*run.rows, (row,)))
            else:
                return run  # it waits until its time is over
        if (place.high is None or len(taken) < place.high) and self._holds(place.predicate, row, run, context, now):
            return run._replace(rows=(*run.rows[:-1], (*taken, row)))
        return None if self.strict else run

    def _waits(self, run: Run) -> bool:
        """Tell whether a run has all its rows."""
        return len(run.rows) == len(self.places) and len(run.rows[-1]) >= self.places[-1].low

    def _is_done(self, run: Run) -> bool:
        return self._waits(run) and not self.places[-1].barred

    def _holds(self, predicate: Callable[..., Any], row: Row, run: Run, context: Context, now: Ticks) -> bool:
        if takes_match(predicate):
            return bool(predicate(row, self._match(run, context.key, now)))
        return bool(predicate(row))

    def _match(self, run: Run, key: Any, now: Ticks) -> Match:
        start, end = ticks_to_time(run.first, self.kind), ticks_to_time(now, self.kind)
        return Match(tuple(place.name for place in self.places), run.rows, key, start, end)

    def _emit(self, context: Context, run: Run, now: Ticks, time: Ticks | None) -> None:
        match = self._match(run, context.key, now)
        if self.combine is not None:
            output = self.combine(match)
            context.emit(output if self.returns is None else self.returns.normalize(output), time)
            return
        names = () if self.key is None else self.key.names
        values = () if self.key is None else self.key.values(context.key)
        whole = (*values, match.start, match.end, len(match.rows))
        context.emit(make_record((*names, "start", "end", "rows"), whole), time)

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        run = next((run for run in state or () if run.opened == opened and run.first + self.within == fire), None)
        if run is None:
            return state
        if self.places[-1].barred and self._waits(run):
            self._emit(context, run, fire, fire - 1)
            if not self.overlap:
                return None
        return self.expire(state, fire, opened)

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        return [run for run in state or () if run.opened != opened] or None

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        return [] if self.time is not None else [(run.first + self.within, run.opened) for run in state or ()]

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        if self.combine is not None:
            return self.returns
        names = () if self.key is None else self.key.names
        row = inputs[0]
        if names and (row is None or any(name not in row.names for name in names)):
            return None
        known = [] if row is None else [(name, row.schema.field(name).type) for name in names]
        moment = time_type(self.kind)
        return RowType(pa.schema([*known, ("start", moment), ("end", moment), ("rows", pa.int64())]), "record")


def takes_match(predicate: Callable[..., Any]) -> bool:
    """Tell whether a predicate wants to see the match so far beside the row."""
    code = getattr(predicate, "__code__", None)
    if code is not None and not hasattr(predicate, "__self__"):
        return bool(code.co_argcount - len(predicate.__defaults__ or ()) > 1)
    try:
        parameters = inspect.signature(predicate).parameters.values()
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in kinds and each.default is inspect.Parameter.empty for each in parameters) > 1
