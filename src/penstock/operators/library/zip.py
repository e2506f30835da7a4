"""Pair the n-th rows of all ports."""

from __future__ import annotations

from penstock.operators.coroutine import Operator, OperatorContext
from penstock.rows import Row


class Zip(Operator):
    """Emit a tuple of the first rows of all ports, then of the second, and so on.

    With `longest`, rows that are left at the end come out too, with `fill` where a port has no more.
    """

    inputs = None

    def __init__(self, *, longest: bool = False, fill: Row = None) -> None:
        self.longest, self.fill = longest, fill

    async def process(self, ctx: OperatorContext) -> None:
        ports = range(ctx.inputs)
        while await ctx.wait_for_all(dict.fromkeys(ports, 1)):
            await ctx.emit(tuple(ctx.pop(port) for port in ports))
        while self.longest and any(ctx.len(port) for port in ports):
            await ctx.emit(tuple(ctx.pop(port) if ctx.len(port) else self.fill for port in ports))
