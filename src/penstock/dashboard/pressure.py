"""Find what holds a flow back: the cause of back-pressure, and not its victims.

A full queue fills the queues above it in turn, so most operators with full queues are victims. The cause is an operator
whose queue is full while none below it has a full one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from penstock.dashboard.graph import Reach

Json = dict[str, Any]

FULL = 0.75
"""The part of a queue from which on it counts as full."""
CROWDED = 0.9
"""The part of the batches that may be in flight from which on sources wait."""


def pressure_in_queues(
    reach: Reach,
    queues: Mapping[str, int],
    capacity: int,
    in_flight: float,
    busy: Mapping[str, float],
    queue_of: Mapping[str, str] = MappingProxyType({}),
) -> Json:
    """Judge by queues: `in_flight` is the part of the batches that may be inside, `busy` has seconds.

    Of operators that are run as one, and so share a queue (`queue_of`), the cause is the one that takes most time.
    """
    full = {name for name, waiting in queues.items() if capacity and waiting >= FULL * capacity}
    causes = [name for name in queues if name in full and not reach.below(name) & full]
    reasons = {}
    for name in causes:
        busiest = max(
            (each for each in busy if queue_of.get(each, each) == name), key=lambda each: busy[each], default=name
        )
        reasons[busiest] = f"{queues[name]} of {capacity} batches wait for it, and no queue below it is full"
    if not causes and in_flight >= CROWDED and any(busy.values()):
        name = max(busy, key=lambda each: busy[each])
        share = busy[name] / sum(busy.values())
        reasons = {name: f"as many batches are inside as may be, and {share:.0%} of the time is spent here"}
    return _told(reach, reasons)


def pressure_in_epochs(
    reach: Reach, backlog: int | None, rows: int, busy: Mapping[str, float], fixed: float = 0.0
) -> Json:
    """Judge by epochs: more waits than one of them takes, and the operator with most of the time is the cause.

    `fixed` is the part of an epoch that no operator has: where it is most of it, larger epochs help more.
    """
    if not backlog or backlog <= rows or not any(busy.values()):
        return _told(reach, {})
    name = max(busy, key=lambda each: busy[each])
    share = busy[name] / sum(busy.values())
    why = f"{backlog:,} rows wait, more than an epoch takes, and {share:.0%} of the operators' time is here"
    if fixed > 0.5:
        why += f"; but {fixed:.0%} of an epoch is Spark's fixed cost, so larger epochs would help more"
    return _told(reach, {name: why})


def _told(reach: Reach, reasons: Mapping[str, str]) -> Json:
    held: dict[str, str] = {}
    for name in reasons:
        for other in reach.above(name):
            held.setdefault(other, name)
    return {
        "causes": [{"operator": name, "why": why} for name, why in reasons.items()],
        "held": {name: cause for name, cause in sorted(held.items()) if name not in reasons},
    }
