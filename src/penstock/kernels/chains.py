"""Find the chains of a plan: consecutive operators without memory of one family, with no reader in between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.failures import Failures
from penstock.kernels.stateless import run_stateless
from penstock.operators.stateless import Expressions, Filter, FilterExpression, Map, Select, evaluate
from penstock.plan.graph import Node
from penstock.plan.plan import Plan
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.records import Row


class Chain(ABC):
    """Consecutive operators.

    None of them goes on after an error: which row failed must be known without calling anything twice. Under "fail" a
    chunk with a row that fails is run again operator by operator, which finds the error that comes first.
    """

    def __init__(self, nodes: tuple[Node, ...], width: int) -> None:
        self.nodes, self._width = nodes, width

    @abstractmethod
    def run(self, chunk: Chunk) -> tuple[Chunk, list[int]] | None:
        """Take rows through all operators; return what is left and the rows out of each, or None if a row failed."""

    def run_each(self, chunk: Chunk, failures: Failures, last: int | None = None) -> Iterator[Chunk | None]:
        """Take rows through one operator after the other, up to the last one; yield what leaves each of them."""
        now: Chunk | None = chunk.widened(self._width)
        for node in self.nodes[: None if last is None else last + 1]:
            now = None if now is None else run_stateless(node, now, failures).get(0)
            yield now


Loop = Callable[[Iterator[Row], Callable[[], int], list[Callable[[Row], Any]], list["array[int]"]], list[Row]]


class RowChain(Chain):
    """Consecutive maps and filters.

    Between two operators without memory nothing needs to be kept: a row can go through all of them before the next one,
    and no list of rows is made for each. The loop is Python code that is put together for the chain, because calling
    the functions from a loop over functions costs as much again as short ones take. A filter notes the rows that it
    drops, by how many are still to come: that is how positions are found again and how the rows of each operator are
    counted, and rows that are never dropped need no number.
    """

    def __init__(self, nodes: tuple[Node, ...], width: int) -> None:
        super().__init__(nodes, width)
        operators = [node.operator for node in nodes]
        assert all(isinstance(each, Map | Filter) for each in operators)
        self._maps = [isinstance(each, Map) for each in operators]
        self._functions = [each.row_function() for each in operators]  # type: ignore[attr-defined]
        self._loop = make_loop(tuple(self._maps))

    def run(self, chunk: Chunk) -> tuple[Chunk, list[int]] | None:
        """Take rows through all operators; return what is left and the rows out of each, or None if a row failed."""
        dropped = [array("q") for _ in self.nodes]
        try:
            results = self._loop(*chunk.iterate_rows(), self._functions, dropped)
        except Exception:
            return None  # which row it was, and whether an earlier operator fails after it, the slow way tells
        counts, left = [], len(chunk)
        for each in dropped:
            left -= len(each)
            counts.append(left)
        return self._made(chunk.widened(self._width), results, dropped), counts

    def _made(self, chunk: Chunk, results: list[Row], dropped: list[array[int]]) -> Chunk:
        mapped = any(self._maps)
        row_type = self.nodes[-1].types[0]
        if len(results) == len(chunk):
            return chunk.replace_rows(results, row_type) if mapped else chunk
        kept = np.ones(len(chunk), bool)
        for each in dropped:
            kept[len(chunk) - 1 - np.frombuffer(each, np.int64)] = False
        return Chunk(
            [p[kept] for p in chunk.positions],
            None if chunk.times is None else chunk.times[kept],
            row_type,
            None if mapped or chunk.columns is None else chunk.columns.filter(pa.array(kept)),
            results,
        )


@lru_cache(maxsize=256)
def make_loop(maps: tuple[bool, ...]) -> Loop:
    """Make the loop over a chain; for each operator, whether it is a map or a filter.

    For a map, a filter, a map and a filter it is

        def loop(rows, left, functions, dropped):
            f0, f1, f2, f3 = functions
            d0, d1, d2, d3 = [each.append for each in dropped]
            return [v3 for row in rows if (f1(v1 := f0(row)) or d1(left())) and (f3(v3 := f2(v1)) or d3(left()))]
    """
    value, conditions = "row", []
    for n, is_map in enumerate(maps):
        if is_map:
            value = f"f{n}({value})"
        elif value.isidentifier():
            conditions.append(f"(f{n}({value}) or d{n}(left()))")
        else:
            conditions.append(f"(f{n}(v{n} := {value}) or d{n}(left()))")
            value = f"v{n}"
    which = f" if {' and '.join(conditions)}" if conditions else ""
    numbers = range(len(maps))
    source = (
        "def loop(rows, left, functions, dropped):\n"
        f"    {''.join(f'f{n}, ' for n in numbers)}= functions\n"
        f"    {''.join(f'd{n}, ' for n in numbers)}= [each.append for each in dropped]\n"
        f"    return [{value} for row in rows{which}]\n"
    )
    made: dict[str, Any] = {}
    exec(compile(source, f"<chain of {len(maps)} operators>", "exec"), made)
    loop: Loop = made["loop"]
    return loop


@dataclass(frozen=True)
class Segment:
    """What one plan computes: the columns of selects, and which rows a filter keeps."""

    selects: tuple[Select, ...]
    filter: FilterExpression | None

    def run(self, columns: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.BooleanArray | None]:
        """Return the columns, and the mask of the filter."""
        steps: list[Expressions] = [each.expressions for each in self.selects]
        if self.filter is None:
            return evaluate(columns, *steps), None
        keep = ("keep", self.filter.expression)
        if not steps:
            return columns, _mask(evaluate(columns, (keep,)).column(0))
        names = [name for name, _ in steps[-1]]
        found = evaluate(columns, *steps, [*((name, pc.field(name)) for name in names), keep])
        made = pa.RecordBatch.from_arrays(found.columns[:-1], names=names)
        return made, _mask(found.column(len(names)))


class ExpressionChain(Chain):
    """Consecutive selects and filters by expressions.

    Arrow evaluates an expression by a plan, and to make and run one costs more than the work on a batch of some
    thousand rows. So selects that follow one another, and the filter after them, are put in one plan. What a filter
    drops is left out before the next plan: later expressions may be costly, or hold only for the rows that are left.
    Every filter's mask is seen, which is how positions are found again and how the rows of each operator are counted.
    """

    def __init__(self, nodes: tuple[Node, ...], width: int) -> None:
        super().__init__(nodes, width)
        self._segments = make_segments([node.operator for node in nodes])

    def run(self, chunk: Chunk) -> tuple[Chunk, list[int]] | None:
        """Take rows through all operators; return what is left and the rows out of each, or None if a row failed."""
        chunk = chunk.widened(self._width)
        kept: Ints | None = None
        counts: list[int] = []
        left = len(chunk)
        try:
            columns = chunk.get_columns()
            for segment in self._segments:
                columns, mask = segment.run(columns)
                counts += [left] * len(segment.selects)
                if mask is None:
                    continue
                index = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
                if len(index) < left:
                    columns = columns.filter(mask)
                    kept = index if kept is None else kept[index]
                    left = len(index)
                counts.append(left)
        except Exception:
            return None  # which row it was, and whether an earlier operator fails after it, the slow way tells
        return self._made(chunk, columns, kept), counts

    def _made(self, chunk: Chunk, columns: pa.RecordBatch, kept: Ints | None) -> Chunk:
        if not any(segment.selects for segment in self._segments):  # the rows themselves, as any filter gives them
            return chunk if kept is None else chunk.select(kept)
        positions, times = chunk.positions, chunk.times
        if kept is not None:
            positions = [component[kept] for component in positions]
            times = None if times is None else times[kept]
        return Chunk(positions, times, self.nodes[-1].types[0], columns)


def make_segments(operators: list[Any]) -> list[Segment]:
    """Cut a chain after each filter."""
    segments: list[Segment] = []
    selects: list[Select] = []
    for operator in operators:
        if isinstance(operator, Select):
            selects.append(operator)
        else:
            assert isinstance(operator, FilterExpression)
            segments.append(Segment(tuple(selects), operator))
            selects = []
    return [*segments, Segment(tuple(selects), None)] if selects else segments


def _mask(column: pa.Array) -> pa.BooleanArray:
    return column.fill_null(False) if column.null_count else column


LONGEST = 32
"""Operators of one chain: the calls of consecutive maps are nested, and Python's parser has its limits."""


def make_chain(nodes: tuple[Node, ...], width: int) -> Chain:
    """Make the chain of consecutive operators."""
    return RowChain(nodes, width) if isinstance(nodes[0].operator, Map | Filter) else ExpressionChain(nodes, width)


def find_chains(plan: Plan, beside: Container[str] = ()) -> list[tuple[Node, ...]]:
    """Return the chains of two operators and more in a plan, but for operators `beside`; each operator is in one."""
    families = {name: _family(node) for name, node in plan.nodes.items() if name not in beside}
    follows = {
        edge.source.node: edge.target
        for edge in plan.graph.edges
        if len(plan.graph.outgoing[edge.source.node]) == 1
        and (family := families.get(edge.source.node)) is not None
        and family is families.get(edge.target)
    }
    followers = set(follows.values())
    found = []
    for name in plan.nodes:
        if name in follows and name not in followers:
            names = [name]
            while names[-1] in follows:
                names.append(follows[names[-1]])
            cuts = [*range(0, len(names), LONGEST), len(names)]
            parts = [tuple(plan.nodes[each] for each in names[low:high]) for low, high in pairwise(cuts)]
            found += [part for part in parts if len(part) > 1]
    return found


def _family(node: Node) -> type[Chain] | None:
    """Return the kind of chain that an operator can be in, if any."""
    operator = node.operator
    if operator.on_error != "fail":
        return None
    if isinstance(operator, Map | Filter):
        return RowChain if operator.in_flight is None and operator.calls is None else None
    return ExpressionChain if isinstance(operator, Select | FilterExpression) else None
