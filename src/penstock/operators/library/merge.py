"""Merge ports that are each in the order of a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.operators.coroutine import Operator, OperatorContext
from penstock.rows.ranges import order_place
from penstock.rows.records import Row, RowType, any_getter


class Merge(Operator):
    """Emit the rows of all ports in the order of a key, each port being in that order itself.

    A row is held back until every other port has shown a row with a key that is not smaller, or has ended; of equal
    keys the lower port's comes first. Null is before all other keys, NaN behind them. `by` is a field or a function of
    the row. Where the key is the event time, `Stream.merge` does it by the watermark, and a port may be silent.
    """

    inputs = None
    restartable = True
    """Which ports are live changes only where a port ends, and then the wait is over and they are looked at again."""

    def __init__(self, by: str | Callable[[Row], Any]) -> None:
        self.by = by

    async def process(self, ctx: OperatorContext) -> None:
        key = any_getter([self.by]) if isinstance(self.by, str) else self.by
        ports = range(ctx.inputs)
        # A port that ends while it is waited for gives False, and from then on nobody waits for it.
        while live := [port for port in ports if ctx.len(port) or not ctx.closed(port)]:
            if not await ctx.wait_for_all(dict.fromkeys(live, 1)):
                continue
            first = min(live, key=lambda port: order_place(key(ctx.peek(port))))
            await ctx.emit(ctx.pop(first))

    def output_types(self, inputs: Sequence[RowType | None]) -> Sequence[RowType | None]:
        return [inputs[0] if len(set(inputs)) == 1 else None]
