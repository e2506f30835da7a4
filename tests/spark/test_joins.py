"""Joins without windows, and connected streams, go on from their checkpoint as if nothing had happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.kernels import timed_join_columns

from .running import RUNNING, Workers, make_engine, make_rows, read_back, run_inline, running, sequential, write_files

PAIRS = {"left": int, "right": int}


def pair(left: Any, right: Any) -> dict[str, Any]:
    return {"left": left and left.n, "right": right and right.n}


class Asked(ps.Process):
    """Say how many of the left came before each of the right, and what nobody asked for within 6."""

    def on_left(self, row: Any, context: ps.ProcessContext) -> None:
        context.state = [*(context.state or []), row.n]
        context.set_timer(context.time + 6)

    def on_right(self, row: Any, context: ps.ProcessContext) -> None:
        context.emit({"left": len(context.state or []), "right": row.n})
        context.state = None

    def on_timer(self, time: Any, context: ps.ProcessContext) -> None:
        context.emit({"left": len(context.state or []), "right": None})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write two directories of files with rows of the same keys, the second with some that are out of order."""
    write_files(tmp_path / "data/left", make_rows(104), 13)
    right = [{**row, "n": 1000 + row["n"], "t": row["t"] - 5 * (row["n"] % 4 == 0)} for row in make_rows(104, keys=7)]
    write_files(tmp_path / "data/right", right, 9)
    return tmp_path / "data"


def build(data: Path, out: Path, *, within: Any = (-4, 6), how: Any = "outer", ttl: Any = 40) -> ps.Flow:
    """Join, connect, and count what came."""
    flow = ps.Flow("joining")
    left = flow.source("left", ps.read.parquet(str(data / "left")), time="t")
    right = flow.source("right", ps.read.parquet(str(data / "right")), time="t", slack=2)
    close = left.join(right, on="k", within=within, combine=pair, how=how, schema=PAIRS, name="close")
    sinks = {
        "close": close,
        "late": close.late.map(lambda r: {"left": r.n, "right": r.k}, schema=PAIRS),
        "lasting": left.join(right, on="k", ttl=ttl, combine=pair, how="left", schema=PAIRS, name="lasting"),
        "missing": left.join(right, on="k", within=(-1, 1), how="anti", name="missing"),
        "asked": left.key_by("k").connect(right.key_by("k"), Asked, schema=PAIRS),
        "scanned": left.key_by("k").scan(running, (0, 0.0), schema=RUNNING, name="running"),
    }
    for name, stream in sinks.items():
        stream.sink(f"{name} out", ps.write.parquet(str(out / f"{name} out")))
    return flow


def assert_whole(flow: ps.Flow, out: Path) -> None:
    for sink, rows in sequential(flow).results.items():
        assert rows, sink
        assert read_back(out / sink) == [tuple(row) for row in rows], sink


def test_a_restart_behind_each_epoch(data: Path, tmp_path: Path) -> None:
    flow = build(data, tmp_path / "out")
    for seed in range(60):
        engine = make_engine(flow, tmp_path / "ck", epoch_rows=4, seed=seed, tasks=1 + seed % 3)
        engine._listener = lambda stats, engine=engine: engine.stop()
        engine.run()
        if engine._position.ended:
            break
    assert seed > 20
    assert_whole(flow, tmp_path / "out")


@pytest.mark.spark
def test_a_restart_on_spark(spark: Any, data: Path, tmp_path: Path) -> None:
    flow = build(data, tmp_path / "out")
    for tasks in (2, 3):
        run = ps.start(flow, on=ps.Spark(spark, tasks=tasks, epoch_rows=40), checkpoint=str(tmp_path / "ck"))
        while tasks == 2 and len(run.epochs) < 2 and run.running:
            run.await_end(timeout=0.05)
        if tasks == 2:
            run.stop()
        run.await_end()
    assert_whole(flow, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"within": (-4, 7)}, "'close' had the window .*6.* now has .*7"),
        ({"how": "inner"}, "'close' had the how= 'outer' .* now has 'inner'"),
        ({"ttl": 41}, "'lasting' had the window .*40.* now has .*41"),
    ],
    ids=["within", "how", "ttl"],
)
def test_what_the_state_does_not_fit_is_refused(
    data: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    engine = make_engine(build(data, tmp_path / "out"), tmp_path / "ck", epoch_rows=40)
    engine._listener = lambda stats: engine.stop()
    engine.run()
    with pytest.raises(ps.CheckpointError, match=f"{message}.*new checkpoint"):
        run_inline(build(data, tmp_path / "out", **change), tmp_path / "ck")


def declared(data: Path, out: Path) -> ps.Flow:
    """Join fields side by side, which goes by columns where rows are many."""
    flow = ps.Flow("declared")
    left = flow.source("left", ps.read.parquet(str(data / "left")), time="t")
    right = flow.source("right", ps.read.parquet(str(data / "right")), time="t", slack=2)
    sinks = {
        "close": left.join(right, on="k", within=(-4, 6), how="outer", name="close"),
        "lasting": left.join(right, on="k", ttl=40, how="left", name="lasting"),
        "matched": left.join(right, on="k", within=(-1, 1), how="semi", name="matched"),
        "missing": left.join(right, on="k", within=(-1, 1), how="anti", name="missing"),
    }
    for name, stream in sinks.items():
        stream.sink(f"{name} out", ps.write.parquet(str(out / f"{name} out")))
    return flow


@pytest.mark.parametrize("few", [0, 9, 1000], ids=["columns", "both", "rows"])
def test_columns_go_on_from_what_any_worker_wrote(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(timed_join_columns, "FEW_TO_JOIN", few)
    names = []
    for lost in ([], range(1, 20, 3)):
        work = tmp_path / f"{len(lost)} lost"
        flow = declared(data, work / "out")
        backend = Workers(3, lambda epoch, task: (epoch + task) % 3, lost=lost)
        run_inline(flow, work / "ck", backend=backend, epoch_rows=11, tasks=2)
        assert_whole(flow, work / "out")
        names.append(sorted(path.name for path in (work / "ck/state").iterdir()))
    # A retried task writes the same bytes, whatever its worker knew.
    assert names[0] == names[1]


def test_the_state_of_columns_is_read_by_key(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for few in (0, 1000):
        monkeypatch.setattr(timed_join_columns, "FEW_TO_JOIN", few)
        checkpoint = tmp_path / f"ck {few}"
        engine = make_engine(declared(data, tmp_path / f"out {few}"), checkpoint, epoch_rows=30)
        engine._listener = lambda stats, engine=engine: engine.stop() if stats.epoch == 3 else None
        engine.run()
        states = ps.state.values(str(checkpoint), "lasting")
        found.append({key: ([*left], [*right], alone or {}) for key, (left, right, alone, _) in states.items()})
        assert {each.operator: each.keys for each in ps.state.operators(str(checkpoint))}["lasting"] == len(states)
    assert found[0] == found[1]
    assert len(found[0]) > 5
