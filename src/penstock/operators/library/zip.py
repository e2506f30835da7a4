"""Pair the n-th rows of all ports."""

from __future__ import annotations

from penstock.operators.coroutine import Operator, OperatorContext
from penstock.rows.records import Row


class Zip(Operator):
    """Emit a tuple of the first rows of all ports, then of the second, and so on, until one of them has ended.

    With `longest`, until all have ended, with `fill` where a port has no more.
    """

    inputs = None
    restartable = True
    """Once a port has ended that is waited for, the first loop is over at once, and the second looks again."""

    def __init__(self, *, longest: bool = False, fill: Row = None) -> None:
        self.longest, self.fill = longest, fill

    async def process(self, ctx: OperatorContext) -> None:
        ports = range(ctx.inputs)
        while await ctx.wait_for_all(dict.fromkeys(ports, 1)):
            await ctx.emit(tuple(ctx.pop(port) for port in ports))
        # A port that ends while it is waited for gives False, and from then on nobody waits for it.
        while self.longest and (live := [port for port in ports if ctx.len(port) or not ctx.closed(port)]):
            if await ctx.wait_for_all(dict.fromkeys(live, 1)):
                await ctx.emit(tuple(ctx.pop(port) if port in live else self.fill for port in ports))
