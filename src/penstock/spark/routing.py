"""Who does what in an epoch: shards to tasks, and sinks in slices."""

from __future__ import annotations

from penstock.errors import FlowError
from penstock.graph import Node
from penstock.ingress.feeds import Slice
from penstock.operators.base import Sink
from penstock.plan import Plan
from penstock.spark.worker_state import shard_count
from penstock.write import Directory, FrameCallback

SLICE_ROWS = 100_000
"""A sink is sliced only where each slice has about as many rows: a slice costs a task."""


def even_table(shards: int, tasks: int, offset: int = 0) -> list[int]:
    """Give each task the same number of shards."""
    return [(offset + shard * tasks // shards) % tasks for shard in range(shards)]


def check_table(plan: Plan, operator: str, table: list[int], tasks: int) -> None:
    """Refuse a table that does not fit its operator."""
    node = next((node for node in plan.keyed if node.name == operator), None)
    if node is None:
        names = ", ".join(repr(node.name) for node in plan.keyed) or "none"
        raise FlowError(f"there is no keyed operator {operator!r} to route; the flow has {names}")
    count = shard_count(node)
    if len(table) != count:
        raise FlowError(f"operator {operator!r} has {count} shards, the table names {len(table)}")
    if any(not 0 <= task < tasks for task in table):
        raise FlowError(
            f"the table of operator {operator!r} names tasks outside 0 to {tasks - 1}; set the number of tasks first"
        )


def slice_bounds(plan: Plan, node: Node, slices: dict[str, Slice], tasks: int) -> list[int]:
    """Return the positions at which the slices of a sink begin, but for the first; none where one slice must do.

    Slices are cut by the place of source rows, so it must be known before the epoch is read.
    """
    row = plan.nodes[node.inputs[0].node].types[node.inputs[0].index]
    assert isinstance(node.operator, Sink)
    if row is None and isinstance(node.operator.writer, (Directory, FrameCallback)):
        return []  # the schema of undeclared rows is found in one place
    counted = [found.rows for found in slices.values()]
    if plan.layout.base != 1 or any(rows is None for rows in counted):
        return []
    total = sum(rows or 0 for rows in counted)
    count = min(tasks, total // SLICE_ROWS)
    wanted = [number * total // count for number in range(1, count)]
    if not wanted:
        return []
    return _turn_bounds(plan, slices, wanted) if plan.layout.sequence == "turns" else _bounds(plan, slices, wanted)


def _bounds(plan: Plan, slices: dict[str, Slice], wanted: list[int]) -> list[int]:
    """Return the position behind so many rows, one source after the other."""
    bounds: list[int] = []
    passed = 0
    for number, source in enumerate(plan.sources):
        for split in slices[source.name].splits if source.name in slices else ():
            size = split.rows or 0
            while len(bounds) < len(wanted) and passed + size > wanted[len(bounds)]:
                bounds.extend(plan.layout.place(number, split.first + wanted[len(bounds)] - passed))
            passed += size
    return bounds


def _turn_bounds(plan: Plan, slices: dict[str, Slice], wanted: list[int]) -> list[int]:
    """Return the position before the turn by which about so many rows have had theirs."""
    first = min(found.splits[0].first for found in slices.values())
    sizes = sorted(found.rows or 0 for found in slices.values())
    bounds: list[int] = []
    for rows in wanted:
        turns, passed, left = 0, 0, len(sizes)
        for size in sizes:
            # Up to this turn, as many sources as are left have a row in each.
            if passed + (size - turns) * left >= rows:
                break
            passed, turns, left = passed + (size - turns) * left, size, left - 1
        bounds.extend(plan.layout.place(0, first + turns + (rows - passed) // max(1, left)))
    return bounds
