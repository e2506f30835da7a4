"""Build flows of busy operators in the shapes that Streams and C-Stream measure.

The shapes are those that the simulator runs (`penstock.lab.sim.graphs`), so that a graph is described once and both can
be compared. A row goes through a graph by its serial number: a split deals rows out in turn, the next split below
deals out those that it gets, and fan-in puts them together again in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from penstock import read
from penstock.annotated import Amount, Count, Rate, checked
from penstock.flow import Flow, Stream
from penstock.lab.sim import graphs
from penstock.lab.workloads.synthetic.busy import Kind, Wait, Work, make_work
from penstock.lab.workloads.synthetic.draws import copies

Shape = Literal["pipeline", "chain", "data-parallel", "mixed", "tree", "reverse-tree"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
"""`pipeline` (Streams) and `chain` (C-Stream) are one shape."""

SCHEMA = {"serial": int}


@checked
def graph(
    shape: Shape = "pipeline",
    *,
    width: Count = 2,
    depth: Count = 4,
    cost_us: Rate = 100.0,
    kind: Kind = "numpy",
    selectivity: Rate = 1.0,
    rows: Amount | None = 10_000,
    source: Any = None,
    sink: Any = None,
    seed: int = 1,
) -> Flow:
    """Build a graph of busy operators, each of which costs so many microseconds a row; its sink is `out`.

    `width` is the number of operators side by side, or of branches in a tree; `depth` the number one after the
    other, or of levels. A pipeline has no width, and a data-parallel graph no depth. `selectivity` is how many rows
    each operator makes of one, on average. Without a `source` (any reader of rows with a `serial`) there are `rows`
    rows, made as fast as they are taken, or without end if None. `sink` is a writer; by default rows stay in memory.
    """
    described = describe(shape, width, depth, cost_us / 1e6, selectivity)
    return build(described, kind=kind, rows=rows, source=source, sink=sink, seed=seed)


def describe(shape: Shape, width: int, depth: int, cost: float, selectivity: float = 1.0) -> graphs.Graph:
    """Return a shape as the simulator knows it; costs are in seconds."""
    makers: dict[str, Callable[[], graphs.Graph]] = {
        "pipeline": lambda: graphs.pipeline(depth, cost),
        "chain": lambda: graphs.pipeline(depth, cost),
        "data-parallel": lambda: graphs.data_parallel(width, cost),
        "mixed": lambda: graphs.mixed(width, depth, cost),
        "tree": lambda: graphs.tree(depth, width, cost),
        "reverse-tree": lambda: graphs.reverse_tree(depth, width, cost),
    }
    described = makers[shape]()
    operators = [
        replace(operator, selectivity=selectivity) if _is_busy(operator) else operator
        for operator in described.operators
    ]
    return graphs.Graph(described.name, tuple(operators))


def build(
    described: graphs.Graph,
    *,
    kind: Kind = "numpy",
    rows: int | None = None,
    source: Any = None,
    sink: Any = None,
    seed: int = 1,
) -> Flow:
    """Build the flow of any graph that the simulator can run: one source, busy operators, one sink."""
    flow = Flow(f"synthetic {described.name}")
    arriving: dict[int, list[Stream]] = {}
    dealt = {0: 1}
    for number, operator in enumerate(described.operators):
        if operator.source:
            reader = read.generate(serials, schema=SCHEMA, rows=rows) if source is None else source
            stream = flow.source("rows", reader)
        else:
            first, *others = arriving[number]
            stream = first.union(*others, name=f"union_{number}") if others else first
            if not operator.outputs:
                stream.sink("out", sink)
                continue
            stream = busy(
                stream, make_work(kind, operator.cost * 1e6), operator.selectivity, seed + number, f"busy_{number}"
            )
        branches = [stream] * len(operator.outputs)
        if operator.split and len(branches) > 1:
            branches = list(deal(stream, len(branches), dealt[number], f"split_{number}"))
        for to, branch in zip(operator.outputs, branches, strict=True):
            arriving.setdefault(to, []).append(branch)
            dealt[to] = max(dealt.get(to, 1), dealt[number] * (len(branches) if operator.split else 1))
    return flow


def busy(stream: Stream, work: Work, selectivity: float = 1.0, seed: int = 0, name: str | None = None) -> Stream:
    """Add a busy operator: it works on each row and passes it on, as often as the selectivity says."""
    if selectivity == 1:
        function = partial(_passed_later if isinstance(work, Wait) else _passed, work)
        return stream.map(function, schema=stream.type, name=name)
    function = partial(_copied_later if isinstance(work, Wait) else _copied, work, selectivity, seed)
    return stream.flat_map(function, schema=stream.type, name=name)


def deal(stream: Stream, wide: int, dealt: int, name: str | None = None) -> tuple[Stream, ...]:
    """Deal rows out in turn by their serial number; `dealt` is over how many streams they were dealt above."""
    return stream.split(*(partial(_is_for, wide, dealt, number) for number in range(wide - 1)), name=name)


def serials(start: int, stop: int) -> pa.Table:
    """Generate rows that have nothing but their number."""
    return pa.table({"serial": np.arange(start, stop, dtype=np.int64)})


def _is_busy(operator: graphs.Operator) -> bool:
    return not operator.source and bool(operator.outputs)


def _passed(work: Work, row: Any) -> Any:
    work()
    return row


async def _passed_later(work: Callable[[], Any], row: Any) -> Any:
    await work()
    return row


def _copied(work: Work, selectivity: float, seed: int, row: Any) -> list[Any]:
    work()
    return [row] * copies(row.serial, selectivity, seed)


async def _copied_later(work: Callable[[], Any], selectivity: float, seed: int, row: Any) -> list[Any]:
    await work()
    return [row] * copies(row.serial, selectivity, seed)


def _is_for(wide: int, dealt: int, number: int, row: Any) -> bool:
    return bool(row.serial // dealt % wide == number)
