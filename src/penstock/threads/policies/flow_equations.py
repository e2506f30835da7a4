"""Work out how many rows reach each operator for one row of the flow's input.

Ordered defines cumulative selectivity along a chain: the product of the selectivities so far. On a graph the
product becomes a set of flow equations: what reaches an operator is the sum of what its predecessors emit,
and what it emits is its selectivity times that. Solved in topological order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

SELECTIVITY_FLOOR = 0.01
"""The least selectivity that is assumed.

An operator that has emitted nothing yet would otherwise make everything below it look as if no row would
ever come there, and equation 3 of Ordered would divide by zero.
"""


@dataclass(frozen=True, slots=True)
class OperatorFlow:
    """An operator's place and traffic, for one row of the flow's input."""

    order: int
    inflow: float
    outflow: float
    outflow_share: float


def solve_flow(
    selectivities: Mapping[str, float],
    edges: Iterable[tuple[str, str]] | Mapping[tuple[str, str], float],
    entry_weights: Mapping[str, float] | None = None,
    floor: float = SELECTIVITY_FLOOR,
) -> dict[str, OperatorFlow]:
    """Return each operator's flow, given the measured selectivities and the edges without feedback.

    Edges may come with the share of the upstream operator's rows that takes each: all of them, if nothing is said.
    Input rows enter at the operators that no edge leads to, in equal parts or by `entry_weights` (measured
    rates will do; they are scaled to sum to one).
    """
    shares: Mapping[tuple[str, str], float] = edges if isinstance(edges, Mapping) else Counter(edges)
    before: dict[str, list[str]] = {name: [] for name in selectivities}
    for upstream, downstream in shares:
        before[downstream].append(upstream)
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        raise ValueError(f"the flow has a cycle that is not a feedback edge: {error.args[1]}") from None
    weights = dict.fromkeys(order, 1.0) if entry_weights is None else entry_weights
    entries = {name: weights.get(name, 0.0) for name in order if not before[name]}
    total = sum(entries.values()) or 1.0
    inflow: dict[str, float] = {}
    outflow: dict[str, float] = {}
    for name in order:
        inflow[name] = entries.get(name, 0.0) / total + sum(
            outflow[upstream] * shares[upstream, name] for upstream in before[name]
        )
        outflow[name] = max(floor, selectivities[name]) * inflow[name]
    everything = sum(outflow.values()) or 1.0
    return {
        name: OperatorFlow(place, inflow[name], outflow[name], outflow[name] / everything)
        for place, name in enumerate(order)
    }
