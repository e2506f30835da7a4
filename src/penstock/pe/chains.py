"""Find the chains of a plan: consecutive operators without memory of one family, with nobody reading in between."""

from __future__ import annotations

from collections.abc import Container
from itertools import pairwise

from penstock.graph import Node
from penstock.operators.stateless import Filter, FilterExpression, Map, Select
from penstock.pe.chain import Chain
from penstock.pe.expression_chains import ExpressionChain
from penstock.pe.row_chains import RowChain
from penstock.plan import Plan

LONGEST = 32
"""Operators of one chain: the calls of consecutive maps are nested, and Python's parser has its limits."""


def make_chain(nodes: tuple[Node, ...], width: int) -> Chain:
    """Make the chain of consecutive operators."""
    return RowChain(nodes, width) if isinstance(nodes[0].operator, Map | Filter) else ExpressionChain(nodes, width)


def find_chains(plan: Plan, beside: Container[str] = ()) -> list[tuple[Node, ...]]:
    """Return the chains of two operators and more in a plan, but for operators `beside`; each operator is in one."""
    families = {name: _family(node) for name, node in plan.nodes.items() if name not in beside}
    follows = {
        edge.source.node: edge.target
        for edge in plan.graph.edges
        if len(plan.graph.outgoing[edge.source.node]) == 1
        and (family := families.get(edge.source.node)) is not None
        and family is families.get(edge.target)
    }
    followers = set(follows.values())
    found = []
    for name in plan.nodes:
        if name in follows and name not in followers:
            names = [name]
            while names[-1] in follows:
                names.append(follows[names[-1]])
            cuts = [*range(0, len(names), LONGEST), len(names)]
            parts = [tuple(plan.nodes[each] for each in names[low:high]) for low, high in pairwise(cuts)]
            found += [part for part in parts if len(part) > 1]
    return found


def _family(node: Node) -> type[Chain] | None:
    """Return the kind of chain that an operator can be in, if any."""
    operator = node.operator
    if operator.on_error != "fail":
        return None
    if isinstance(operator, Map | Filter):
        return RowChain if operator.in_flight is None else None
    return ExpressionChain if isinstance(operator, Select | FilterExpression) else None
