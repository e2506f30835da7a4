"""The tables that rows are looked up in: the driver says which content an epoch sees, and workers read that.

What a table had is kept in the checkpoint before the intent of the first epoch that sees it names it, so that an epoch
that is run again, and one after a restart, sees the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from penstock.connectors.tables import Refreshing, lookups, read_table
from penstock.errors import CheckpointError
from penstock.operators.lookup import Lookup
from penstock.plan.graph import Node
from penstock.plan.plan import Plan
from penstock.store.checkpoint import Position
from penstock.store.keeper import Keeper
from penstock.store.state_files import is_kept, put_table, read_kept

log = logging.getLogger(__name__)


class SparkTables:
    """What the driver knows of tables: the name of what each has, for the epoch that is next."""

    def __init__(self, plan: Plan, keeper: Keeper, position: Position, clock: Callable[[], float]) -> None:
        """Go on with what the last epoch saw; tables that are refreshed are read again before the next one."""
        self._keeper, self._lookups = keeper, lookups(plan)
        kept = position.intake.get("tables", {})
        self._current: dict[str, str] = {name: kept[name] for name in self._lookups if name in kept}
        self._refreshing = Refreshing(plan, clock)
        self._refreshing.forget(self._lookups)
        for name, lookup in self._lookups.items():
            frozen = name in kept and lookup.refresh is None and lookup.table.at_hand
            if frozen and not is_kept(kept[name], read_table(lookup, name)):
                log.warning(
                    "operator %r goes on with the table that its checkpoint keeps, which is another than the flow has "
                    "now; give it refresh= to have it read again at each start, or another name=",
                    name,
                )

    def take(self) -> dict[str, str]:
        """Return what the next epoch is to see, read again where it is time."""
        for name, lookup in self._lookups.items():
            if name not in self._current and lookup.refresh is None:
                self._read(name, lookup)
        for name, lookup in self._refreshing.due():
            self._read(name, lookup)
        return dict(self._current)

    def replay(self, tables: dict[str, str]) -> dict[str, str]:
        """Return what an epoch that was begun before a crash was to see."""
        self._current.update({name: kept for name, kept in tables.items() if name in self._lookups})
        missing = [name for name in self._lookups if name not in self._current]
        for name in missing:  # the operator is new, and the epoch is the first that it sees
            self._read(name, self._lookups[name])
        return dict(self._current)

    def _read(self, name: str, lookup: Lookup) -> None:
        table = read_table(lookup, name)
        lookup.over(table, name)  # refused here, before an epoch fails with it
        known = self._current.get(name)
        self._current[name] = put_table(self._keeper.checkpoint.store, self._keeper.fence, table, known)


_reading = threading.Lock()
MOST_KEPT = 32
"""Tables of all flows that a worker holds; the oldest go first."""
_nodes: dict[tuple[str, str], tuple[str, Lookup, Node]] = {}
"""The operator with its content by checkpoint and name: in a worker, that of the last epoch."""


def with_kept(node: Node, checkpoint: str, tables: dict[str, str]) -> Node:
    """Return a lookup with the content that an epoch is to see; in a worker."""
    lookup, name = node.operator, tables[node.name]
    assert isinstance(lookup, Lookup)
    with _reading:  # several threads of a task come here at once
        found = _nodes.get((checkpoint, node.name))
        if found is None or found[0] != name or found[1] is not lookup:
            table = read_kept(checkpoint, node.name, name)
            missing = [field for field in lookup.columns if field not in table.schema.names]
            if missing:
                raise CheckpointError(
                    f"operator {node.name!r}: the table that {checkpoint} keeps for it has no field {missing[0]!r}, "
                    f"because the lookup did not need it; give the operator another name=, so that its table is read "
                    f"again, or start with a new checkpoint"
                )
            found = _nodes[checkpoint, node.name] = name, lookup, replace(node, operator=lookup.over(table, node.name))
        while len(_nodes) > MOST_KEPT:
            _nodes.pop(next(iter(_nodes)))
        return found[2]
