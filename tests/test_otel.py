"""What a flow tells OpenTelemetry: a span per epoch, and metrics."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import penstock as ps
from penstock.otel import Telemetry


class Collected:
    """Providers that keep what they are told."""

    def __init__(self) -> None:
        self.spans, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.meters = MeterProvider([self.reader])

    def totals(self) -> dict[tuple[str, str], float]:
        """Return the value of each metric, by its name and the operator or sink that it is of."""
        found = {}
        for metric in self.reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics:
            for point in metric.data.data_points:
                of = point.attributes.get("penstock.operator") or point.attributes.get("penstock.sink") or ""
                found[metric.name, of] = getattr(point, "value", None) or getattr(point, "sum", 0)
                assert point.attributes["penstock.flow"] == "shop"
        return found


def shop() -> ps.Flow:
    flow = ps.Flow("shop")
    numbers = flow.source("numbers", ps.read.items(range(100)))
    return numbers.map(lambda n: 100 // n, name="divide", on_error="skip").sink("out")


@pytest.mark.parametrize(
    "on", [ps.Sequential(epoch_rows=30), ps.Threads(), pytest.param(None, marks=pytest.mark.spark)]
)
def test_a_span_per_epoch_and_metrics_that_add_up(on, request):
    on = ps.Spark(request.getfixturevalue("spark"), epoch_rows=30) if on is None else on
    told = Collected()
    run = ps.run(shop(), on=on, on_epoch=Telemetry("shop", tracer_provider=told.tracers, meter_provider=told.meters))
    spans = told.spans.get_finished_spans()
    assert [span.name for span in spans] == [f"epoch {epoch.epoch}" for epoch in run.epochs]
    assert sum(span.attributes["penstock.rows.in"] for span in spans) == 100
    assert all(span.start_time <= span.end_time for span in spans)
    totals = told.totals()
    assert totals["penstock.rows.in", ""] == 100
    assert totals["penstock.rows.out", "out"] == 99
    assert totals["penstock.epochs", ""] == sum(epoch.epochs for epoch in run.epochs)
    if run.epochs[0].operators:  # the sequential engine tells of the flow alone
        assert totals["penstock.operator.rows", "divide"] == 100
        assert totals["penstock.operator.errors", "divide"] == 1
