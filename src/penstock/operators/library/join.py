"""Join two ports by a key, among the latest rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.errors import FlowError
from penstock.operators.coroutine import Operator, OperatorContext
from penstock.rows.keys import as_key, has_null
from penstock.rows.records import Row, any_getter

By = str | Callable[[Row], Any]


class Join(Operator):
    """Join each row with those of the latest `rows` rows of the other port that have the same key, oldest first.

    `by` is a field or a function of the row, or a pair of them, one for each port; a null is equal to no other.
    `combine(left, right)` makes what comes out; by default a tuple of the two. For windows of event time, and to run in
    parallel, use the join of streams with key_by.
    """

    inputs = 2

    def __init__(
        self, by: By | tuple[By, By], combine: Callable[[Row, Row], Row] | None = None, *, rows: int = 1000
    ) -> None:
        if rows < 1:
            raise FlowError(f"a join among the latest rows={rows} finds nothing; give at least 1")
        self.by, self.combine, self.rows = by if isinstance(by, tuple) else (by, by), combine, rows

    async def process(self, ctx: OperatorContext) -> None:
        # For each port: the keys of its latest rows, oldest first, and these rows by key.
        latest = ctx.state.setdefault("latest", (deque(), deque()))
        by_key: tuple[dict[Any, deque[Row]], ...] = ctx.state.setdefault("by_key", ({}, {}))
        while await ctx.wait_for_any({0: 1, 1: 1}):
            port = 0 if ctx.len(0) else 1
            row, by = ctx.pop(port), self.by[port]
            key = as_key(any_getter([by])(row) if isinstance(by, str) else by(row))
            if has_null(key):
                continue  # equal to no other
            for other in by_key[1 - port].get(key, ()):
                pair = (row, other) if port == 0 else (other, row)
                await ctx.emit(pair if self.combine is None else self.combine(*pair))
            latest[port].append(key)
            by_key[port].setdefault(key, deque()).append(row)
            if len(latest[port]) > self.rows:
                oldest = latest[port].popleft()
                by_key[port][oldest].popleft()
                if not by_key[port][oldest]:
                    del by_key[port][oldest]
