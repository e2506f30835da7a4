"""What engines without Spark cannot do."""

from __future__ import annotations

from penstock.connectors.read import Frame
from penstock.errors import FlowError
from penstock.plan.plan import Plan


def refuse_frames(plan: Plan, engine: str) -> None:
    """Refuse sources that only Spark can read."""
    for node in plan.sources:
        if isinstance(node.operator.reader, Frame):
            raise FlowError(
                f"source {node.name!r} is a Spark DataFrame, which on={engine} cannot read; use "
                f"on=ps.Spark(...), or read the files with ps.read"
            )
