"""Let rows pass while a gate is open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.operators.coroutine import Operator, OperatorContext
from penstock.rows.records import Row, RowType

DATA, CONTROL = 0, 1


class Gate(Operator):
    """Pass the rows of port 0 while the gate is open; each row of port 1, the control port, opens or closes it.

    `opens(control row)` tells which; by default the row itself is true or false. While the gate is closed rows are
    dropped, or with `hold` kept until it opens; those that are held when the sources end are dropped.
    """

    inputs = 2
    control = (CONTROL,)

    def __init__(self, opens: Callable[[Row], Any] = bool, *, is_open: bool = False, hold: bool = False) -> None:
        self.opens, self.is_open, self.hold = opens, is_open, hold

    async def process(self, ctx: OperatorContext) -> None:
        ctx.state.setdefault("open", self.is_open)
        while await ctx.wait_for_any({CONTROL: 1} if self.hold and not ctx.state["open"] else {DATA: 1, CONTROL: 1}):
            if ctx.len(CONTROL):
                ctx.state["open"] = bool(self.opens(ctx.pop(CONTROL)))
                continue
            row = ctx.pop(DATA)
            if ctx.state["open"]:
                await ctx.emit(row)

    def output_types(self, inputs: Sequence[RowType | None]) -> Sequence[RowType | None]:
        return [inputs[DATA]]
