"""The input sequence of several sources across restarts and crashes: the Spark engine goes on where it stood."""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.sources import ItemFeed
from penstock.kernels.intake import SourceMarks
from penstock.kernels.taking import Taker
from penstock.plan.plan import make_plan

from .running import Crash, flow_of, make_engine, read_back, sequential

VALUES = {"a": [0, 0, 2, 3, 3, 3, 7, 9, 9, 12, 15, 15, 20], "b": [1, 3, 3, 8, 9], "c": [3] * 4 + list(range(4, 30))}


def write(directory: Path, form: str) -> Any:
    """Write each source as some small files, and return a reader for each."""
    readers = {}
    for name, values in VALUES.items():
        path = directory / name
        path.mkdir(parents=True)
        for number, start in enumerate(range(0, len(values), 6)):
            rows = [{"name": name, "n": n} for n in values[start : start + 6]]
            file = path / str(number)
            if form == "parquet":
                pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=4)
            else:
                file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(file, (number + 1, number + 1))
        schema = {"name": str, "n": int}
        readers[name] = ps.read.parquet(str(path)) if form == "parquet" else ps.read.json(str(path), schema=schema)
    return readers


@pytest.mark.parametrize("crashes", [False, True], ids=["stopped", "crashed"])
@pytest.mark.parametrize("form", ["parquet", "json"])
@pytest.mark.parametrize("options", [{"order_by": "n"}, {}], ids=["by order", "in turn"])
def test_goes_on_after_every_epoch(tmp_path: Path, options: Any, form: str, crashes: bool) -> None:
    """Each run does one epoch and is stopped, or crashes just before the commit of the next one."""
    readers = write(tmp_path / "data", form)
    expected = [tuple(row) for row in sequential(flow_of(readers, tmp_path / "out", **options)).results["out"]]
    names = [name for _, name, _ in expected]
    if options:
        assert [n for *_, n in expected] == sorted(n for *_, n in expected)
    else:
        assert names[:9] == list("abc") * 3
    runs = 0
    while True:
        engine = make_engine(flow_of(readers, tmp_path / "out", **options), tmp_path / "ck", epoch_rows=4)
        epochs: list[Any] = []
        engine._listener = epochs.append
        commit = engine._commit

        def commit_once(*args: Any, commit: Any = commit, epochs: Any = epochs) -> Any:
            if crashes and epochs:
                raise Crash
            return commit(*args)

        engine._commit = commit_once  # type: ignore[method-assign]
        if not crashes:
            engine._listener = lambda stats, engine=engine, epochs=epochs: (epochs.append(stats), engine.stop())
        try:
            engine.run()
        except Crash:
            runs += 1
            continue
        runs += 1
        if not epochs or not engine._stop.is_set():
            break
        assert runs < 60
    assert runs > 5
    assert read_back(tmp_path / "out") == expected


def test_a_backlog_larger_than_an_epoch_is_not_late(tmp_path: Path) -> None:
    """As long as one source is at values that another has passed, the other waits."""
    readers = {
        "a": ps.read.items([{"name": "a", "n": n} for n in range(200)]),
        "b": ps.read.items([{"name": "b", "n": n} for n in range(100, 110)]),
    }
    engine = make_engine(flow_of(readers, tmp_path / "out", order_by="n"), tmp_path / "ck", epoch_rows=20)
    engine.run()
    found = [(n, name) for _, name, n in read_back(tmp_path / "out")]
    assert found == sorted(found)
    assert len(found) == 210


@pytest.mark.parametrize("seed", range(20))
def test_an_epoch_may_be_smaller_than_what_was_seen(seed: int) -> None:
    """What an epoch has no room for is before everything that another source has behind it."""
    draw = random.Random(seed)
    values = {name: sorted(draw.randrange(60) for _ in range(draw.randrange(1, 40))) for name in "abc"}
    readers = {name: ps.read.items([{"name": name, "n": n} for n in mine]) for name, mine in values.items()}
    plan = make_plan(flow_of(readers, Path("out"), order_by="n"))
    taker = Taker(plan, {name: ItemFeed(reader, name) for name, reader in readers.items()}, lambda: 0.0)
    marks = {name: SourceMarks() for name in values}
    found: list[tuple[int, str]] = []
    ended: set[str] = set()
    while len(ended) < len(values):
        taken = taker.take(draw.choice([1, 2, 30]), marks, ended)
        rows = [
            row for each in taken.slices.values() for split in each.splits for row in pickle.loads(split.payload or b"")
        ]
        found += sorted((row["n"], row["name"]) for row in rows)
        ended |= taken.ends.keys()
    assert found == sorted((n, name) for name, mine in values.items() for n in mine)


def test_a_source_that_was_never_heard_of_is_idle_too(tmp_path: Path) -> None:
    """It holds the windows of others up until it has been silent for as long as it says."""
    (tmp_path / "silent").mkdir()
    schema = {"t": int}
    flow = ps.Flow("silent")
    first = flow.source("a", ps.read.generate(times, schema=schema, rows=30, rows_per_second=1e6), time="t")
    second = flow.source(
        "b", ps.read.json(str(tmp_path / "silent"), schema=schema, follow=True), time="t", idle_after=5
    )
    first.union(second).window(10).count().sink("out")
    engine = make_engine(flow, tmp_path / "ck", epoch_rows=10)
    now = [0.0]
    engine._now = lambda: now[0]

    def after(stats: Any) -> None:
        now[0] += 3.0
        if stats.epoch == 4:
            engine.stop()

    engine._listener = after
    engine.run()
    assert [row.count for row in engine.results["out"]] == [10, 10]


def times(start: int, stop: int) -> pa.Table:
    """Make rows whose times are their numbers."""
    return pa.table({"t": list(range(start, stop))})
