"""Make one sample of a run: plain JSON, the same for every engine, without a value of a row but for named hot keys.

What was done is told by the engine since its start; rates are of the last seconds: of the threads engine the difference
of two looks, of the others their last epochs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from penstock.dashboard.epochs import EpochView
from penstock.dashboard.graph import describe_graph
from penstock.dashboard.threads import ThreadsView
from penstock.errors import OperatorError, PenstockError
from penstock.plan.plan import make_plan
from penstock.run import Run
from penstock.statistics import FlowStats

Json = dict[str, Any]
log = logging.getLogger(__name__)


class Sampler:
    """Look at a run, again and again. One thread samples; the engine's own brings epochs."""

    def __init__(self, run: Run, engine: str, clock: Callable[[], float] = time.time) -> None:
        self._run, self._engine, self._clock = run, engine, clock
        self.started = clock()
        self.graph: Json = {"nodes": [], "edges": []}
        self.graph_version = 0
        self._seen: tuple[int, tuple[str, ...]] | None = None
        self._sinks: list[str] = []
        self._epochs = EpochView(engine)
        self._threads = ThreadsView(run) if engine == "threads" else None
        run.on_epoch(self._took_epoch)
        self.look_at_graph()

    def _took_epoch(self, stats: FlowStats) -> None:
        try:
            self._epochs.take(stats, self._clock())
        except Exception:  # the page's trouble must not become the flow's
            log.warning("the page could not look at an epoch", exc_info=True)

    def look_at_graph(self) -> None:
        """Describe the graph anew where operators or queries came or went."""
        run = self._run
        now = (len(run.flow.nodes), tuple(run.queries))
        if now == self._seen:
            return
        try:
            plan = make_plan(run.flow)
        except PenstockError:
            return  # somebody is in the middle of building a query
        self._seen = now
        self._sinks = [node.name for node in plan.sinks]
        self.graph = describe_graph(plan.only(run.queries).graph)
        self.graph_version += 1

    def sample(self, decisions: int, state: str | None = None) -> Json:
        """Return what the run is doing now; `state` says that it has ended, and how."""
        self.look_at_graph()
        now = self._clock()
        view, stats = self._threads or self._epochs, self._run.stats
        found = view.describe(self.graph, now, stats)
        totals = {
            "rows_in": stats.rows_in,
            "rows_out": sum(stats.rows_out.values()),
            "epochs": stats.epochs,
            "lag_rows": stats.backlog,
            **found.pop("totals"),
        }
        latencies = found.pop("latencies")
        return {
            "at": round(now, 3),
            "started": round(self.started, 3),
            "flow": self._run.flow.name,
            "engine": self._engine,
            "state": state or "running",
            "error": describe_error(self._run.error) if state == "failed" else None,
            "graph": self.graph_version,
            "decisions": decisions,
            "totals": totals,
            **found,
            "queries": self._queries(found["operators"], latencies),
            "can_change": self._threads is not None and state is None,
        }

    def _queries(self, operators: Json, latencies: Json) -> list[Json]:
        running = set(self._run.queries)
        return [
            {
                "name": name,
                "running": name in running,
                "rows": operators.get(name, {}).get("rows_in", 0),
                "rate": operators.get(name, {}).get("rate_in", 0.0),
                "latency": latencies.get(name),
            }
            for name in self._sinks
        ]


def describe_error(error: BaseException | None) -> str | None:
    """Say what ended a flow, without the row that did: its values are nobody's business on a page."""
    if isinstance(error, OperatorError):
        kind = error.error.split(":", 1)[0]
        return f"operator {error.operator!r} failed: {kind if kind.isidentifier() else 'its function raised an error'}"
    return None if error is None else type(error).__name__
