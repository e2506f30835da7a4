"""Make one sample of a run: plain JSON, the same for every engine, without a value of a row but for named hot keys.

What was done is told by the engine since its start; rates are of the last seconds: of the threads engine the difference
of two looks, of the others their last epochs. A sample is also written as Prometheus metrics (text format 0.0.4): names
of operators and numbers, nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from penstock.dashboard.graph import Json, describe_graph
from penstock.dashboard.views import EpochView, ThreadsView
from penstock.errors import OperatorError, PenstockError
from penstock.plan.plan import make_plan
from penstock.run import Run
from penstock.statistics import FlowStats

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
            return  # a query is just being built
        self._seen = now
        self._sinks = [node.name for node in plan.sinks]
        self.graph = describe_graph(plan.only(run.queries).graph)
        self.graph_version += 1

    def sample(self, decisions: int, state: str | None = None) -> Json:
        """Return what the run is doing now; `state` says that it has ended, and how."""
        self.look_at_graph()
        now = self._clock()
        view, stats = self._threads or self._epochs, self._run.stats
        described = view.describe(self.graph, now, stats)
        totals = {
            "rows_in": stats.rows_in,
            "rows_out": sum(stats.rows_out.values()),
            "epochs": stats.epochs,
            "lag_rows": stats.backlog,
            **described.pop("totals"),
        }
        latencies = described.pop("latencies")
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
            **described,
            "queries": self._queries(described["operators"], latencies),
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
    """Say what ended a flow, without the row that did: its values do not belong on a page."""
    if isinstance(error, OperatorError):
        kind = error.error.split(":", 1)[0]
        return f"operator {error.operator!r} failed: {kind if kind.isidentifier() else 'its function raised an error'}"
    return None if error is None else type(error).__name__


Labels = dict[str, str]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def write_metrics(sample: Json) -> str:
    flow = {"flow": str(sample.get("flow", "")), "engine": str(sample.get("engine", ""))}
    totals = sample.get("totals", {})
    latency = totals.get("latency") or {}
    operators: Json = sample.get("operators", {})
    checkpoint = sample.get("checkpoint") or {}
    order = sample.get("order", {})
    lines: list[str] = []

    def add(name: str, kind: str, text: str, values: Iterable[tuple[Labels, Any]]) -> None:
        known = [(labels, value) for labels, value in values if value is not None]
        if known:
            lines.extend((f"# HELP penstock_{name} {text}", f"# TYPE penstock_{name} {kind}"))
            lines.extend(f"penstock_{name}{_labels({**flow, **labels})} {value}" for labels, value in known)

    def each(field: str) -> list[tuple[Labels, Any]]:
        return [({"operator": name}, found.get(field)) for name, found in operators.items()]

    add("up", "gauge", "1 while the flow runs.", [({}, int(sample.get("state") == "running"))])
    add("rows_in_total", "counter", "Rows read from all sources.", [({}, totals.get("rows_in"))])
    add("rows_out_total", "counter", "Rows written to all sinks.", [({}, totals.get("rows_out"))])
    add("rows_per_second", "gauge", "Rows read per second, lately.", [({}, totals.get("rate"))])
    add(
        "latency_seconds",
        "gauge",
        "Seconds from reading rows to what they led to being out, lately.",
        [({"quantile": "0.5"}, latency.get("p50")), ({"quantile": "0.99"}, latency.get("p99"))],
    )
    add("lag_rows", "gauge", "Rows that are known to wait at the sources.", [({}, totals.get("lag_rows"))])
    add("lag_seconds", "gauge", "Seconds that the flow is behind.", [({}, totals.get("lag_seconds"))])
    add("epochs_total", "counter", "Epochs committed (reports, with the threads engine).", [({}, totals.get("epochs"))])
    add("parallelism", "gauge", "Tasks of the keyed stages, or workers.", [({}, totals.get("size"))])
    add("decisions_total", "counter", "Decisions that changed or reported something.", [({}, sample.get("decisions"))])
    add("reorder_depth", "gauge", "Batches that are done and wait for an earlier one.", [({}, order.get("depth"))])
    add("reorder_gap_seconds", "gauge", "Age of the oldest batch that others wait for.", [({}, order.get("gap"))])
    add("checkpoint_epoch", "gauge", "The last committed epoch.", [({}, checkpoint.get("epoch"))])
    add("checkpoint_age_seconds", "gauge", "Seconds since the last commit.", [({}, checkpoint.get("age"))])
    add("operator_rows_in_total", "counter", "Rows into an operator.", each("rows_in"))
    add("operator_rows_out_total", "counter", "Rows out of an operator.", each("rows_out"))
    add("operator_wall_seconds_total", "counter", "Seconds spent in an operator.", each("wall"))
    add("operator_cpu_seconds_total", "counter", "Processor seconds spent in an operator.", each("cpu"))
    add("operator_busy_ratio", "gauge", "Busy time of an operator, 0 to 1, lately.", each("busy"))
    add("operator_queue_batches", "gauge", "Batches that wait for an operator.", each("queue"))
    add("operator_errors_total", "counter", "Rows that failed and were passed over.", each("errors"))
    add("operator_retries_total", "counter", "Attempts of an operator's calls after the first.", each("retries"))
    add("operator_timeouts_total", "counter", "Attempts of its calls that took too long.", each("timeouts"))
    add("operator_forgotten_keys_total", "counter", "Keys whose time to live was over.", each("forgotten"))
    add("operator_state_bytes", "gauge", "Bytes of state of an operator.", each("state_bytes"))
    add("operator_key_bytes", "gauge", "Bytes of memory of a key's state, about.", each("key_bytes"))
    add(
        "shard_imbalance_ratio",
        "gauge",
        "Load of the busiest task over the mean.",
        [({"operator": name}, round(found["imbalance"], 4)) for name, found in sample.get("shards", {}).items()],
    )
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
