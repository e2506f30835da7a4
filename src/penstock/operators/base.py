"""The primitives that engines know. Everything else in this package is composed of them.

An operator says what happens to rows; it never says where or when. Engines know five primitives: `Source`,
`Stateless` (a row to rows, no memory), `Union` (ordered fan-in), `Keyed` (a `Logic` with state for each key,
or for the whole stream) and `Sink`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from penstock.rows.chunk import FlatRows
from penstock.rows.keys import Ints, Ranges, check_keys, hash_shards, hash_value, hash_values
from penstock.rows.records import Row, RowType
from penstock.rows.timing import BEFORE, Ticks, TimeKind, ticks_to_time

Kind = Literal["source", "stateless", "partitioned", "stateful", "sink"]
OnError = Literal["fail", "skip", "dead_letter"]
Emits = Literal["one", "many", "timed"]
Position = Any
"""Where a row stands in the order of its stream: opaque, comparable. An int here, a tuple there."""

ERROR_POLICIES: tuple[OnError, ...] = ("fail", "skip", "dead_letter")


@dataclass(frozen=True)
class Operator:
    """What every primitive has: the names of its output ports, and what happens to a row that fails."""

    kind: ClassVar[Kind]
    outputs: tuple[str, ...] = field(default=("out",), kw_only=True)
    on_error: OnError = field(default="fail", kw_only=True)


@dataclass(frozen=True)
class Source(Operator):
    """Bring rows in. `reader` says from where; the engine knows how."""

    kind: ClassVar[Kind] = "source"
    reader: Any = None
    order_by: tuple[str, ...] = ()
    time: str | None = None
    slack: Ticks = 0
    idle_after: float | None = None
    """Seconds without a row, by the wall clock, until a part of the source holds no other part back; None for never."""
    by_arrival: bool = False
    """Whether the time of a row is when it arrived, as ingress logs it."""
    corrupt: str | None = field(default=None, kw_only=True)
    """The field in which rows that cannot be read have what stands in their place; null in others."""

    @property
    def diverts(self) -> bool:
        """Whether rows against `order_by` leave on the late port, instead of failing the flow."""
        return "late" in self.outputs


@dataclass(frozen=True)
class Union(Operator):
    """Join streams into one, rows in the order of their positions."""

    kind: ClassVar[Kind] = "stateless"


@dataclass(frozen=True)
class Sink(Operator):
    """Take rows out. `writer` says where to; the engine knows how."""

    kind: ClassVar[Kind] = "sink"
    writer: Any = None
    outputs: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Key:
    """Say how a row's key is found, by field names or a function, and how keys are spread over shards."""

    fields: tuple[str, ...] = ()
    function: Callable[[Row], Any] | None = None
    ranges: Ranges | None = None
    """None: by their hash."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which the key appears in rows that Penstock makes."""
        return self.fields or ("key",)

    def values(self, key: Any) -> tuple[Any, ...]:
        """Return the key as one value per name."""
        return key if len(self.fields) > 1 else (key,)

    def check(self, key: Any) -> None:
        """Refuse a key that has no shard: of a type without an encoding, or that cannot be compared with bounds."""
        hash_value(key)
        if self.ranges is not None:
            self.ranges.of_value(key)

    def check_all(self, keys: Sequence[Any]) -> None:
        check_keys(keys)
        if self.ranges is not None:
            self.ranges.of_values(keys)

    def shard(self, key: Any, count: int) -> int:
        if self.ranges is None:
            return hash_value(key) % count
        return self.ranges.shards(self.ranges.of_value(key), count)

    def shards(self, keys: Sequence[Any], count: int) -> Ints:
        if self.ranges is None:
            return (hash_values(keys) % np.uint64(count)).astype(np.int64)
        return self.ranges.shards(self.ranges.of_values(keys), count)

    def column_shards(self, columns: Sequence[pa.Array], count: int) -> Ints:
        if self.ranges is None:
            return hash_shards(columns, count)
        return self.ranges.shards(self.ranges.of_columns(columns), count)

    def __str__(self) -> str:
        return ", ".join(self.fields) if self.fields else getattr(self.function, "__name__", "function")


@dataclass(frozen=True)
class Keyed(Operator):
    """Run a `Logic` over the rows of each key (partitioned), or over the whole stream (stateful)."""

    logic: Logic = None  # type: ignore[assignment]
    keys: tuple[Key, ...] | None = None
    by_arrival: bool = False
    """Whether it goes by the time of day that ingress has logged, whatever times its rows have."""

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return "partitioned" if self.keys is not None else "stateful"

    def shard(self, key: Any, count: int) -> int:
        """Return the shard of a key, out of `count`: the same for the rows of every input port."""
        return 0 if self.keys is None else self.keys[0].shard(key, count)

    def most_shards(self, count: int) -> int:
        """Return how many of `count` shards can have keys: at most as many as there are ranges."""
        ranges = None if self.keys is None else self.keys[0].ranges
        return count if ranges is None else min(count, len(ranges))


class Context:
    """What a `Logic` sees of the row or timer at hand, and where it puts what it emits.

    An engine sets the first group before each call and empties the second group after it.
    """

    __slots__ = (
        "closed",
        "emitted",
        "forgotten",
        "go_on",
        "keeps_frames",
        "key",
        "kind",
        "position",
        "registered",
        "time",
        "watermark",
    )

    def __init__(self, kind: TimeKind = "integer") -> None:
        self.kind = kind
        self.key: Any = None
        self.time: Ticks = 0
        """Of the row or timer at hand; for a timer at FOREVER the watermark just before the end."""
        self.watermark: Ticks = BEFORE
        self.position: Position = 0
        self.emitted: list[tuple[int, Row, Ticks]] = []
        self.registered: list[tuple[Ticks, Position]] = []
        self.forgotten = 0
        """Keys so far whose time was over; the engine takes the number when it likes, and sets it back."""
        self.closed: frozenset[int] = frozenset()
        """The ports that nothing can come to any more; set for a logic that `waits` only."""
        self.go_on: Callable[[], bool] | None = None
        """Tells whether there is still time; once there is none, a logic that `waits` may return `Paused`.

        None: there is no limit, and the caller cannot take `Paused`.
        """
        self.keeps_frames = False
        """Whether the state stays in this process for good, so that it may hold what cannot be saved."""

    def emit(self, row: Row, time: Ticks | None = None, port: int = 0) -> None:
        """Send a row out, by default at the event time of the row or timer at hand."""
        self.emitted.append((port, row, self.time if time is None else time))

    def timer(self, fire: Ticks, opened: Position) -> Ticks:
        """Ask for `on_timer` once the watermark is at `fire`; a time that has passed means the next mark."""
        fire = max(fire, self.watermark + 1)
        self.registered.append((fire, opened))
        return fire

    def show(self, moment: Ticks) -> Any:
        return ticks_to_time(moment, self.kind)


class Paused:
    """What `on_row`, `on_timer`, `on_close` may return instead of a state: there is more to do, when there is time."""

    __slots__ = ()

    def resume(self) -> Any:
        """Do it; return the key's new state, or again that there is more to do."""
        raise NotImplementedError

    def drop(self) -> None:
        """Let go of it: it will not be resumed."""


class Logic:
    """What a keyed operator does with one key's rows, timers and state.

    State is whatever `on_row` and `on_timer` return: it must pickle, and None means that the key is
    forgotten. A logic object itself holds parameters only, so that one object serves every key, shard and
    process.
    """

    emits: ClassVar[Emits] = "many"
    """one: exactly one row for a row; many: any number; timed: rows also come out when a mark passes."""
    takes_once: ClassVar[bool] = False
    """Whether `fold` and `fold_many` take each row once, so that rows may be made as they are taken."""
    ports: int = 1
    mark_delay: Ticks = 0
    """By how much the marks that leave are lower than those that arrive (a sorter holds rows back)."""
    needs_time: bool = False
    waits: ClassVar[bool] = False
    """Whether it waits for rows of its ports, as co-routines do; only without keys.

    It is then told when a port closes before the others, by `on_close`. One row may take it long, so that an engine
    that shares out time looks at the clock between rows, and takes `Paused`.
    """
    mark_grid: tuple[Ticks, Ticks] | None = None
    """(period, offset): only marks that cross a multiple of the period matter. None: every mark does."""

    def fold(
        self, states: MutableMapping[Any, Any], keys: Sequence[Any], rows: Sequence[Row], out: list[Row], careful: bool
    ) -> None:
        """Run rows in order where `emits = "one"`: the tight loop. On an error the rows in `out` tell the row."""
        raise NotImplementedError  # only logics that emit one row for a row are folded

    def flat_rows(self, for_columns: bool) -> FlatRows | None:
        """Return what `fold` can put values in, which become columns or rows later; None where it makes rows."""
        return None

    def fold_many(
        self,
        states: MutableMapping[Any, Any],
        keys: Sequence[Any],
        rows: Sequence[Row],
        out: list[Row],
        counts: list[int],
        careful: bool,
    ) -> None:
        """Run rows in order where `emits = "many"`, and count what each gave. On an error len(counts) tells the row."""
        raise NotImplementedError  # the others are folded, or have timers

    def on_row(self, context: Context, state: Any, port: int, row: Row) -> Any:
        """Take one row; emit through the context; return the key's new state."""
        raise NotImplementedError

    def on_timer(self, context: Context, state: Any, fire: Ticks, opened: Position) -> Any:
        """Take a timer that is due; return the key's new state."""
        return state

    def on_close(self, context: Context, state: Any, port: int) -> Any:
        """Take the end of one port while others go on; return the new state."""
        return state

    def expire(self, state: Any, fire: Ticks, opened: Position) -> Any:
        """Return the state without a timer that was due, also where `on_timer` failed and is passed over."""
        return state

    def moved(self, state: Any, opened: Position) -> Ticks | None:
        """Return the time that a timer has moved to where it is set again only when it fires, None if it has not.

        Asked of a timer whose mark another process has seen, so that `on_timer` was not called for it here.
        """
        return None

    def check_restarts(self, name: str, why: str) -> None:
        """Refuse, by a FlowError, what cannot begin again with the state that was saved; `why` says who saves it."""

    def pressure(self, state: Any) -> tuple[Collection[int], Collection[int] | None]:
        """Tell which ports of a logic that `waits` hold many rows that it does not need yet, and which it waits for.

        None where it does not wait, but is at work: then these are all ports that hold many rows.
        """
        return (), ()

    @property
    def room(self) -> int | None:
        """How many more rows a port of a logic that `waits` takes when it is almost full; None for any number."""
        return None

    def let_go(self, state: Any) -> None:
        """Close what a state holds besides what is saved; it will not be used again."""

    def timers(self, state: Any) -> Iterable[tuple[Ticks, Position]]:
        """List the timers that a key's state is waiting for; read when state is loaded."""
        return ()

    def output_type(self, inputs: Sequence[RowType | None], time: TimeKind) -> RowType | None:
        """Tell the type of the rows that come out of port 0, as far as it is known before the run."""
        return None

    def taken(self) -> list[Any]:
        """List what it computes of each row by expressions, which an engine may have computed ahead."""
        return []
