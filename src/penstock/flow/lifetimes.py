"""How long state is kept, and how far apart rows may be: spans in the unit of the rows."""

from __future__ import annotations

from typing import Any

from penstock.errors import FlowError
from penstock.flow import checks
from penstock.operators.timed_join import Lifetime
from penstock.rows.timing import Duration, Ticks, TimeKind, signed_ticks, unit_of


def lifetime(span: Duration, kind: TimeKind | None, name: str, option: str = "ttl") -> Lifetime:
    """Return how long something is kept, or refuse a time of another unit than the rows'."""
    amount = distance(span, span, kind, name, option)
    if amount <= 0:
        raise FlowError(f"operator {name!r}: {option}={span!r} keeps nothing; give more than 0")
    return Lifetime(amount)


def distance(duration: Duration, given: Any, kind: TimeKind | None, name: str, option: str) -> Ticks:
    """Return a span of event time, or refuse one of another unit than the rows have."""
    amount, unit = signed_ticks(duration, name, option)
    if amount and unit != unit_of(kind):  # nothing has every unit
        raise FlowError(checks.unit_mismatch(name, option, given, kind))
    return amount
