"""Draw whole flows: sources of every kind, operators, settings, and where the run ends and begins again.

What the input sequence is, is worked out here in plain Python, from what docs/guarantees.md says and from nothing of
the engines; the reference engine then runs it row by row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PenstockError
from penstock.flow import Flow
from penstock.plan.plan import make_plan
from penstock.sequential import SequentialEngine

from .random_sources import BOUNDED, GOING_ON, ON_SPARK, Origin, Value
from .random_steps import ALL_KINDS, LOOKED_AT
from .strategies import FIELDS, Step, declared

CRASHES = (
    "stop",
    "before the intent",
    "before the job",
    "after the job",
    "before the sinks",
    "after the sinks",
    "after the commit",
    "before the directories",
    "after the directories",
    "after all",
)
"""How a run ends before its time."""


@dataclass(frozen=True)
class Life:
    """One run of a flow: how it is set, and after how many epochs it ends, if not by itself."""

    tasks: int
    epoch_rows: int
    ends: str | None = None
    after: int = 1


@dataclass(frozen=True)
class Taken:
    """What an epoch took, where that is an input of its own: rows of each source, and the sources that ended."""

    rows: dict[str, int]
    ends: tuple[str, ...]


@dataclass(frozen=True)
class Whole:
    """A flow, its input, and how it runs."""

    origins: tuple[Origin, ...]
    ordered: bool
    diverts: bool
    steps: tuple[Step, ...]
    engine: str
    lives: tuple[Life, ...]
    settings: tuple[tuple[str, Any], ...] = ()
    seed: int = 0

    @property
    def arriving(self) -> bool:
        """Tell whether who came first is an input of its own."""
        return not self.ordered and len(self.origins) > 1 and any(origin.goes_on for origin in self.origins)

    @property
    def never_ends(self) -> bool:
        """Tell whether the run must be stopped."""
        return any(origin.follows for origin in self.origins)

    def flow(self, directory: Path, *, keep: bool, session: Any = None) -> Flow:
        """Build the flow; with `keep`, sinks are directories."""
        flow = Flow("random")
        order: dict[str, Any] = {}
        if self.ordered:
            order = {"order_by": "t", "on_late": "divert"} if self.diverts else {"order_by": "t"}
        streams = []
        for i, origin in enumerate(self.origins):
            reader = origin.reader(directory / f"s{i}", session)
            stream = flow.source(f"s{i}", reader, time="t", slack=origin.slack, **order)
            given = [stream.late, stream] if self.ordered and self.diverts else [stream]
            if any(v is None for *_, v in origin.rows):
                given = [each.map(_filled, schema=FIELDS) for each in given]
            streams += given
        for step in self.steps:
            chosen = [streams[number % len(streams)] for number in step.reads]
            streams += ALL_KINDS[step.kind].build(step, chosen)
        read_ports = {(p.node, p.index) for node in flow.nodes.values() for p in node.inputs}
        unread = [
            (f"out {number}", declared(stream) if keep else stream)
            for number, stream in enumerate(streams)
            if (stream.port.node, stream.port.index) not in read_ports
        ]
        for name, stream in [*unread, *LOOKED_AT.get(flow, ())]:
            stream.sink(name, *[ps.write.parquet(str(directory / "sinks" / name))] * keep)
        return flow

    # What should come out ---------------------------------------------------------------------------------------

    def sequence(self, log: list[Taken]) -> Iterator[tuple[str, int, int, Any]]:
        """Give the input sequence: (row, late or end; source; part; row)."""
        if self.ordered:
            return self._merged()
        if self.arriving:
            return self._logged(log)
        return self._turns()

    def _turns(self) -> Iterator[tuple[str, int, int, Any]]:
        rows = [origin.with_parts for origin in self.origins]
        for turn in range(max(map(len, rows)) + 1):
            for source, mine in enumerate(rows):
                if turn < len(mine):
                    yield "row", source, *mine[turn]
                elif turn == len(mine) and not self.origins[source].follows:
                    yield "end", source, 0, None

    def _merged(self) -> Iterator[tuple[str, int, int, Any]]:
        waiting: list[tuple[Any, ...]] = []
        shown: dict[tuple[int, int], int] = {}
        for source, origin in enumerate(self.origins):
            if not origin.rows and not origin.follows:
                yield "end", source, 0, None
            for place, (part, row) in enumerate(origin.with_parts):
                time: int = row["t"]  # type: ignore[assignment]
                late = time < shown.get((source, part), time)
                shown[source, part] = max(time, shown.get((source, part), time))
                waiting.append((shown[source, part], source, part, place, late, row))
        waiting.sort(key=lambda each: each[:4])
        # One that may still give rows is waited for: nothing comes that is behind what it has shown.
        followed = [(i, part) for i, origin in enumerate(self.origins) if origin.follows for part in origin.part_names]
        left = [len(origin.rows) for origin in self.origins]
        for time, source, part, _, late, row in waiting:
            for other in followed:
                top = shown.get(other)
                if other != (source, part) and (top is None or (top, *other) < (time, source, part)):
                    return
            yield "late" if late else "row", source, part, row
            left[source] -= 1
            if not left[source] and not self.origins[source].follows:
                yield "end", source, 0, None

    def _logged(self, log: list[Taken]) -> Iterator[tuple[str, int, int, Any]]:
        rows = [iter(origin.with_parts) for origin in self.origins]
        for taken in log:
            for source in range(len(self.origins)):
                for _ in range(taken.rows.get(f"s{source}", 0)):
                    yield "row", source, *next(rows[source])
            for source in range(len(self.origins)):
                if f"s{source}" in taken.ends:
                    yield "end", source, 0, None

    def expected(self, flow: Flow, log: list[Taken]) -> dict[str, list[Any]] | str:
        """Return what comes out at every sink, or what the flow fails with, by the reference engine."""
        engine = SequentialEngine(make_plan(flow))
        types = {node.name: node.types[0] for node in engine.plan.sources}
        for i, origin in enumerate(self.origins):
            engine.know(f"s{i}", origin.part_names)
        try:
            for what, source, part, row in self.sequence(log):
                name = f"s{source}"
                declared_type = types[name]
                assert declared_type is not None
                if what == "row":
                    engine.row(name, declared_type.roundtrip(row), part)
                elif what == "late":
                    engine.late(name, declared_type.roundtrip(row))
                else:
                    engine.end(name)
        except PenstockError as error:
            return f"{type(error).__name__}: {error}"
        finally:
            engine.close()
        return engine.results

    def show(self) -> str:
        """Write the flow so that a person can follow it."""
        lines = [f"s{i}: {origin}" for i, origin in enumerate(self.origins)]
        how = "order_by=t" if self.ordered else "as they come" if self.arriving else "in turn"
        lines += [f"{how}, late rows {'apart' if self.diverts else 'fail'}", f"{self.engine} {self.settings}"]
        return "\n".join([*lines, *map(repr, self.lives), *map(repr, self.steps)])


def _filled(row: Any) -> Any:
    return row.replace(v=4) if row.v is None else row


# Drawing --------------------------------------------------------------------------------------------------------

_SMALL = st.tuples(st.integers(0, 25), st.integers(0, 2), st.integers(-2, 5))
_NULLS = st.tuples(st.integers(0, 25), st.integers(0, 2), st.none() | st.integers(-2, 5))


def _nulls_first(row: tuple[int | None, ...]) -> tuple[tuple[bool, int], ...]:
    return tuple((value is not None, value or 0) for value in row)


@st.composite
def drawn_origins(draw: st.DrawFn, kinds: list[str], ordered: bool) -> Origin:
    """Draw one source."""
    kind = draw(st.sampled_from(kinds))
    values = _NULLS if draw(st.integers(0, 5)) == 5 else _SMALL
    rows: list[Value] = draw(st.lists(values, min_size=draw(st.sampled_from([6, 0])), max_size=12))
    if draw(st.integers(0, 4)) == 4:  # much longer than others
        rows = [(t + 9 * i, k, v) for i in range(4) for t, k, v in rows]
    if ordered and not kind.endswith("parts") and (kind == "batch frame" or draw(st.integers(0, 2))):
        rows.sort(key=lambda row: row[0])
        if rows and kind != "batch frame" and draw(st.booleans()):  # one of the first comes late
            rows.insert(draw(st.integers(0, len(rows) - 1)), rows.pop(0))
    if ordered and kind == "batch frame":  # Spark sorts it, and equal times in any order
        rows = [(i, *row[1:]) for i, row in enumerate(rows)]
    if kind in ON_SPARK and not rows:
        rows = [(3, 1, 2)]
    parts: list[tuple[tuple[int, int], ...]] = []
    if kind.endswith("parts"):
        left = len(rows)
        while left:
            given = draw(st.lists(st.sampled_from([0, 1, 7]), min_size=1, max_size=3, unique=True))
            counts = [(part, min(left, 1 + n)) for n, part in enumerate(sorted(given)) if left > n]
            parts.append(tuple(counts[:1] if sum(c for _, c in counts) > left else counts))
            left -= sum(count for _, count in parts[-1])
        if ordered and draw(st.booleans()):  # each part by itself: one that comes second in an epoch is not late
            names = [part for asked in parts for part, count in asked for _ in range(count)]
            ranks = {
                part: iter(sorted((r for r, p in zip(rows, names, strict=True) if p == part), key=_nulls_first))
                for part in set(names)
            }
            rows = [next(ranks[part]) for part in names]
    return Origin(
        kind,
        draw(st.integers(0, 6)),
        tuple(rows),
        draw(st.sampled_from([3, 1, 4, 20])),
        draw(st.sampled_from([3, 1, 2])),
        tuple(parts),
    )


@st.composite
def drawn_lives(draw: st.DrawFn, crashes: tuple[str, ...]) -> tuple[Life, ...]:
    """Draw how often a flow is run, how each run is set and how all but the last end."""
    count = draw(st.sampled_from([2, 1, 3]))
    lives = []
    for number in range(count):
        tasks, rows = draw(st.sampled_from([2, 1, 3])), draw(st.sampled_from([3, 2, 5, 1, 7, 1000]))
        ends = draw(st.sampled_from(crashes)) if number < count - 1 else None
        lives.append(Life(tasks, rows, ends, draw(st.integers(1, 4)) if ends else 1))
    return tuple(lives)


THREADS: dict[str, list[Any]] = {
    "model": ["dynamic", "manual", "dedicated", "bound"],
    "batch_rows": [2, 1, 3, 7, 1000, None],
    "threads": [2, 1, 3],
    "partitioned": ["hybrid", "partitioned", "shared", "executor"],
    "replicas": [None, 2],
}


ENGINES = ("inline", "threads", "inline", "threads", "inline", "sequential")


@st.composite
def drawn_wholes(draw: st.DrawFn, *, engines: tuple[str, ...] = ENGINES) -> Whole:
    """Draw a flow, its input, and how it runs."""
    engine = draw(st.sampled_from(engines))
    mode = draw(st.sampled_from(["order", "turns", "alone", "parts", "arriving"]))
    if (mode == "arriving" and engine != "inline") or (mode == "parts" and engine == "spark"):
        mode = "order"
    ordered = mode == "order"
    count = 1 if mode in ("alone", "parts") else draw(st.integers(2, 3))
    bounded, going_on = list(BOUNDED), list(GOING_ON)
    followed = [kind for kind in going_on if kind.startswith("followed")]
    if engine == "spark":
        bounded, followed = [*ON_SPARK[2:], *bounded], [*ON_SPARK[:2], *followed]
        going_on = [*followed, "rate"]
    if engine == "sequential":  # nobody stops it
        followed, going_on = [], ["rate"]
    match mode:
        case "turns":
            kinds = [bounded] * count
        case "alone":
            ordered = draw(st.booleans())
            kinds = [going_on]
        case "parts":
            ordered = draw(st.booleans())
            kinds = [["parts"]]
        case "order":
            # Several parts, each of which may be what all others wait for.
            opened = ["open parts"] * 2 if engine in ("inline", "threads") else []
            kinds = [[*bounded, *followed, *opened]] * count
        case _:
            kinds = [going_on, *[[*bounded, *followed]] * (count - 1)]
    origins = tuple(draw(drawn_origins(each, ordered)) for each in kinds)
    lives, settings = (Life(1, draw(st.sampled_from([3, 1, 1000]))),), ()
    if engine in ("inline", "spark"):
        lives = draw(drawn_lives(CRASHES if engine == "inline" else ("stop",)))
    elif engine == "threads":
        settings = tuple((name, draw(st.sampled_from(values))) for name, values in THREADS.items())
    diverts = not ordered or draw(st.integers(0, 7)) < 7
    apart = 2 if ordered and diverts else 1  # late rows have a stream of their own
    steps = draw(drawn_steps([apart * number + apart - 1 for number in range(count)]))
    return Whole(origins, ordered, diverts, steps, engine, lives, settings, draw(st.integers(0, 3)))


MEETING = ("united", "in_runs", "paired", "joined", "joined_oddly", "gated", "joined_closely", "connected")
"""Steps that show in which order the rows of their inputs came."""


@st.composite
def drawn_steps(draw: st.DrawFn, sources: list[int]) -> tuple[Step, ...]:
    """Draw the operators of a flow; `sources` are the numbers of the streams that leave its sources."""
    # What comes first is what a flow shrinks to.
    names = sorted(ALL_KINDS, key=lambda name: (name not in ("mapped", "united", "windowed"), name))
    allowed = {name: ALL_KINDS[name].most for name in names if name != "failing"}
    chosen: list[Step] = []
    for number in range(draw(st.integers(1, 5))):
        meets = not number and len(sources) > 1 and draw(st.integers(0, 2)) < 2
        name = draw(st.sampled_from(MEETING if meets else [name for name, left in allowed.items() if left]))
        allowed[name] -= 1
        low, high = ALL_KINDS[name].reads
        # Streams are counted from the newest: long chains are more telling than many short ones.
        reads = sources[:high] if meets else draw(st.lists(st.integers(-4, -1), min_size=low, max_size=high))
        chosen.append(Step(name, tuple(reads), draw(st.integers(0, 4)), draw(st.integers(0, 4)), draw(st.booleans())))
    return tuple(chosen)
