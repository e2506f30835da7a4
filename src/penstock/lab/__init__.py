"""What the papers compare with, to be chosen in a run: as objects in `ps.run`, by name on the command line.

    from penstock import lab

    ps.run(flow, on=ps.Threads(model="bound", binding=lab.Greedy()))
    ps.run(flow, on=ps.Threads(reorder=lab.Locked()))
    ps.run(flow, on=ps.Threads(workers=lab.StreamsRules()))

Penstock's own ways are what a run has without them. Nothing of a flow's results depends on any of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from penstock.elastic.base import Controller
from penstock.elastic.rebinding import Binding, own_rebinding
from penstock.lab.baselines import GreedyRebinding
from penstock.lab.baselines import StreamsRules as _StreamsRules
from penstock.order.primitives import Primitives
from penstock.order.reorder import LockedReorderBuffer, Reorder
from penstock.threads.levers import MOST_WORKERS

__all__ = ["NAMES", "Barrier", "Greedy", "Locked", "Static", "StreamsRules"]


@dataclass(frozen=True)
class Static(Binding):
    """Bind operators to workers in turn, and never again (Rebinding's static baseline)."""

    controller: Controller[Any, Any] | None = None


@dataclass(frozen=True)
class Greedy(Binding):
    """Rebind by the published greedy policy (Rebinding, algorithm 1), verbatim."""

    controller: Controller[Any, Any] | None = field(default_factory=GreedyRebinding)


@dataclass(frozen=True)
class Barrier(Binding):
    """Rebind with every worker standing still (Rebinding's barrier baseline); by Penstock's own policy or another."""

    controller: Controller[Any, Any] | None = field(default_factory=own_rebinding)
    barrier: bool = True


@dataclass(frozen=True)
class Locked:
    """Put batches back in order under one lock, for which workers wait (Ordered's baseline)."""

    def __call__(self, primitives: Primitives, size: int, *, first: int = 0) -> Reorder[Any]:
        return LockedReorderBuffer(primitives, size, first=first)


@dataclass(frozen=True, slots=True)
class StreamsRules(_StreamsRules):
    """Find the number of workers by Streams' six published rules (figure 7)."""

    high: int = MOST_WORKERS


NAMES: Mapping[str, Mapping[str, Callable[[], Any]]] = MappingProxyType(
    {
        "workers": {"streams-rules": StreamsRules},
        "binding": {"static": Static, "greedy": Greedy, "barrier": Barrier},
        "reorder": {"locked": Locked},
    }
)
"""For options of `ps.Threads`, the names on the command line."""

__dir__ = __all__.copy
