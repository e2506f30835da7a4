"""Let only some rows pass."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import FlowError
from penstock.operators.coroutine import Operator, OperatorContext
from penstock.rows.records import RowType
from penstock.rows.timing import Duration, TimeKind, Unit, ticks, time_to_ticks, unit_of


class Throttle(Operator):
    """Pass at most `most` rows in each span `per` of event time, or one row in `every`; drop the others.

    Spans stand side by side, as tumbling windows do; a row that is late counts in the latest span seen.
    """

    def __init__(self, most: int = 1, *, per: Duration | None = None, every: int | None = None) -> None:
        if (per is None) == (every is None):
            raise FlowError('a throttle needs per= (a span of event time, such as "1 s") or every= (a number of rows)')
        self.per: int = 0
        self.unit: Unit | None = None
        if per is not None:
            self.per, self.unit = ticks(per, "throttle", "per")
        self.most, self.every = most, every
        if most < 1 or (self.per if every is None else every) < 1:
            raise FlowError(f"a throttle needs most=, per= and every= to be at least 1: {most}, {per}, {every}")

    async def process(self, ctx: OperatorContext) -> None:
        while await ctx.wait_for_all({0: 1}):
            row = ctx.pop()
            if self._passes(ctx):
                await ctx.emit(row)

    def _passes(self, ctx: OperatorContext) -> bool:
        """Count a row; tell whether it goes on."""
        span, count = ctx.state.get("seen", (None, 0))
        if self.every is not None:
            ctx.state["seen"] = (None, (count + 1) % self.every)
            return bool(count == 0)
        now = time_to_ticks(ctx.time) // self.per
        span, count = (now, 0) if span is None or now > span else (span, count)
        ctx.state["seen"] = (span, count + 1)
        return bool(count < self.most)

    def output_types(self, inputs: Sequence[RowType | None]) -> Sequence[RowType | None]:
        return [inputs[0]]

    def check(self, name: str, times: Sequence[TimeKind | None]) -> None:
        if self.unit is not None and unit_of(times[0]) != self.unit:
            raise FlowError(
                f"operator {name!r}: a throttle by {self.unit} time on rows whose event time is "
                f"{times[0] or 'not known'}; give time= to every source above it, and per= in its unit (an integer, or "
                f'for example "1 s" for timestamps)'
            )
