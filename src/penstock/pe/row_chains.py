"""Run consecutive per-row operators as one loop.

Between two operators without memory nothing needs to be kept: a row can go through all of them before the next one,
and no list of rows is made for each. The loop is Python code that is put together for the chain, because calling the
functions from a loop over functions costs as much again as short ones take. A filter notes the rows that it drops,
which is how positions are found again and how the rows of each operator are counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.graph import Node
from penstock.operators.stateless import Filter, Map
from penstock.pe.chain import Chain
from penstock.pe.chunk import Chunk
from penstock.rows import Row

Loop = Callable[[Iterable[Row], list[Callable[[Row], Any]], list["array[int]"]], list[Row]]


class RowChain(Chain):
    """Consecutive maps and filters."""

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
            results = self._loop(chunk.iterate_rows(), self._functions, dropped)
        except Exception:
            return None  # which row it was, and whether an earlier operator fails behind it, the slow way tells
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
            kept[np.frombuffer(each, np.int64)] = False
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

        def loop(rows, functions, dropped):
            f0, f1, f2, f3 = functions
            d0, d1, d2, d3 = [each.append for each in dropped]
            return [v3 for i, row in enumerate(rows) if (f1(v1 := f0(row)) or d1(i)) and (f3(v3 := f2(v1)) or d3(i))]
    """
    value, conditions = "row", []
    for n, is_map in enumerate(maps):
        if is_map:
            value = f"f{n}({value})"
        elif value.isidentifier():
            conditions.append(f"(f{n}({value}) or d{n}(i))")
        else:
            conditions.append(f"(f{n}(v{n} := {value}) or d{n}(i))")
            value = f"v{n}"
    each = "for i, row in enumerate(rows)" if conditions else "for row in rows"
    which = f" if {' and '.join(conditions)}" if conditions else ""
    numbers = range(len(maps))
    source = (
        "def loop(rows, functions, dropped):\n"
        f"    {''.join(f'f{n}, ' for n in numbers)}= functions\n"
        f"    {''.join(f'd{n}, ' for n in numbers)}= [each.append for each in dropped]\n"
        f"    return [{value} {each}{which}]\n"
    )
    made: dict[str, Any] = {}
    exec(compile(source, f"<chain of {len(maps)} operators>", "exec"), made)
    loop: Loop = made["loop"]
    return loop
