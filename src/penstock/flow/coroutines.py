"""Operators with any number of ports: co-routines over streams."""

from __future__ import annotations

from typing import Any

from penstock.errors import FlowError
from penstock.flow import checks
from penstock.flow.naming import free_name
from penstock.flow.stream import Stream
from penstock.operators import coroutine
from penstock.operators.base import Keyed
from penstock.plan.graph import Port
from penstock.rows.row_types import row_type


def operate(
    operator: coroutine.Operator | type[coroutine.Operator],
    *streams: Stream,
    schema: Any = None,
    name: str | None = None,
    max_pending: int | None = None,
    restartable: bool | None = None,
) -> Any:
    """Run a co-routine operator over streams, one for each of its input ports; see `penstock.Operator`.

    Returns the stream that leaves it, or a tuple of streams where it has several output ports. `schema` is that of
    every output port; a list has one for each. `max_pending` is how many rows may wait in one input port. On Spark, and
    with a checkpoint, `process` begins again from its start at every wait: it must be proven that this makes no
    difference, or you say so with `restartable=True`.
    """
    if not streams or not all(isinstance(stream, Stream) for stream in streams):
        raise FlowError(f"operate({operator!r}) needs the streams that it reads, each without key_by, got {streams!r}")
    flow = streams[0].flow
    name = free_name(flow, name, operator if isinstance(operator, type) else type(operator), "operate")
    operator = coroutine.checked_operator(operator, name, len(streams))
    checks.one_flow(streams, name)
    times = [stream.time for stream in streams]
    operator.check(name, times)
    most = operator.max_pending if max_pending is None else max_pending
    if most < 1:
        raise FlowError(f"operator {name!r}: max_pending={most}; a port must hold at least one row")
    count = operator.outputs
    if schema is None:
        types = tuple(operator.output_types([stream.type for stream in streams]))
    else:
        types = tuple(row_type(each, name) for each in (schema if isinstance(schema, list) else [schema] * count))
    if len(types) != count:
        raise FlowError(f"operator {name!r} has {count} output ports and is given {len(types)} schemas")
    again = operator.restartable if restartable is None else restartable
    logic = coroutine.CoroutineLogic(operator, types, len(streams), most, again)
    ports = ("out",) if count == 1 else tuple(f"out{index}" for index in range(count))
    flow.add(
        name,
        Keyed(logic, None, outputs=ports),
        tuple(stream.port for stream in streams),
        types,
        times[0] if len(set(times)) == 1 else None,
    )
    made = tuple(Stream(flow, Port(name, index)) for index in range(count))
    return made[0] if count == 1 else made
