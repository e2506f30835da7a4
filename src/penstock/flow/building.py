"""Put operators behind a stream: what the methods of streams have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.flow import checks
from penstock.flow.lifetimes import lifetime
from penstock.operators.base import Key, Keyed, Logic, OnError, Operator
from penstock.operators.expiring import Expiring
from penstock.rows.records import RowType
from penstock.rows.timing import Arrival, Duration

if TYPE_CHECKING:
    from penstock.flow.stream import Stream


def applied(stream: Stream, name: str, operator: Operator, *types: RowType | None) -> Stream:
    """Add an operator without memory."""
    operator, letters = checks.with_errors(operator, name)
    return stream.flow.add(name, operator, (stream.port,), (*types, *letters), stream.time)


def remembering(
    stream: Stream,
    name: str,
    logic: Logic,
    key: Key | None,
    on_error: OnError,
    *,
    extra_ports: tuple[str, ...] = (),
    other: Stream | None = None,
    other_key: Key | None = None,
    ttl: Duration | None = None,
    by: Arrival | None = None,
) -> Stream:
    """Add a keyed operator, or a whole-stream one where there is no key; its time is that of its rows, or `by`."""
    inputs = [stream] if other is None else [stream, other]
    time = checks.time_by(stream, by, name)
    for each in inputs if by is None and (ttl is not None or logic.needs_time) else ():
        checks.has_time(each, name, "a time window" if logic.needs_time else "ttl=")
    if ttl is not None:
        logic = Expiring(logic, lifetime(ttl, time, name))
    keys = None if key is None else tuple(k for k in (key, other_key) if k is not None)
    result = logic.output_type([each.type for each in inputs], keys, time or "integer")
    keyed = Keyed(logic, keys, by is not None, on_error=on_error, outputs=("out", *extra_ports))
    operator, letters = checks.with_errors(keyed, name)
    types = {each.type for each in inputs}
    late = [types.pop() if len(types) == 1 else None] * len(extra_ports)
    return stream.flow.add(name, operator, tuple(s.port for s in inputs), (result, *late, *letters), time)
