"""Draw flows at random: sources, operators in any order, fan-out, fan-in, windows, and a cut.

All streams carry rows (t, k, v) of small integers, so that any operator can follow any other. A flow is drawn as a list
of steps; each reads one or several of the streams made so far, and adds those that it makes. What nobody reads in the
end goes to a sink.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from penstock import read
from penstock.flow import Flow, KeyedStream, Stream
from penstock.operators import aggregates as agg
from penstock.operators.process import Process, ProcessContext
from penstock.operators.windows import Count, Session, Sliding, Tumbling

from .engines import Epochs
from .inline import Arriving

FIELDS = {"t": int, "k": int, "v": int}


@dataclass(frozen=True)
class Step:
    """One operator: what it reads (numbers of streams, counted round), two small numbers and a choice."""

    kind: str
    reads: tuple[int, ...]
    a: int
    b: int
    choice: bool


@dataclass(frozen=True)
class Input:
    """One source: how far its times may be behind, and its rows in epochs."""

    slack: int
    epochs: tuple[tuple[tuple[int, int, int], ...], ...]


@dataclass(frozen=True)
class Drawn:
    """A flow with its input."""

    inputs: tuple[Input, ...]
    ordered: bool
    turns: bool
    steps: tuple[Step, ...]

    @property
    def epochs(self) -> Epochs:
        """Return the rows of each source, epoch by epoch."""
        count = len(self.inputs[0].epochs)
        return [{f"s{i}": _rows(given.epochs[epoch]) for i, given in enumerate(self.inputs)} for epoch in range(count)]

    @property
    def rows(self) -> dict[str, list[Any]]:
        """Return the rows of each source."""
        return {f"s{i}": [row for part in given.epochs for row in _rows(part)] for i, given in enumerate(self.inputs)}

    def flow(self) -> Flow:
        """Build the flow."""
        flow = Flow("random")
        order = {"order_by": "t", "on_late": "divert"} if self.ordered else {}
        # Where they have no order, sources go on: then their rows come in the epochs that were drawn.
        reader = read.Items if self.ordered or self.turns else Arriving
        streams = [
            flow.source(f"s{i}", reader(rows, schema=FIELDS), time="t", slack=self.inputs[i].slack, **order)
            for i, rows in enumerate(self.rows.values())
        ]
        if self.ordered:
            streams = [each for stream in streams for each in (stream.late, stream)]
        for step in self.steps:
            chosen = [streams[number % len(streams)] for number in step.reads]
            streams += KINDS[step.kind].build(step, chosen)
        read_ports = {(p.node, p.index) for node in flow.nodes.values() for p in node.inputs}
        for number, stream in enumerate(streams):
            if (stream.port.node, stream.port.index) not in read_ports:
                stream.sink(f"out {number}")
        return flow

    def show(self) -> str:
        """Write the flow so that a person can follow it."""
        lines = [f"s{i}: slack={given.slack} epochs={given.epochs}" for i, given in enumerate(self.inputs)]
        lines += ["order_by=t" if self.ordered else "in turn" if self.turns else "as they come"]
        lines += [
            f"{name} <- {', '.join(f'{p.node}.{p.index}' for p in node.inputs)}: {type(node.operator).__name__}"
            for name, node in self.flow().nodes.items()
            if node.inputs
        ]
        return "\n".join([*lines, *map(repr, self.steps)])


def _rows(values: tuple[tuple[int, int, int], ...]) -> list[dict[str, int]]:
    return [dict(zip(FIELDS, value, strict=True)) for value in values]


# Operators ------------------------------------------------------------------------------------------------------

Build = Callable[[Step, list[Stream]], list[Stream]]


@dataclass(frozen=True)
class Kind:
    """How a step is built, and how often it may be in one flow: some multiply rows."""

    build: Build
    reads: tuple[int, int]
    most: int


KINDS: dict[str, Kind] = {}


def kind(*, reads: tuple[int, int] = (1, 1), most: int = 9) -> Callable[[Build], Build]:
    """Register a kind of step."""

    def register(build: Build) -> Build:
        KINDS[build.__name__] = Kind(build, reads, most)
        return build

    return register


def declared(stream: Stream) -> Stream:
    """Give a stream its type back where it was lost."""
    return stream if stream.type is not None else stream.map(lambda r: r, schema=FIELDS)


def keyed(step: Step, stream: Stream) -> KeyedStream | Stream:
    """Key a stream by a field, by a function, each by hash or in ranges, or not at all."""

    def pair(row: Any) -> tuple[int, int]:
        return row.k, row.v % 2

    return [
        stream.key_by("k"),
        stream.key_by(pair),
        stream,
        stream.key_by("k", ranges=[1, 2]),
        stream.key_by(pair, ranges=[(0, 1), (1,), (2, 1)]),
    ][step.a % 5]


def again(stream: Stream, *names: str) -> Stream:
    """Make rows (t, k, v) of rows with other fields."""
    return stream.map(lambda r: {"t": 0, "k": 1, "v": sum(hash_of(r[n]) for n in names) % 7}, schema=FIELDS)


def hash_of(value: Any) -> int:
    """Make a small number of a value; order matters."""
    if isinstance(value, (list, tuple)):
        return sum((place + 1) * hash_of(part) for place, part in enumerate(value))
    return 0 if value is None else int(value)


@kind()
def mapped(step: Step, streams: list[Stream]) -> list[Stream]:
    a, b = step.a, step.b
    return [streams[0].map(lambda r: r.replace(v=r.v * a + b, k=(r.k + b) % 3), schema=FIELDS if step.choice else None)]


@kind()
def filtered(step: Step, streams: list[Stream]) -> list[Stream]:
    a, b = step.a + 2, step.b
    return [streams[0].filter(lambda r: r.v % a != b)]


@kind(most=2)
def flattened(step: Step, streams: list[Stream]) -> list[Stream]:
    a = step.a
    return [
        streams[0].flat_map(
            lambda r: [r.replace(v=r.v + i) for i in range((r.v + a) % 3)], schema=FIELDS if step.choice else None
        )
    ]


@kind()
def expressions(step: Step, streams: list[Stream]) -> list[Stream]:
    stream = declared(streams[0])
    if step.choice:
        return [stream.filter(pc.field("v") > step.a - 1)]
    return [stream.select("t", k=pc.field("k"), v=pc.field("v") + step.a)]


@kind()
def batches(step: Step, streams: list[Stream]) -> list[Stream]:
    def negated(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(2, "v", pc.negate(batch.column("v")))

    def repeated(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
        index = [i for i, v in enumerate(batch.column("v").to_pylist()) for _ in range(v % 2 + (v % 3 == 0))]
        return batch.take(pa.array(index, pa.int64())), index

    return [declared(streams[0]).map_batches(negated if step.choice else repeated)]


@kind()
def split(step: Step, streams: list[Stream]) -> list[Stream]:
    a = step.a
    return list(streams[0].split(lambda r: r.v > a, lambda r: r.k == 1))


@kind(reads=(2, 3), most=3)
def united(step: Step, streams: list[Stream]) -> list[Stream]:
    return [streams[0].union(*streams[1:])]


@kind(reads=(2, 2), most=2)
def merged(step: Step, streams: list[Stream]) -> list[Stream]:
    stream = streams[0].merge(*streams[1:], by="t")
    return [stream, stream.late] if step.choice else [stream]


@kind()
def sorted_(step: Step, streams: list[Stream]) -> list[Stream]:
    stream = streams[0].sort(slack=step.a * 2)
    return [stream, stream.late] if step.choice else [stream]


@kind()
def scanned(step: Step, streams: list[Stream]) -> list[Stream]:
    def total(state: int, row: Any) -> tuple[int, Any]:
        return (state * 3 + row.v) % 101, row.replace(v=state)

    return [keyed(step, streams[0]).scan(total, 0, schema=FIELDS if step.choice else None)]


@kind(most=2)
def flat_scanned(step: Step, streams: list[Stream]) -> list[Stream]:
    def changes(last: int, row: Any) -> tuple[int, list[Any]]:
        return row.v, [row.replace(v=v) for v in range(last % 2, row.v % 3)]

    return [keyed(step, streams[0]).flat_scan(changes, 0, schema=FIELDS if step.choice else None)]


@kind()
def reduced(step: Step, streams: list[Stream]) -> list[Stream]:
    return [keyed(step, streams[0]).reduce(lambda a, b: a.replace(v=(a.v * 2 + b.v) % 31))]


@kind()
def aggregated(step: Step, streams: list[Stream]) -> list[Stream]:
    results = {"n": agg.count(), "s": agg.sum("v"), "top": agg.max("v"), "rows": agg.collect("v")}
    return [again(keyed(step, streams[0]).aggregate(**results), *results)]


class Timers(Process):
    """Emit on rows, on timers that renew themselves, and at the end."""

    def __init__(self, delay: int, ends: bool) -> None:
        self.delay, self.ends = delay, ends

    def on_row(self, row: Any, context: ProcessContext) -> None:
        context.state = (context.state or 0) + row.v
        if row.v % 2:
            context.emit(row.replace(v=context.state))
        if row.v == 4:
            context.state = None
        context.set_timer(context.time + self.delay - 1)

    def on_timer(self, time: Any, context: ProcessContext) -> None:
        context.emit({"t": time, "k": 0, "v": (context.state or 0) % 5})
        if (context.state or 0) % 3 == 1:
            context.state += 1
            context.set_timer(time + self.delay)

    def on_end(self, context: ProcessContext) -> None:
        if self.ends:
            context.emit({"t": context.time, "k": 1, "v": context.state or 0})


@kind()
def processed(step: Step, streams: list[Stream]) -> list[Stream]:
    return [keyed(step, streams[0]).process(Timers(step.b, step.choice), schema=FIELDS)]


@kind()
def windowed(step: Step, streams: list[Stream]) -> list[Stream]:
    size = step.b + 1
    spec = [Tumbling(size * 2, step.b), Sliding(size * 2, size), Session(size), Count(size)][step.b % 4]
    window = keyed(step, streams[0]).window(spec)
    if step.choice:
        results = {"n": agg.count(), "s": agg.sum("v"), "rows": agg.collect("v")}
        stream = window.aggregate(**results)
        made = again(stream, *results)
    else:
        stream = window.apply(
            lambda w, rows: {"t": hash_of(w.start), "k": len(rows), "v": hash_of([r.v for r in rows])}, schema=FIELDS
        )
        made = stream
    return [made] if isinstance(spec, Count) else [made, stream.late]


@kind(reads=(2, 2), most=1)
def joined(step: Step, streams: list[Stream]) -> list[Stream]:
    def combine(left: Any, right: Any) -> Any:
        return {"t": 0, "k": (left or right).k, "v": ((left.v if left else 50) * 3 + (right.v if right else 70)) % 41}

    how: Any = ["inner", "left", "right", "outer"][step.a % 4]
    size = step.b + 2
    spec = Sliding(size, max(1, size // 2)) if step.choice else Tumbling(size)
    stream = streams[0].key_by("k").join(streams[1].key_by("k"), spec, combine, how=how, schema=FIELDS)
    return [stream, stream.late]


@kind()
def fragile(step: Step, streams: list[Stream]) -> list[Stream]:
    a = step.a

    def divide(row: Any) -> Any:
        return row.replace(v=12 // (row.v - a))

    def divide_sum(total: int, row: Any) -> tuple[int, Any]:
        return total + row.v, row.replace(v=total // (row.v - a))

    policy: Any = "dead_letter" if step.choice else "skip"
    if step.b % 2:
        stream = streams[0].map(divide, on_error=policy, schema=FIELDS)
    else:
        stream = streams[0].key_by("k").scan(divide_sum, 0, on_error=policy, schema=FIELDS)
    if not step.choice:
        return [stream]
    return [stream, stream.errors.map(lambda e: {"t": 0, "k": 2, "v": len(e.row)}, schema=FIELDS)]


@kind(most=2)
def failing(step: Step, streams: list[Stream]) -> list[Stream]:
    """Fail the flow; drawn only where that is asked for."""
    a = step.a + step.b

    def check(row: Any) -> Any:
        if row.v % 7 == a % 7:
            raise ValueError(f"v is {row.v}")
        return row

    return [streams[0].map(check)]


# Drawing --------------------------------------------------------------------------------------------------------

_TELLING = {"windowed", "processed", "united", "sorted_", "joined", "merged", "fragile", "failing", "flattened"}
_VALUES = st.tuples(st.integers(0, 25), st.integers(0, 2), st.integers(-2, 5))


@st.composite
def drawn_inputs(draw: st.DrawFn, sources: int | None) -> tuple[tuple[Input, ...], bool, bool]:
    """Draw the rows of some sources, the way they are cut, and whether they have an order, or take turns.

    Most rows of ordered sources are in order; the others are late.
    """
    count = sources or draw(st.integers(1, 3))
    epochs = draw(st.integers(1, 6))
    ordered = draw(st.booleans()) if sources is None else False
    turns = not ordered and draw(st.booleans())
    inputs = []
    for _ in range(count):
        rows = draw(st.lists(_VALUES, min_size=draw(st.sampled_from([5, 0])), max_size=10))
        if ordered and draw(st.booleans()):
            rows.sort(key=lambda row: row[0])
        parts: list[list[tuple[int, int, int]]] = [[] for _ in range(epochs)]
        for row in rows:
            parts[draw(st.integers(0, epochs - 1))].append(row)
        inputs.append(Input(draw(st.integers(0, 6)), tuple(map(tuple, parts))))
    return tuple(inputs), ordered, turns


@st.composite
def drawn_flows(draw: st.DrawFn, *, sources: int | None = None, fails: bool = False, steps: int = 6) -> Drawn:
    """Draw a flow with its input."""
    inputs, ordered, turns = draw(drawn_inputs(sources))
    # Hypothesis likes what comes first in a list: that is what can go wrong in most ways.
    names = sorted(KINDS, key=lambda name: (name not in _TELLING, name))
    allowed = {name: KINDS[name].most for name in names if fails or name != "failing"}
    chosen: list[Step] = []
    for _ in range(draw(st.integers(2, steps))):
        name = draw(st.sampled_from([name for name, left in allowed.items() if left]))
        allowed[name] -= 1
        low, high = KINDS[name].reads
        # Streams are counted from the newest: long chains are more telling than many short ones.
        reads = draw(st.lists(st.integers(-4, -1), min_size=low, max_size=high))
        chosen.append(Step(name, tuple(reads), draw(st.integers(0, 4)), draw(st.integers(0, 4)), draw(st.booleans())))
    return Drawn(inputs, ordered, turns, tuple(chosen))
