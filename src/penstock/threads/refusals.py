"""What engines without Spark cannot do."""

from __future__ import annotations

from penstock.errors import FlowError
from penstock.plan.plan import Plan


def refuse_frames(plan: Plan, engine: str) -> None:
    """Refuse sources that only Spark can read."""
    for node in plan.sources:
        if node.operator.reader.needs_spark:
            raise FlowError(
                f"source {node.name!r} is a Spark DataFrame, which on={engine} cannot read; use "
                f"on=ps.Spark(...), or read the files with ps.read"
            )
