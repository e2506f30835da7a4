"""The tables of a plan: what they have when a run begins, and when they are read again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from penstock.operators.lookup import Lookup
from penstock.plan.graph import Node
from penstock.plan.plan import Plan


def lookups(plan: Plan) -> dict[str, Lookup]:
    """Return the operators of a plan that look rows up in tables."""
    return {name: node.operator for name, node in plan.nodes.items() if isinstance(node.operator, Lookup)}


def read_table(lookup: Lookup, name: str) -> pa.Table:
    """Read what a lookup needs of its table."""
    found: pa.Table = lookup.table.read(name).select(lookup.columns)
    return found


def with_content(plan: Plan, name: str, table: pa.Table) -> Plan:
    """Return the plan with another content of a lookup's table."""
    node = plan.nodes[name]
    assert isinstance(node.operator, Lookup)
    changed = dataclasses.replace(node, operator=node.operator.over(table, name))
    return dataclasses.replace(plan, graph=plan.graph.replaced({name: changed}))


def loaded(plan: Plan, known: Plan | None = None) -> Plan:
    """Return the plan with the content of all tables: as a known plan has them, else as they are now."""
    nodes: dict[str, Node] = {}
    for name, lookup in lookups(plan).items():
        node = plan.nodes[name]
        if lookup.content is None:
            had = known is not None and name in known.nodes
            found = known.nodes[name].operator if known is not None and had else None
            made = found if isinstance(found, Lookup) else lookup.over(read_table(lookup, name), name)
            nodes[name] = dataclasses.replace(node, operator=made)
    return dataclasses.replace(plan, graph=plan.graph.replaced(nodes)) if nodes else plan


class Refreshing:
    """Says when tables are to be read again."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        """Begin with tables that have just been read."""
        self._clock = clock
        self._read: dict[str, float] = {}
        self.change(plan)

    def change(self, plan: Plan) -> None:
        """Have the tables of another plan; those that are new have just been read."""
        self._lookups = {name: lookup for name, lookup in lookups(plan).items() if lookup.refresh is not None}
        now = self._clock() if self._lookups else 0.0
        self._read = {name: self._read.get(name, now) for name in self._lookups}

    def forget(self, names: Iterable[str]) -> None:
        """Have tables read as soon as they are asked for."""
        self._read.update({name: float("-inf") for name in names if name in self._lookups})

    def due(self) -> Iterator[tuple[str, Lookup]]:
        """Return the tables that are to be read now; they count as read then."""
        if not self._lookups:
            return
        now = self._clock()
        for name, lookup in self._lookups.items():
            assert lookup.refresh is not None
            if now - self._read[name] >= lookup.refresh:
                self._read[name] = now
                yield name, lookup
