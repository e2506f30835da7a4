"""Run the operator that has got least far: Ordered's CT (section 6.4), its best for throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.policies.view import Moment, OperatorView, smallest


@dataclass(frozen=True, slots=True)
class CurrentThroughput:
    """Pick the lowest normalized throughput in the current window: the likely bottleneck."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        """Return the index of the operator that has processed the fewest input rows' worth."""
        return smallest(ready, lambda view: normalized_rows(view, moment.time_slice))


def normalized_rows(view: OperatorView, time_slice: float) -> float:
    """Return equation 3: (T_i + w_i * s) / (c_i * cs_i), in rows of the flow's input.

    (T_i + w_i * s) / c_i is how many rows the operator takes in with the worker time it has had and has
    been promised. To compare operators, that is divided by how many rows reach it for each row of input:
    the cumulative selectivity *before* it (the paper's cs_i includes the operator's own, which would count
    its outputs). An operator that has never run has processed nothing, and goes first.
    """
    if view.cost is None:
        return 0.0
    per_input_row = view.cost * view.inflow
    worker_time = view.window_time + view.workers * time_slice
    return worker_time / per_input_row if per_input_row > 0.0 else worker_time
