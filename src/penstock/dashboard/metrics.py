"""Write a sample as Prometheus metrics (text format 0.0.4): names of operators and numbers, nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]
Labels = dict[str, str]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def write_metrics(sample: Json) -> str:
    """Return the text that Prometheus scrapes."""
    flow = {"flow": str(sample.get("flow", "")), "engine": str(sample.get("engine", ""))}
    totals = sample.get("totals", {})
    latency = totals.get("latency") or {}
    operators: Json = sample.get("operators", {})
    checkpoint = sample.get("checkpoint") or {}
    order = sample.get("order", {})
    lines: list[str] = []

    def add(name: str, kind: str, text: str, values: Iterable[tuple[Labels, Any]]) -> None:
        found = [(labels, value) for labels, value in values if value is not None]
        if found:
            lines.extend((f"# HELP penstock_{name} {text}", f"# TYPE penstock_{name} {kind}"))
            lines.extend(f"penstock_{name}{_labels({**flow, **labels})} {value}" for labels, value in found)

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
