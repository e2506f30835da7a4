"""Cut a plan into levels: one Spark stage each, with a shuffle between two of them.

Rows cross a shuffle where they enter a keyed operator or a sink. An operator's level is one more than the highest
level of what it reads, or the same for operators without memory, so that all operators of a level run in the same
tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.graph import Edge, Node
from penstock.operators.base import Keyed, Sink
from penstock.pe.chain import Chain
from penstock.pe.chains import find_chains, make_chain
from penstock.plan import Plan, takes_marks
from penstock.timing import Ticks

Grid = tuple[Ticks, Ticks, Ticks]
"""(period, offset, delay): marks matter where (mark - delay - offset) reaches the next multiple of the period."""


@dataclass(frozen=True)
class Stages:
    """A plan with its levels."""

    plan: Plan

    @cached_property
    def levels(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, node in self.plan.nodes.items():
            above = max((found[port.node] for port in node.inputs), default=0)
            found[name] = above + isinstance(node.operator, (Keyed, Sink))
        return found

    @cached_property
    def last(self) -> int:
        """Return the highest level; what leaves it goes to the driver."""
        return max(self.levels.values())

    @cached_property
    def edges(self) -> list[Edge]:
        """Return the edges in a fixed order; envelopes name them by number."""
        return self.plan.graph.edges

    @cached_property
    def chains(self) -> dict[str, Chain]:
        """Return the chains of operators that run as one loop, each by the name of its first operator."""
        shapes = self.plan.layout.shapes
        return {nodes[0].name: make_chain(nodes, shapes[nodes[0].name].width) for nodes in find_chains(self.plan)}

    def entries(self, level: int) -> list[Node]:
        """Return the keyed operators and sinks that a level begins with."""
        return [
            node
            for name, node in self.plan.nodes.items()
            if self.levels[name] == level and isinstance(node.operator, (Keyed, Sink))
        ]

    @cached_property
    def grids(self) -> dict[str, dict[int, list[Grid] | None]]:
        """Return, for each source and each level with operators that its marks can fire, the grids that marks must
        cross to matter there; None where every mark does."""
        found: dict[str, dict[int, list[Grid] | None]] = {source.name: {} for source in self.plan.sources}
        for name, node in self.plan.nodes.items():
            if not takes_marks(node):
                continue
            assert isinstance(node.operator, Keyed)
            grid = node.operator.logic.mark_grid
            for route in self.plan.layout.shapes[name].marks:
                levels = found[route.source]
                known = levels.setdefault(self.levels[name], [])
                if grid is None or known is None:
                    levels[self.levels[name]] = None
                else:
                    known.append((*grid, route.delay))
        return found
