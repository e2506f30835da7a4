"""Run flows on the Spark engine without Spark, with a checkpoint and directories that outlive a run.

The engine, its tasks, feeds, checkpoint and sinks are the real ones; only the shuffle is played (`InlineBackend`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.sequence import InputSequence
from penstock.options import Options
from penstock.plan.plan import make_plan
from penstock.sequential import SequentialEngine
from penstock.spark import task
from penstock.spark.engine import SparkEngine
from penstock.spark.envelope import SCHEMA
from penstock.spark.job import JobLost
from penstock.spark.parts import TaskReport
from penstock.spark.stages import EpochSpec
from penstock.spark.worker_state import ShardCache
from penstock.store import lease as leases
from penstock.store.objects import LocalStore

from ..conformance.inline import InlineBackend, run_on_table
from ..how import how

NUMBERED = {"i": int, "name": str, "n": int}
RUNNING = {"n": int, "k": int, "count": int, "total": float}


class Crash(Exception):
    """Stands for the end of a process."""


class Disk:
    """Count what is renamed, linked and removed below a directory; before one of these changes all ends."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path, *, crash_at: int) -> None:
        self.changes, self._root, self._crash_at = 0, str(root), crash_at
        patch.setattr(leases, "_exists", lambda pid: False)  # who held the lease is dead by now
        for name in ("replace", "link", "unlink", "rename", "rmdir"):
            self._watch(patch, os, name)

    def _watch(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def watched(*paths: Any, **options: Any) -> Any:
            if not str(paths[0]).startswith(self._root):
                return original(*paths, **options)
            self.changes += 1
            if self.changes >= self._crash_at:
                raise Crash
            return original(*paths, **options)

        patch.setattr(owner, name, watched)


class Workers(InlineBackend):
    """Some workers, each with a cache that it keeps; `choose(epoch, task)` is the worker that runs a task.

    The jobs of the epochs in `lost` are done, and then lost.
    """

    def __init__(self, count: int, choose: Callable[[int, int], int], lost: Iterable[int] = ()) -> None:
        super().__init__(cores=2, seed=0)
        self.caches = [ShardCache() for _ in range(count)]
        self._choose, self._lost = choose, set(lost)

    def run(self, spec: EpochSpec, frames: list[Any]) -> TaskReport:
        outcome = super().run(spec, frames)
        if spec.epoch in self._lost:
            self._lost.remove(spec.epoch)
            raise JobLost("an executor went away")
        return outcome

    def _level(self, spec: EpochSpec, level: int, inputs: dict[int, pa.Table]) -> pa.Table:
        batches = []
        for number in sorted(inputs):
            with mock.patch.object(task, "CACHE", self.caches[self._choose(spec.epoch, number)]):
                made = task.Task(self._stages, spec, level, number)
                batches += run_on_table(made, spec, level, inputs[number], 1000)
        return pa.Table.from_batches(batches, SCHEMA)


def read_document(path: Path | str) -> dict[str, Any]:
    """Read a document of a checkpoint."""
    body = LocalStore(str(Path(path).parent)).read(Path(path).name)
    assert body is not None
    return body


def change_document(path: Path | str, **changes: Any) -> None:
    """Change a document of a checkpoint as no driver would."""
    LocalStore(str(Path(path).parent)).write(Path(path).name, {**read_document(path), **changes})


def running(state: tuple[int, float], row: Any) -> tuple[tuple[int, float], tuple[int, int, int, float]]:
    """Count and add up a key's values: wrong as soon as a row is lost, doubled or out of order."""
    count, total = state[0] + 1, state[1] / 2 + row.v
    return (count, total), (row.n, row.k, count, total)


def make_rows(count: int, *, keys: int = 11) -> list[dict[str, Any]]:
    """Make rows: n counts, t is a time that rises, k a key, v a value."""
    return [{"n": n, "t": n // 2, "k": (7 * n + n // 5) % keys, "v": n / 7} for n in range(count)]


def write_files(directory: Path, rows: list[dict[str, Any]], size: int, *, first: int = 0) -> None:
    """Write rows as Parquet files of `size` rows, whose order is that of their times of change."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, len(rows), size), first):
        path = directory / f"{number:04d}.parquet"
        pq.write_table(pa.Table.from_pylist(rows[start : start + size]), path)
        os.utime(path, ns=(number * 10**9, number * 10**9))


def two_sinks(data: Path, out: Path, *, window: int = 10, shards: int = 256, **files: Any) -> ps.Flow:
    """Build a flow with a keyed scan, keyed windows and two Parquet sinks; `files` are options of these."""
    flow = ps.Flow("recovery", shards=shards)
    rows = flow.source("rows", ps.read.parquet(str(data)), time="t")
    scan = rows.key_by("k").scan(running, (0, 0.0), schema=RUNNING, name="running")
    scan.sink("scanned", ps.write.parquet(str(out / "scanned"), **files))
    rows.key_by("k").window(window).aggregate(c=ps.agg.count(), s=ps.agg.sum("v"), name="windows").sink(
        "windowed", ps.write.parquet(str(out / "windowed"), **files)
    )
    return flow


def flow_of(readers: Any, out: Path, **options: Any) -> ps.Flow:
    """Build a flow that numbers the rows of all sources, which have a name and a number."""
    flow = ps.Flow("sequence")
    first, *others = (flow.source(name, reader, **options) for name, reader in readers.items())
    numbered = first.union(*others).scan(lambda n, r: (n + 1, (n, r.name, r.n)), 0, schema=NUMBERED, name="running")
    numbered.sink("out", ps.write.parquet(str(out)))
    return flow


def make_engine(
    flow: ps.Flow, checkpoint: Path, *, tasks: int | None = 2, seed: int = 0, **options: Any
) -> SparkEngine:
    """Make an engine for a flow on a checkpoint."""
    backend = options.pop("backend", None) or InlineBackend(tasks or 2, seed)
    return SparkEngine(
        make_plan(flow), backend, Options(**how("spark", checkpoint=str(checkpoint), tasks=tasks, **options))
    )


def run_inline(flow: ps.Flow, checkpoint: Path, **options: Any) -> SparkEngine:
    """Run a flow to its end."""
    engine = make_engine(flow, checkpoint, **options)
    engine.run()
    return engine


def sequential(flow: ps.Flow, *, end: bool = True) -> SequentialEngine:
    """Run a flow's sources to their end on the reference engine."""
    plan = make_plan(flow)
    engine = SequentialEngine(plan)
    feeds = {n.name: n.operator.reader.feed(n.name, lambda: 0.0) for n in plan.sources}  # type: ignore[attr-defined]
    slices = {name: found for name, feed in feeds.items() if (found := feed.poll(1 << 40)) is not None}
    sequence = InputSequence(plan, engine)
    sequence.give_all(slices)
    for name in feeds if end else ():
        sequence.end(name)
    sequence.run()
    return engine


def read_back(directory: Path) -> list[tuple[Any, ...]]:
    """Read a Parquet sink as anyone would: directories by name, files by name, rows as they stand."""
    return [row for path in sorted(directory.glob("epoch=*/*.parquet")) for row in _rows(path)]


def _rows(path: Path) -> Iterator[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in pq.ParquetFile(path).read().columns]
    return zip(*columns, strict=True)


def assert_as_sequential(flow: ps.Flow, out: Path, checkpoint: Path) -> None:
    """Compare all that a run left behind with the reference engine: rows of all sinks, and the state of `running`."""
    expected = sequential(flow)
    for sink, rows in expected.results.items():
        assert read_back(out / sink) == [tuple(row) for row in rows], sink
    assert ps.state.values(str(checkpoint), "running") == expected.state("running")
