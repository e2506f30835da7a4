"""Run consecutive selects and filters by expressions with as few plans of Arrow's as can be.

Arrow evaluates an expression by a plan, and to make and run one costs more than the work on a batch of some thousand
rows. So selects that follow one another, and the filter behind them, are put in one plan. What a filter drops is left
out before the next plan: later expressions may be costly, or hold only for the rows that are left. Every filter's mask
is seen, which is how positions are found again and how the rows of each operator are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.graph import Node
from penstock.operators.stateless import Expressions, FilterExpression, Select, evaluate
from penstock.pe.chain import Chain
from penstock.pe.chunk import Chunk, Ints


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
    """Consecutive selects and filters by expressions."""

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
            return None  # which row it was, and whether an earlier operator fails behind it, the slow way tells
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
    """Cut a chain behind each filter."""
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
