"""Every operator over streaming DataFrames, run leg by leg on one checkpoint, and by the sequential engine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.connectors.sequence import InputSequence
from penstock.flow import operate
from penstock.plan.plan import make_plan
from penstock.sequential import SequentialEngine
from penstock.store.checkpoint import Checkpoint

from ..conformance.flows.coroutines import Differences
from ..conformance.flows.state import Summary
from ..how import how
from ..patience import PATIENCE

Rows = list[dict[str, int]]
SCHEMA = "t long, k long, v long"
FIELDS = {"t": int, "k": int, "v": int}


def make_rows(count: int, *, first: int = 0) -> Rows:
    """Make rows whose times rise unevenly, with pauses, and go back now and then by no more than the slack."""
    times = [(n, n // 2 + n // 16 * 9 - (3 if n % 7 == 3 else 0)) for n in range(first, first + count)]
    return [{"t": time, "k": n * 5 % 3, "v": n} for n, time in times]


def total(state: int, row: Any) -> tuple[int, tuple[int, int, int]]:
    """Add up a key's values so that each order of them gives another sum."""
    state = (state * 31 + row.v) % 1_000_003
    return state, (row.k, row.v, state)


def every_operator(events: ps.Stream) -> None:
    """Put an operator of each kind on a stream of (t, k, v)."""
    keyed = events.key_by("k")
    keyed.window(10).aggregate(n=ps.agg.count(), total=ps.agg.sum("v"), name="windows").sink("windows out")
    keyed.window(ps.session(4)).aggregate(n=ps.agg.count(), last=ps.agg.last("v"), name="sessions").sink("sessions out")
    keyed.scan(total, 0, name="scan").sink("scan out")
    keyed.aggregate(n=ps.agg.count(), highest=ps.agg.max("v"), name="aggregate").sink("aggregate out")
    keyed.process(Summary, name="process").sink("process out")
    events.sort(slack=4, name="sort").sink("sort out")
    operate(Differences(), events, name="differences").sink("differences out")
    doubled = events.flat_map(lambda r: [(r.t, r.v), (r.t, -r.v)])
    doubled.union(events.map(lambda r: (r.t, "one", r.v))).sink("union out")
    odd = events.filter(lambda r: r.v % 2 == 1).key_by("k")
    keyed.join(odd, 6, lambda a, b: (a.v, b.v), name="join").sink("join out")


def sequential(
    flow: ps.Flow, sequence: list[tuple[str, Any]] | list[tuple[str, Any, int]], parts: int = 1
) -> dict[str, list[Any]]:
    """Return what a flow makes of rows that have no end, each with its source, and with its part where it has some."""
    plan = make_plan(flow)
    engine = SequentialEngine(plan)
    types = {node.name: node.types[0] for node in plan.sources}
    for source in types:
        engine.know(source, range(parts))
    for source, row, *part in sequence:
        declared = types[source]
        engine.row(source, row if declared is None else declared.roundtrip(row), *part)
    return engine.results


def ordered(readers: dict[str, Any], **options: Any) -> ps.Flow:
    """Build a flow of every operator over sources that are one sequence by `order_by`."""
    flow = ps.Flow("ordered")
    first, *others = [flow.source(name, reader, time="t", order_by="t", **options) for name, reader in readers.items()]
    every_operator(first.union(*others) if others else first)
    return flow


def meant(flow: ps.Flow, given: dict[str, list[tuple[int, Any]]], parts: dict[str, int]) -> dict[str, list[Any]]:
    """Return what comes out of rows of parts, by the reference engine, as long as no source ends."""
    plan = make_plan(flow)
    engine = SequentialEngine(plan)
    sequence = InputSequence(plan, engine)
    for source, count in parts.items():
        engine.know(source, range(count))
        sequence.know(source, range(count))
    for node in plan.sources:
        assert node.types[0] is not None
        for part, row in given[node.name]:
            sequence.give(node.name, node.types[0].roundtrip(row), part)
    sequence.run()
    return engine.results


def taken_of(results: dict[str, list[Any]]) -> int:
    """Return how many rows were taken."""
    return len(results["scan out"])


def write_file(directory: Path, form: str, name: str, rows: Rows, changed: int) -> None:
    """Write rows as one file that was changed at a given second."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.{form}"
    hidden = directory / f".{name}"  # Spark must see a file with its time at once
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), hidden)
    else:
        as_line: Callable[[Any], str] = json.dumps if form == "json" else lambda row: ",".join(map(str, row.values()))
        hidden.write_text("".join(as_line(row) + "\n" for row in rows))
    os.utime(hidden, (changed, changed))
    hidden.rename(path)


class Legs:
    """Runs of one flow, one after the other, on one checkpoint."""

    def __init__(self, spark: Any, checkpoint: Path) -> None:
        self.spark, self.checkpoint = spark, checkpoint
        self.results: dict[str, list[Any]] = {}
        self.rows = 0

    def run(self, flow: ps.Flow, until: int, **options: Any) -> None:
        """Run until so many rows came in, in all legs together."""
        run = ps.start(flow, checkpoint=str(self.checkpoint), **how(spark=self.spark, **options))

        def count(stats: Any) -> None:
            self.rows += stats.rows_in
            if self.rows >= until:
                run.stop()

        run.on_epoch(count)
        try:
            assert run.await_end(PATIENCE), "the rows did not come"
        finally:
            run.stop()
            for sink, rows in run.results.items():
                self.results.setdefault(sink, []).extend(rows)

    def intents(self) -> list[dict[str, Any]]:
        """Return what each epoch was to read, in their order."""
        kept = Checkpoint(str(self.checkpoint))
        epochs = {int(path.name[:9]) for path in (self.checkpoint / "intents").glob("*.json")}
        return [kept.intent(epoch) or {} for epoch in sorted(epochs)]
