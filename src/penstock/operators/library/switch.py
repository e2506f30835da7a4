"""Send rows to the output that was chosen last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.errors import PenstockError
from penstock.operators.coroutine import Operator, OperatorContext
from penstock.rows.records import Row, RowType

DATA, CONTROL = 0, 1


class Switch(Operator):
    """Send the rows of port 0 to one of several outputs; each row of port 1, the control port, chooses which.

    `choose(control row)` gives the number of the output, or None to drop rows; by default the row is the number.
    Before the first control row, rows go to the output `first`.
    """

    inputs = 2
    control = (CONTROL,)

    def __init__(
        self, outputs: int = 2, choose: Callable[[Row], int | None] | None = None, *, first: int | None = 0
    ) -> None:
        self.outputs, self.choose, self.first = outputs, choose, first

    async def process(self, ctx: OperatorContext) -> None:
        ctx.state.setdefault("output", self.first)
        while await ctx.wait_for_any({DATA: 1, CONTROL: 1}):
            if ctx.len(CONTROL):
                row = ctx.pop(CONTROL)
                chosen = row if self.choose is None else self.choose(row)
                if chosen is not None and chosen not in range(self.outputs):
                    raise PenstockError(f"a switch with {self.outputs} outputs cannot send rows to {chosen!r}")
                ctx.state["output"] = chosen
                continue
            row = ctx.pop(DATA)
            if ctx.state["output"] is not None:
                await ctx.emit(row, port=ctx.state["output"])

    def output_types(self, inputs: Sequence[RowType | None]) -> Sequence[RowType | None]:
        return [inputs[DATA]] * self.outputs
