"""A run that ends anywhere goes on from its checkpoint as if nothing had happened."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest

import penstock as ps
from penstock.spark import stages as routing
from penstock.spark.outputs import Outputs
from penstock.store import lease as leases
from penstock.store.checkpoint import Checkpoint
from penstock.store.keeper import Keeper
from penstock.store.objects import DamagedError, LocalStore
from penstock.store.publication import Publication, rolls_of

from ..conformance.inline import InlineBackend
from ..in_turn import few_of
from .running import (
    RUNNING,
    Crash,
    Disk,
    assert_as_sequential,
    change_document,
    make_engine,
    make_rows,
    read_back,
    read_document,
    run_inline,
    running,
    sequential,
    two_sinks,
    write_files,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write 8 files of 13 rows; epochs of 20 rows then begin and end inside of files."""
    write_files(tmp_path / "data", make_rows(104), 13)
    return tmp_path / "data"


def of_spec(_: Any, spec: Any, *__: Any) -> int:
    return int(spec.epoch)


def of_position(_: Any, position: Any, *__: Any) -> int:
    return int(position.epoch)


def of_number(_: Any, epoch: int, *__: Any) -> int:
    return epoch


def of_staged(_: Any, staged: Any) -> int:
    return max((int(roll["epoch"]) for roll in rolls_of(staged).values()), default=-1)


def of_second_sink(_: Any, source: str, target: str, names: Any) -> int:
    return int(target.removeprefix("epoch=")) if "windowed" in str(_.root) else -1


class TestCrashAtAStep:
    EPOCH = 3
    STEPS: ClassVar[dict[str, tuple[Any, str, Callable[..., int], bool]]] = {
        "before the intent": (Checkpoint, "write_intent", of_number, True),
        "before the job": (InlineBackend, "run", of_spec, True),
        "after the job": (InlineBackend, "run", of_spec, False),
        "before the sinks that are called": (Outputs, "deliver", of_number, True),
        "after the sinks that are called": (Outputs, "deliver", of_number, False),
        "after the commit": (Checkpoint, "commit", of_position, False),
        "between the directories": (LocalStore, "_publish", of_second_sink, True),
        "after the directories": (Publication, "publish", of_staged, False),
        "before the cleaning": (Keeper, "commit", of_position, False),
    }
    """For each step of an epoch: a method, how to tell the epoch, and whether the end comes before or after it."""

    @pytest.mark.parametrize("step", STEPS)
    def test_the_restarted_run_is_whole(self, data, tmp_path, monkeypatch, step):
        owner, name, epoch_of, before = self.STEPS[step]
        original = getattr(owner, name)

        def crashing(*arguments: Any) -> Any:
            last = epoch_of(*arguments) == self.EPOCH
            result = None if last and before else original(*arguments)
            if last:
                raise Crash
            return result

        flow = two_sinks(data, tmp_path / "out", roll_every=0)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, crashing)
            with pytest.raises(Crash):
                run_inline(flow, tmp_path / "ck", epoch_rows=20)
        # More rows have come in the meantime, which must not change what the epoch that was begun reads.
        write_files(data, make_rows(104 + 26)[104:], 13, first=8)
        run_inline(flow, tmp_path / "ck", epoch_rows=33, tasks=3, seed=1)
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")


class TestCrashAnywhere:
    def test_each_change_of_the_disk_can_be_the_last(self, data, tmp_path, monkeypatch):
        done, number = False, 0
        while not done:
            number += 1
            work = tmp_path / f"run{number}"
            flow = two_sinks(data, work / "out")
            with monkeypatch.context() as patch:
                disk = Disk(patch, work, crash_at=number)
                try:
                    run_inline(flow, work / "ck", epoch_rows=52, seed=number)
                    done = disk.changes < number
                except Crash:
                    pass
                patch.undo()
                patch.setattr(leases, "_exists", lambda pid: False)
                run_inline(flow, work / "ck", epoch_rows=52, seed=number + 1)
            assert_as_sequential(flow, work / "out", work / "ck")
        assert number > 25  # that many changes there are in three epochs

    @pytest.mark.parametrize("seed", few_of(range(12), 4))
    def test_crash_after_crash(self, data, tmp_path, monkeypatch, seed):
        draw = random.Random(seed)
        flow = two_sinks(data, tmp_path / "out")
        for _ in range(200):
            with monkeypatch.context() as patch:
                Disk(patch, tmp_path, crash_at=draw.randint(1, 25))
                patch.setattr(routing, "SLICE_ROWS", draw.choice([5, 100_000]))  # one part file a task, or one in all
                try:
                    tasks, rows = draw.randint(1, 5), draw.randint(5, 30)
                    run_inline(flow, tmp_path / "ck", epoch_rows=rows, tasks=tasks, seed=draw.random())
                    break
                except Crash:
                    pass
        else:
            raise AssertionError(f"seed {seed}: never came to the end")
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")


class TestDamage:
    def test_a_torn_manifest_counts_as_absent(self, data, tmp_path):
        flow = two_sinks(data, tmp_path / "out", roll_every=0)
        run_inline(flow, tmp_path / "ck", epoch_rows=20)
        last = sorted((tmp_path / "ck/epochs").iterdir())[-1]
        whole = last.read_bytes()
        last.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DamagedError, match=f"{last} is damaged"):
            Checkpoint(str(tmp_path / "ck")).entry(int(last.stem))
        committed = int(last.stem)  # of a first run, the number in the log is that of the epoch
        assert max(ps.state.epochs(str(tmp_path / "ck"))) == committed - 1
        run_inline(flow, tmp_path / "ck", epoch_rows=20)
        assert max(ps.state.epochs(str(tmp_path / "ck"))) == committed
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    def test_unfinished_files_are_no_epochs_and_go_away(self, data, tmp_path):
        flow = two_sinks(data, tmp_path / "out")
        run_inline(flow, tmp_path / "ck", epoch_rows=20)
        done = ps.state.epochs(str(tmp_path / "ck"))
        left = [
            tmp_path / "ck/epochs" / f"{done[-1] + 1:09d}.json.ab12.tmp",
            tmp_path / "ck/intents" / f".{done[-1] + 1:09d}.json.ab12.tmp",
            tmp_path / "ck/state/.ab12.state.cd34.tmp",
        ]
        for path in left:
            path.write_text("half of")
        assert ps.state.epochs(str(tmp_path / "ck")) == done
        checkpoint = Checkpoint(str(tmp_path / "ck"))
        checkpoint.clean(checkpoint.latest(), 2, lambda: None)
        assert all(path.exists() for path in left)  # a driver at work may be about to finish them
        for path in left:
            os.utime(path, (0, 0))
        checkpoint.clean(checkpoint.latest(), 2, lambda: None)
        assert not list((tmp_path / "ck").rglob("*.tmp"))

    def test_a_lost_description_of_the_flow_is_named(self, data, tmp_path):
        flow = two_sinks(data, tmp_path / "out")
        run_inline(flow, tmp_path / "ck")
        (tmp_path / "ck/flow.json").write_text("00000000 {}")
        with pytest.raises(ps.CheckpointError, match=r"flow\.json is missing or damaged.*restore it"):
            run_inline(flow, tmp_path / "ck")


class TestOutput:
    def test_what_a_killed_attempt_left_behind_is_not_published(self, data, tmp_path, monkeypatch):
        original = InlineBackend.run

        def with_leftovers(self: Any, spec: Any, frame: Any) -> Any:
            outcome = original(self, spec, frame)
            staged = tmp_path / f"out/scanned/_penstock/staging/epoch={spec.epoch:09d}.{spec.fence}"
            staged.mkdir(parents=True, exist_ok=True)
            (staged / ".part-00000.ab12").write_bytes(b"half of")
            return outcome

        monkeypatch.setattr(InlineBackend, "run", with_leftovers)
        flow = two_sinks(data, tmp_path / "out")
        run_inline(flow, tmp_path / "ck", epoch_rows=104)
        assert sorted(path.name for path in (tmp_path / "out/scanned/epoch=000000001").iterdir()) == [
            "part-00000.parquet"
        ]

    def test_a_callback_is_called_again_with_the_same_epoch_and_the_same_rows(self, data, tmp_path, monkeypatch):
        calls: list[tuple[int, list[int]]] = []
        flow = ps.Flow("called")
        flow.source("rows", ps.read.parquet(str(data))).map(lambda row: row.n).sink(
            "out", lambda rows, epoch: calls.append((epoch, rows))
        )
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "commit", mock.Mock(side_effect=Crash))
            with pytest.raises(Crash):
                run_inline(flow, tmp_path / "ck", epoch_rows=60)
        run_inline(flow, tmp_path / "ck", epoch_rows=80)
        first, rest = list(range(60)), list(range(60, 104))
        assert calls == [(1, first), (1, first), (2, rest)]

    def test_a_directory_with_the_rows_of_another_run_is_refused(self, data, tmp_path):
        flow = two_sinks(data, tmp_path / "out")
        run_inline(flow, tmp_path / "one")
        before = read_back(tmp_path / "out/scanned")
        with pytest.raises(ps.CheckpointError, match=rf"'scanned'.*another run.*'recovery'.*{tmp_path}/one"):
            run_inline(flow, tmp_path / "two")
        assert read_back(tmp_path / "out/scanned") == before

    def test_a_directory_with_rows_of_nobody_knows_whom_is_refused(self, data, tmp_path):
        (tmp_path / "out/scanned/epoch=000000001").mkdir(parents=True)
        with pytest.raises(ps.CheckpointError, match=r"'scanned'.*whose they are"):
            run_inline(two_sinks(data, tmp_path / "out"), tmp_path / "ck")

    def test_an_older_copy_of_the_checkpoint_is_refused(self, data, tmp_path):
        flow = two_sinks(data, tmp_path / "out")
        engine = make_engine(flow, tmp_path / "ck", epoch_rows=20)
        engine._listener = lambda stats: engine.stop()
        engine.run()
        shutil.copytree(tmp_path / "ck", tmp_path / "copy")
        run_inline(flow, tmp_path / "ck", epoch_rows=20)
        with pytest.raises(ps.CheckpointError, match=r"newer than the checkpoint.*epoch 1.*restore it"):
            run_inline(flow, tmp_path / "copy", epoch_rows=20)


def halved(state: float, row: Any) -> tuple[float, tuple[int, float]]:
    return state / 2 + row.v, (row.n, state)


class Build:
    """Build a flow that can be changed in one place, over the same rows."""

    def __init__(self, data: Path, out: Path) -> None:
        self.data, self.out = data, out

    def __call__(
        self,
        *,
        flow: str = "changing",
        source: str = "rows",
        key: tuple[str, ...] = ("k",),
        total_ranges: tuple[int, ...] | None = None,
        window_ranges: tuple[int, ...] | None = (1, 2),
        scan: str = "total",
        function: Any = halved,
        window: Any = 10,
        windows: bool = True,
        results: dict[str, Any] | None = None,
        join: int = 4,
        order_by: str | tuple[()] = (),
        slack: int = 0,
    ) -> ps.Flow:
        built = ps.Flow(flow)
        rows = built.source(source, ps.read.parquet(str(self.data)), time="t", order_by=order_by, slack=slack)
        schema = {"n": int, "was": float}
        made = rows.key_by(*key, ranges=total_ranges).scan(function, 0.0, schema=schema, name=scan)
        made.sink("out", ps.write.parquet(str(self.out)))
        if windows:
            results = results or {"c": ps.agg.count()}
            by_range = rows.key_by("k", ranges=window_ranges)
            by_range.window(window).aggregate(**results, name="windows").sink("windowed")
        rows.key_by("k").join(rows.key_by("k"), join, lambda a, b: (a.n, b.n), name="pairs").sink("joined")
        return built


class TestChangesOnRestart:
    @pytest.fixture
    def build(self, data: Path, tmp_path: Path) -> Build:
        return Build(data, tmp_path / "out")

    def begin(self, build: Build, tmp_path: Path) -> None:
        """Run the first 40 rows."""
        engine = make_engine(build(), tmp_path / "ck", epoch_rows=40)
        engine._listener = lambda stats: engine.stop()
        engine.run()

    def test_the_code_of_a_function(self, build, tmp_path):
        self.begin(build, tmp_path)
        run_inline(build(function=lambda state, row: (state / 2 + row.v, (-row.n, state))), tmp_path / "ck")
        expected = [tuple(row) for row in sequential(build()).results["out"]]
        assert read_back(tmp_path / "out") == expected[:40] + [(-n, was) for n, was in expected[40:]]

    @pytest.mark.parametrize("tasks", [1, 5])
    def test_the_number_of_tasks_and_the_table(self, build, tmp_path, tasks):
        self.begin(build, tmp_path)
        engine = make_engine(build(), tmp_path / "ck", epoch_rows=7, tasks=tasks, seed=5)
        engine.set_table("total", [shard % tasks for shard in range(256)])
        engine.run()
        assert read_back(tmp_path / "out") == [tuple(row) for row in sequential(build()).results["out"]]

    def test_another_operator_beside_the_old_ones(self, build, tmp_path):
        self.begin(build, tmp_path)
        flow = build()
        flow.source("more", ps.read.items([1, 2, 3])).reduce(lambda a, b: a + b).sink("sums")
        engine = run_inline(flow, tmp_path / "ck")
        assert engine.outputs is not None
        assert engine.outputs.results["sums"] == [1, 3, 6]
        assert read_back(tmp_path / "out") == [tuple(row) for row in sequential(build()).results["out"]]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"flow": "other"}, "belongs to the flow 'changing', not to 'other'; give that flow its old name"),
            ({"source": "other"}, "the source 'rows' .* is gone .*put it back under its old name"),
            ({"order_by": "t"}, r"the source 'rows' had order_by=\[\] .* now has \['t'\]; change it back"),
            ({"scan": "renamed"}, "operator 'total' .* was renamed; give it its old name with name='total'"),
            ({"windows": False}, "operator 'windows' .* is gone from the flow"),
            ({"key": ("n",)}, r"'total' had the key \['k'\] .* now has \['n'\].*change it back"),
            ({"key": ("k", "n")}, r"'total' had the key \['k'\] .* now has \['k, n'\]"),
            ({"total_ranges": (7,)}, r"'total' had the ranges of keys None .* now has \['7'\].*change it back"),
            ({"window_ranges": (1, 3)}, r"'windows' had the ranges of keys \['1', '2'\] .* now has \['1', '3'\]"),
            ({"window_ranges": None}, r"'windows' had the ranges of keys \['1', '2'\] .* now has None"),
            ({"window": 20}, "'windows' had the window .*10.* now has .*20.*change it back"),
            ({"window": ps.session(10)}, "'windows' had the logic .*TimeWindows.* now has .*SessionWindows"),
            ({"results": {"s": ps.agg.sum("v")}}, r"'windows' had the aggregates \['count'\] .* now has \['sum'\]"),
            ({"join": 5}, "'pairs' had the window .*4.* now has .*5"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_what_the_state_does_not_fit_is_refused(self, build, tmp_path, change, message):
        self.begin(build, tmp_path)
        files = {path: path.read_bytes() for path in (tmp_path / "ck").rglob("*.*") if "lease" not in str(path)}
        with pytest.raises(ps.CheckpointError, match=f"{message}.*new checkpoint"):
            run_inline(build(**change), tmp_path / "ck")
        assert all(path.read_bytes() == content for path, content in files.items())

    def test_a_checkpoint_from_before_there_were_ranges_fits(self, build, tmp_path):
        flow = build(window_ranges=None)
        engine = make_engine(flow, tmp_path / "ck", epoch_rows=40)
        engine._listener = lambda stats: engine.stop()
        engine.run()
        entry = max((tmp_path / "ck/epochs").iterdir())
        described = read_document(entry)["flow"]
        for operator in described["operators"].values():
            del operator["ranges"]
        change_document(entry, flow=described)
        run_inline(flow, tmp_path / "ck")
        assert read_back(tmp_path / "out") == [tuple(row) for row in sequential(build()).results["out"]]

    def test_sessions_that_would_need_their_rows_are_refused(self, build, tmp_path):
        self.begin(partial(build, window=ps.session(3)), tmp_path)
        with pytest.raises(ps.CheckpointError, match=r"'windows' are without their rows .* now keeps them with.*slack"):
            run_inline(build(window=ps.session(3), slack=2), tmp_path / "ck")

    def test_another_number_of_shards_is_refused(self, build, tmp_path):
        self.begin(build, tmp_path)
        flow = build()
        fewer = ps.Flow(flow.name, shards=64)
        fewer._nodes = {name: replace(node, shards=64) for name, node in flow.nodes.items()}
        with pytest.raises(
            ps.CheckpointError, match=r"has 256 shards, the flow now has 64; give Flow\('\w+', shards=256\)"
        ):
            run_inline(fewer, tmp_path / "ck")


class Reminder(ps.Process):
    """Emit a reminder 7 after each key's first row."""

    def on_row(self, row: Any, context: ps.ProcessContext) -> None:
        if context.state is None:
            context.set_timer(context.time + 7)
        context.state = (context.state or 0) + 1

    def on_timer(self, time: Any, context: ps.ProcessContext) -> None:
        context.emit({"key": context.key, "rows": context.state})


class TestTimers:
    def build(self, data: Path, out: Path) -> ps.Flow:
        flow = ps.Flow("timers")
        rows = flow.source("rows", ps.read.parquet(str(data)), time="t")
        reminders = rows.key_by("k").process(Reminder, schema={"key": int, "rows": int}, name="remind")
        reminders.sink("reminders", ps.write.parquet(str(out / "reminders")))
        rows.key_by("k").scan(running, (0, 0.0), schema=RUNNING, name="running").sink(
            "scanned", ps.write.parquet(str(out / "scanned"))
        )
        return flow

    def test_they_survive_a_restart_behind_each_epoch(self, data, tmp_path):
        flow = self.build(data, tmp_path / "out")
        for seed in range(40):
            engine = make_engine(flow, tmp_path / "ck", epoch_rows=4, seed=seed)
            engine._listener = lambda stats, engine=engine: engine.stop()
            engine.run()
            if engine._position.ended:
                break
        assert seed > 20
        assert len(read_back(tmp_path / "out/reminders")) == 11
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")


class Deadly:
    """Do as `running`, but the row of one number kills its worker a number of times."""

    def __init__(self, path: Path, times: int) -> None:
        self.path, self.times = str(path), times

    def __call__(self, state: tuple[int, float], row: Any) -> Any:
        if row.n == 50:
            with open(self.path, "ab", buffering=0) as file:
                file.write(b".")
                died = file.tell()
            if died <= self.times:
                os.kill(os.getpid(), signal.SIGKILL)
        return running(state, row)


@pytest.mark.spark
class TestKilledWorker:
    @pytest.mark.parametrize(("times", "attempts"), [(1, 1), (4, 2)], ids=["spark retries", "penstock retries"])
    @pytest.mark.parametrize("tasks", [None, 2], ids=["one task", "two tasks"])
    def test_nothing_is_lost_or_doubled(self, spark, data, tmp_path, times, attempts, tasks):
        def build(function: Any) -> ps.Flow:
            flow = ps.Flow("deadly")
            rows = flow.source("rows", ps.read.parquet(str(data)))
            rows.key_by("k").scan(function, (0, 0.0), schema=RUNNING, name="running").sink(
                "scanned", ps.write.parquet(str(tmp_path / "out/scanned"))
            )
            return flow

        flow = build(Deadly(tmp_path / "deaths", times))
        run = ps.run(flow, on=ps.Spark(spark, tasks=tasks, epoch_rows=40), checkpoint=str(tmp_path / "ck"))
        assert [stats.attempts for stats in run.epochs] == [1, attempts, 1, 1]
        assert os.path.getsize(tmp_path / "deaths") == times + 1
        assert_as_sequential(build(running), tmp_path / "out", tmp_path / "ck")
