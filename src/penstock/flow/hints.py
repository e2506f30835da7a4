"""A user's hints on how an operator runs: Streams' threaded ports and its `@parallel`.

Hints stand on the streams that an operator reads, `stream.threaded()` and `stream.parallel(3)`, and never change what
comes out. Engines that have no threads of their own to place (Spark, the sequential one) pass over them.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import FlowError
from penstock.operators.base import Keyed, Sink, Source, Union
from penstock.operators.stateless import PerRow
from penstock.plan.graph import Node


def replicas_hint(node: Node) -> int | None:
    """Return how many replicas the streams that an operator reads ask for; None where they ask for none."""
    asked = {port.parallel for port in node.inputs if port.parallel is not None}
    if len(asked) > 1:
        counts = " and ".join(map(str, sorted(asked)))
        raise FlowError(
            f"operator {node.name!r}: the streams that it reads ask for {counts} replicas; "
            f"give both the same parallel(...), or only one of them"
        )
    return asked.pop() if asked else None


def is_placed(node: Node) -> bool:
    """Tell whether hints say how an operator is to run."""
    return any(port.threaded or port.parallel is not None for port in node.inputs)


def refuse_replicas(node: Node) -> None:
    reason = _why_none(node)
    if reason is not None:
        raise FlowError(f"operator {node.name!r} cannot have replicas: {reason}")


def check_hints(nodes: Iterable[Node]) -> None:
    for node in nodes:
        if replicas_hint(node) is not None:
            refuse_replicas(node)


def check_count(count: object, where: str) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise FlowError(f"{where}: {count!r} replicas; give a whole number of at least 1")
    return count


def _why_none(node: Node) -> str | None:
    operator = node.operator
    if isinstance(operator, Source):
        return "it is a source; read its parts as several sources and union them"
    if isinstance(operator, Sink):
        return "a sink writes one batch after the other; put what takes long in a map() before it"
    if isinstance(operator, Union):
        return "it only joins streams; give them to what follows"
    if isinstance(operator, Keyed) and operator.kind != "partitioned":
        return "it keeps one state for the whole stream; use key_by(...) before it, so that each key has its own"
    if isinstance(operator, PerRow) and operator.in_flight is not None:
        return f"its function waits, for up to {operator.in_flight} rows at once; set in_flight= instead"
    return None
