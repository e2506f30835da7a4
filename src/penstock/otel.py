"""OpenTelemetry: a span per epoch, and metrics of the flow. Needs `pip install 'penstock[otel]'`.

    ps.run(flow, on_epoch=Telemetry("shop"))

It uses the providers that the program has set, or those that are given; which exporters they have is theirs to say.
"""

from __future__ import annotations

import time
from typing import Any

from penstock.errors import PenstockError
from penstock.statistics import FlowStats

try:
    from opentelemetry import metrics, trace
except ImportError:
    raise PenstockError("OpenTelemetry is not installed: pip install 'penstock[otel]'") from None


class Telemetry:
    """Take what each epoch did, as `on_epoch=` hands it over, and tell OpenTelemetry."""

    def __init__(self, flow: str, *, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        self._flow = {"penstock.flow": flow}
        self._tracer = trace.get_tracer("penstock", tracer_provider=tracer_provider)
        meter = metrics.get_meter("penstock", meter_provider=meter_provider)
        self._epochs = meter.create_counter("penstock.epochs", "{epoch}", "Epochs committed; reports, with threads")
        self._seconds = meter.create_histogram("penstock.epoch.duration", "s", "How long an epoch took")
        self._rows_in = meter.create_counter("penstock.rows.in", "{row}", "Rows read from all sources")
        self._rows_out = meter.create_counter("penstock.rows.out", "{row}", "Rows written to a sink")
        self._operator_rows = meter.create_counter("penstock.operator.rows", "{row}", "Rows into an operator")
        self._operator_seconds = meter.create_counter("penstock.operator.time", "s", "Seconds spent in an operator")
        self._operator_errors = meter.create_counter("penstock.operator.errors", "{row}", "Rows that were passed over")
        self._backlog = meter.create_gauge("penstock.backlog", "{row}", "Rows that are known to wait at the sources")
        self._tasks = meter.create_gauge("penstock.tasks", "{task}", "Tasks of the keyed stages, or workers")
        self._state = meter.create_gauge("penstock.state.size", "By", "Bytes of state of all operators")

    def __call__(self, stats: FlowStats) -> None:
        """Tell what an epoch did. Called by the engine's thread, once the epoch is committed."""
        self._measure(stats)
        end = time.time_ns()
        span = self._tracer.start_span(
            f"epoch {stats.epoch}", attributes=self._attributes(stats), start_time=end - round(stats.seconds * 1e9)
        )
        span.end(end)

    def _measure(self, stats: FlowStats) -> None:
        flow = self._flow
        self._epochs.add(stats.epochs, flow)
        self._seconds.record(stats.seconds, flow)
        self._rows_in.add(stats.rows_in, flow)
        for sink, rows in stats.rows_out.items():
            self._rows_out.add(rows, {**flow, "penstock.sink": sink})
        for name, operator in stats.operators.items():
            of = {**flow, "penstock.operator": name}
            self._operator_rows.add(operator.rows_in, of)
            self._operator_seconds.add(operator.wall, of)
            self._operator_errors.add(operator.errors, of)
        if stats.backlog is not None:
            self._backlog.set(stats.backlog, flow)
        self._tasks.set(stats.tasks, flow)
        self._state.set(stats.state_bytes, flow)

    def _attributes(self, stats: FlowStats) -> dict[str, Any]:
        split = {f"penstock.seconds.{name}": seconds for name, seconds in stats.split.items()}
        backlog = {} if stats.backlog is None else {"penstock.backlog": stats.backlog}
        return {
            **self._flow,
            "penstock.epoch": stats.epoch,
            "penstock.rows.in": stats.rows_in,
            "penstock.rows.out": sum(stats.rows_out.values()),
            "penstock.tasks": stats.tasks,
            "penstock.attempts": stats.attempts,
            **backlog,
            **split,
        }
