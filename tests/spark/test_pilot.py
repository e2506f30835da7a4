"""The pilot of runs on Spark, without Spark: what it measures, what it decides, and that nothing else changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.elastic import decisions as journals
from penstock.elastic.decisions import HOLD, START, from_json, replay, to_json
from penstock.elastic.shard_balance import ShardBalance, imbalance
from penstock.kernels.shards import HotKeys
from penstock.plan.plan import make_plan
from penstock.rows.keys import SHARDS, hash_value
from penstock.spark.measured import ShardLoads, stage_seconds
from penstock.spark.pilot import EpochPilot, EpochSetup, UserLimits
from penstock.spark.stages import Stages, even_table
from penstock.statistics import FlowStats, OperatorStats

from .piloting import Busy, scanned
from .running import assert_as_sequential, make_engine, make_rows, two_sinks, write_files


class Play:
    """Play epochs to a pilot: the time of each follows from its tasks and tables, as it would on a quiet machine."""

    def __init__(
        self, limits: UserLimits | None = None, cores: int = 4, tables: dict[str, list[int]] | None = None
    ) -> None:
        self.stages = Stages(make_plan(scanned()))
        self.limits, self.cores, self.epoch, self.at = limits or UserLimits(), cores, 0, 0.0
        self.pilot = EpochPilot(
            self.stages, self.limits, cores=cores, executors=None, tables=tables or {}, epoch=self.epoch
        )
        self.row_seconds = 1e-3
        self.noise = random.Random(1)
        self.noise_width = 0.0

    def choose(self, rows: int) -> EpochSetup:
        return self.pilot.choose(self.limits, rows, self.cores, self.epoch + 1)

    def run(self, rows: dict[int, int], backlog: int | None = None, **measured: dict[str, Any]) -> EpochSetup:
        """Run an epoch with so many rows of each shard; for each measure, what it is of some operators."""
        total = sum(rows.values())
        setup = self.choose(total)
        self.epoch += 1
        loads = {s: (n, n * self.row_seconds * self._noisy()) for s, n in rows.items()}
        tasks = [0.0] * setup.tasks[1]
        table = setup.tables.get("counted", [0] * SHARDS)
        for shard, (_, spent) in loads.items():
            tasks[table[shard]] += spent
        stages = {stage: [(1e-3, 1e-3)] for stage in range(3)} | {1: [(spent, spent) for spent in tasks]}
        # Tasks run side by side as far as there are cores.
        busy = max(*tasks, sum(tasks) / self.cores)
        seconds = {0: 0.02, 1: (0.02 + 0.01 * len(tasks) + busy) * self._noisy(), 2: 0.02}
        spent = sum(seconds.values())
        operators = {
            name: OperatorStats(
                1,
                total,
                total,
                name=name,
                shards=loads if name == "counted" else {},
                **{what: values[name] for what, values in measured.items() if name in values},
            )
            for name in self.stages.plan.nodes
        }
        cpu = [cpu for tasks in stages.values() for _, cpu in tasks]
        self.at += spent
        self.pilot.observe(
            FlowStats(
                self.at,
                spent,
                total,
                operators=operators,
                backlog=backlog,
                knows_backlog=backlog is not None,
                computed=max(cpu) if setup.solo else sum(cpu),
                tasks=max(setup.tasks),
                job_seconds=spent,
                attempts=1,
                epoch=self.epoch,
                solo=setup.solo,
                stage_tasks=setup.tasks,
                stage_times=stages,
                stage_seconds=seconds,
            )
        )
        return setup

    def _noisy(self) -> float:
        return 1 + self.noise_width * (2 * self.noise.random() - 1)

    def moves(self) -> list[int]:
        """Return the epochs before which shards were moved."""
        return [line.epoch or 0 for line in self.pilot.decisions if line.what == "table"]


def skewed(seed: int, rows: int = 4000) -> dict[int, int]:
    """Spread rows over the shards as zipf would, in a random order."""
    weights = [1 / (rank + 1) ** 0.9 for rank in range(SHARDS)]
    random.Random(seed).shuffle(weights)
    return {shard: int(rows * weight / sum(weights)) for shard, weight in enumerate(weights)}


class TestMeasures:
    def test_the_time_of_a_job_is_divided_among_its_stages(self):
        ends = [(0, 101.0), (0, 102.0), (1, 104.5), (2, 104.75)]
        timings = [{"level": stage, "ended": end} for stage, end in ends]
        assert stage_seconds(timings, 100.0, 5.0) == {0: 2.0, 1: 2.5, 2: 0.25}

    def test_clocks_that_differ_give_no_negative_time(self):
        timings = [{"level": 0, "ended": 103.0}, {"level": 1, "ended": 99.0}, {"level": 2, "ended": 120.0}]
        assert stage_seconds(timings, 100.0, 5.0) == {0: 3.0, 1: 0.0, 2: 2.0}

    def test_rows_that_move_to_another_shard_count_at_once(self):
        loads = ShardLoads()
        loads.add({1: (1000, 1.0), 2: (10, 0.01)})
        loads.add({1: (10, 0.01), 2: (1000, 1.0)})
        assert loads.loads[2] == pytest.approx(1.0, rel=0.01)
        assert loads.loads[1] == pytest.approx(0.01, rel=0.01)

    def test_a_shard_whose_rows_cost_more_weighs_more(self):
        loads = ShardLoads()
        for _ in range(5):
            loads.add({1: (1000, 4.0), 2: (1000, 1.0)})
        assert loads.loads[1] == pytest.approx(4.0, rel=0.2)
        assert loads.loads[1] > 2.5 * loads.loads[2]

    def test_hot_keys_and_their_shares(self):
        hot, draw = HotKeys(named=True), random.Random(2)
        for _ in range(200):
            keys = [draw.choice(["a", "a", "b", draw.randrange(10**6)]) for _ in range(draw.randrange(60))]
            hot.add(3, keys, 0, len(keys))
        (first, share), (second, part), _ = hot.hottest(3)
        assert (first, second) == ("'a'", "'b'")
        assert share == pytest.approx(0.5, abs=0.1)
        assert part == pytest.approx(0.25, abs=0.1)
        assert hot.hottest(4) == []

    def test_rows_that_come_one_by_one_are_sampled_too(self):
        hot = HotKeys(named=True)
        for number in range(80):
            hot.add(0, ["x" if number % 2 else "y"], 0, 1)
        assert {name for name, _ in hot.hottest(0)} <= {"'x'", "'y'"}
        assert sum(share for _, share in hot.hottest(0)) == pytest.approx(1.0)


class TestTables:
    def test_skew_is_mended_behind_one_epoch_with_few_moves(self):
        play = Play(UserLimits(tasks=4))
        rows = {shard: 400 if shard < 8 else 5 for shard in range(SHARDS)}  # the hot ones all on task 0
        before = play.run(rows).tables["counted"]
        after = play.run(rows).tables["counted"]
        loads = tuple(float(rows[shard]) for shard in range(SHARDS))
        assert imbalance(loads, tuple(before), 4) > 2
        assert imbalance(loads, tuple(after), 4) <= 1.2
        assert 0 < sum(a != b for a, b in zip(before, after, strict=True)) <= 8

    @pytest.mark.parametrize("seed", range(3))
    def test_a_permutation_of_the_keys_is_mended_behind_its_first_epoch(self, seed):
        play = Play(UserLimits(tasks=4))
        play.noise_width = 0.15
        for phase in range(4):
            rows = skewed(10 * seed + phase)
            loads = tuple(float(rows[shard]) for shard in range(SHARDS))
            tables = [tuple(play.run(rows).tables["counted"]) for _ in range(4)]
            assert all(imbalance(loads, table, 4) <= 1.25 for table in tables[1:])

    def test_a_noisy_machine_does_not_move_shards_for_ever(self):
        play = Play(UserLimits(tasks=4))
        play.noise_width = 0.3
        for _ in range(60):
            play.run(skewed(5))
        assert 1 <= len(play.moves()) <= 4

    def test_a_table_that_the_user_set_is_left_alone(self):
        table = [0] * SHARDS
        play = Play(UserLimits(tasks=4, tables={"counted": table}))
        assert [play.run(skewed(1)).tables["counted"] for _ in range(5)] == [table] * 5
        assert play.moves() == []

    def test_small_loads_are_left_alone(self):
        play = Play(UserLimits(tasks=4))
        play.row_seconds = 1e-6
        assert {tuple(play.run(skewed(1)).tables["counted"]) for _ in range(5)} == {tuple(even_table(SHARDS, 4))}

    def test_more_tasks_get_their_part_and_fewer_leave_theirs(self):
        play = Play(UserLimits(tasks=2))
        rows = dict.fromkeys(range(SHARDS), 20)
        first = play.run(rows).tables["counted"]
        play.limits = UserLimits(tasks=4)
        more = play.run(rows).tables["counted"]
        play.limits = UserLimits(tasks=3)
        fewer = play.run(rows).tables["counted"]
        loads = (20.0,) * SHARDS
        assert imbalance(loads, tuple(more), 4) <= 1.2
        assert imbalance(loads, tuple(fewer), 3) <= 1.2
        assert sum(a != b for a, b in zip(first, more, strict=True)) <= SHARDS // 2
        assert all(a == b for a, b in zip(more, fewer, strict=True) if a < 3 and b == a)
        assert sum(a != b for a, b in zip(more, fewer, strict=True)) <= SHARDS // 4 + 8

    def test_a_hot_shard_is_reported_once_with_its_hottest_keys(self):
        play = Play(UserLimits(tasks=4))
        rows = {7: 3000} | dict.fromkeys(range(20, 220), 2)
        for _ in range(4):
            play.run(rows, hot_keys={"counted": {7: [("'ann'", 0.75), ("'bob'", 0.2)]}})
        (line,) = [line for line in play.pilot.decisions if line.what == "hot_shard"]
        assert line.target == "7"
        assert line.why.endswith("no table can balance it; hottest keys: 'ann' (75%), 'bob' (20%)")


class TestTasks:
    def test_one_task_for_small_epochs_and_stages_for_large_ones(self):
        play = Play()
        play.row_seconds = 2e-6
        assert play.run({0: 100}).solo
        assert not play.run(dict.fromkeys(range(SHARDS), 1000)).solo
        assert play.run({0: 100}).solo

    def test_small_epochs_go_back_to_one_task_behind_a_slow_one(self):
        """As where a worker still imports."""
        play, rows = Play(), dict.fromkeys(range(100), 1)
        for row_seconds in (5e-3, 1e-6, 1e-6):
            play.row_seconds = row_seconds
            play.run(rows)
        assert [line.after for line in play.pilot.decisions if line.what == "one_task"] == [True, False, True]

    def test_an_epoch_of_one_task_says_nothing_of_the_tasks_of_a_stage(self):
        play = Play()
        play.row_seconds = 2e-6
        large = dict.fromkeys(range(SHARDS), 1000)
        chosen = [play.run(rows) for _ in range(8) for rows in ({0: 100}, large)]
        assert [setup.solo for setup in chosen] == [True, False] * 8
        for _ in range(8):
            play.run(large)
        lines = [line for line in play.pilot.decisions if line.controller == "stage 1/tasks" and line.what != START]
        assert {line.statistics["rows"] for line in lines if line.statistics} == {256_000}

    def test_all_cores_where_it_pays_and_few_tasks_where_it_does_not(self):
        busy, light = Play(), Play()
        light.row_seconds = 0.03 / 2560
        for _ in range(20):
            busy.run(dict.fromkeys(range(SHARDS), 10))
            last = light.run(dict.fromkeys(range(SHARDS), 10))
        assert busy.choose(2560).tasks[1] == 4
        assert last.solo or last.tasks[1] <= 2

    def test_settles(self):
        play = Play()
        play.noise_width = 0.1
        chosen = [play.run(dict.fromkeys(range(SHARDS), 10)).tasks for _ in range(60)]
        assert len(set(chosen[20:])) == 1

    def test_tasks_that_the_user_set_are_left_alone(self):
        play = Play(UserLimits(tasks=3))
        chosen = [play.run(dict.fromkeys(range(SHARDS), 10)) for _ in range(20)]
        assert {setup.tasks for setup in chosen} == {(4, 3, 3)}
        assert not any(setup.solo for setup in chosen)

    def test_goes_on_with_what_was_committed(self):
        table = [shard % 3 for shard in range(SHARDS)]
        setup = Play(tables={"counted": table}).choose(10**6)
        assert setup.tables == {"counted": table}
        assert setup.tasks[1] == 3

    def test_on_a_smaller_machine_goes_on_with_what_it_can_use(self):
        play = Play(cores=2, tables={"counted": [shard % 64 for shard in range(SHARDS)]})
        chosen = [play.run(dict.fromkeys(range(SHARDS), 100)) for _ in range(12)]
        assert max(setup.tasks[1] for setup in chosen) <= 2
        assert max(max(setup.tables["counted"]) for setup in chosen) <= 1
        first = next(line for line in play.pilot.decisions if line.what == "tasks")
        assert (first.epoch, first.before, first.after) == (1, 64, 2)
        assert replay(from_json(to_json(line)) for line in play.pilot.decisions).same


class TestWaiting:
    def test_rows_in_flight_follow_waiting_against_computing(self):
        play = Play(UserLimits(tasks=2))
        # Of 10 ms a row computes for one: 10 in flight keep the task busy; a task's rate does not rise beyond.
        for _ in range(30):
            flying = play.choose(4000).in_flight["looked up"]
            rate = min(flying / 0.010, 1000.0)
            play.run({0: 4000}, waits={"looked up": (4000, 4000 / rate, 4000 * 0.010, 4.0)})
        assert 8 <= play.choose(4000).in_flight["looked up"] <= 20

    def test_what_the_user_set_is_left_alone(self):
        play = Play(UserLimits(tasks=2))
        for _ in range(5):
            setup = play.run({0: 4000}, waits={"asked": (4000, 1.0, 40.0, 4.0)})
        assert "asked" not in setup.in_flight

    def test_a_handful_of_rows_says_nothing(self):
        play = Play(UserLimits(tasks=2))
        for _ in range(5):
            setup = play.run({0: 100}, waits={"looked up": (20, 1.0, 1.0, 0.9)})
        assert setup.in_flight["looked up"] == 64


class TestIntake:
    def test_epochs_shrink_until_they_fit_the_target(self):
        play = Play(UserLimits(tasks=4, latency=1.0))
        play.row_seconds = 4e-5  # 100,000 rows take a second on four cores
        sizes = []
        for _ in range(12):
            sizes.append(play.pilot.epoch_rows)
            play.run(dict.fromkeys(range(SHARDS), play.pilot.epoch_rows // SHARDS))
        assert sizes[0] == 100_000
        assert sizes[-1] < 50_000
        assert sizes[-1] == sizes[-2]

    def test_what_the_target_leaves_is_spent_on_waiting(self):
        play = Play(UserLimits(tasks=4, latency=4.0))
        for _ in range(4):
            play.run({0: 100})
        assert 1.0 < play.pilot.every < 4.0

    def test_without_a_target_epochs_take_what_they_may(self):
        play = Play(UserLimits(tasks=4, most_rows=123, every=0.5))
        play.run({0: 100})
        assert (play.pilot.epoch_rows, play.pilot.every) == (123, 0.5)

    def test_what_the_user_set_is_left_alone(self):
        play = Play(UserLimits(tasks=4, most_rows=50, every=0.25, latency=4.0))
        for _ in range(5):
            play.run({0: 40}, backlog=10**6)
        assert play.pilot.epoch_rows <= 50
        assert play.pilot.every == 0.25


class Sources:
    """Epochs of several sources, of 0.1 s and 20 us a row."""

    def __init__(self, waiting: list[int], most_rows: int = 1_000_000) -> None:
        flow = ps.Flow("sources")
        self.names = [f"s{number}" for number in range(len(waiting))]
        first, *others = (flow.source(name, ps.read.items([]), schema={"k": int}) for name in self.names)
        first.union(*others).sink("out") if others else first.sink("out")
        stages, limits = Stages(make_plan(flow)), UserLimits(tasks=1, latency=2.0, most_rows=most_rows)
        self.pilot = EpochPilot(stages, limits, cores=2, executors=None, tables={}, epoch=0)
        self.waiting, self.epoch, self.at = waiting, 0, 0.0

    def run(self, *, counted: bool = True) -> float:
        """Run an epoch of what each source may give of the rows that wait; return the seconds that it takes."""
        self.epoch += 1
        given = [min(rows, self.pilot.epoch_rows) for rows in self.waiting]
        self.waiting = [rows - taken for rows, taken in zip(self.waiting, given, strict=True)]
        seconds = 0.1 + 20e-6 * sum(given)
        self.at += seconds
        operators = {name: OperatorStats(rows_in=rows) for name, rows in zip(self.names, given, strict=True)}
        self.pilot.observe(
            FlowStats(
                self.at,
                seconds,
                sum(given),
                operators=operators,
                backlog=sum(self.waiting),
                knows_backlog=counted,
                tasks=1,
                attempts=1,
                epoch=self.epoch,
                stage_tasks=(1,),
                stage_times={0: [(0.1, 0.1)]},
            )
        )
        return seconds


class TestSources:
    @pytest.mark.parametrize("counted", [True, False])
    @pytest.mark.parametrize("count", [1, 2, 4, 8])
    def test_the_target_is_for_the_rows_of_all_sources(self, count, counted):
        play = Sources([10**9 // count] * count)
        took = [play.run(counted=counted) for _ in range(30)]
        # The first epoch has 100,000 rows; half of the target is for an epoch, and doubling stops below that.
        assert max(took) <= 2.1
        assert all(0.4 <= seconds <= 1.0 for seconds in took[-10:])
        assert replay(from_json(to_json(line)) for line in play.pilot.decisions).same

    @pytest.mark.parametrize("counted", [True, False])
    def test_a_source_that_is_alone_in_having_rows_gets_all_of_the_epoch(self, counted):
        play = Sources([10**9] + [0] * 7)
        took = [play.run(counted=counted) for _ in range(40)]
        assert all(0.4 <= seconds <= 1.0 for seconds in took[-10:])

    def test_others_that_get_rows_now_and_then_do_not_break_the_target(self):
        play = Sources([10**9, 0, 0, 0])
        took = []
        for epoch in range(60):
            if epoch % 3 == 0:
                play.waiting[1:] = [50_000] * 3
            took.append(play.run())
        assert max(took[3:]) <= 2.0

    def test_no_source_gives_more_than_the_user_allows(self):
        play = Sources([10**6, 10**4, 0, 0], most_rows=500)
        for _ in range(40):
            assert play.pilot.epoch_rows <= 500
            play.run()
        assert play.pilot.epoch_rows == 500


class TestDecisions:
    def played(self) -> Play:
        play = Play(UserLimits(latency=1.0))
        play.noise_width = 0.2
        for epoch in range(40):
            play.run(skewed(epoch // 10), waits={"looked up": (4000, 4.0, 40.0, 1.0)})
        return play

    def test_are_made_again_from_what_was_seen(self):
        decisions = self.played().pilot.decisions
        assert {line.what for line in decisions} >= {START, HOLD, "table", "tasks", "in_flight"}
        found = replay(from_json(to_json(line)) for line in decisions)
        assert found.same
        assert found.steps > 100

    def test_old_ones_go_and_the_rest_can_be_replayed(self, monkeypatch):
        monkeypatch.setattr(journals, "KEPT", 12)
        decisions = self.played().pilot.decisions
        assert min(line.epoch or 0 for line in decisions) >= 12
        assert replay(from_json(to_json(line)) for line in decisions).same


class TestFailures:
    def test_a_controller_that_fails_is_left_out_and_all_else_goes_on(self, monkeypatch, caplog):
        def fails(*_: Any) -> Any:
            raise ZeroDivisionError("nothing came")

        play = Play(UserLimits(tasks=4))
        rows = {shard: 400 if shard < 8 else 5 for shard in range(SHARDS)}
        first = play.run(rows)
        monkeypatch.setattr(ShardBalance, "step", fails)
        assert play.run(rows).tables == first.tables
        assert "counted/shards is left as it is" in caplog.text
        # It knows nothing of another number of tasks, and its table must not name any that is gone.
        play.limits = UserLimits(tasks=2)
        assert max(play.run(rows).tables["counted"]) == 1
        monkeypatch.undo()
        assert replay(play.pilot.decisions).same


class TestEngine:
    """The engine with its pilot; only Spark's shuffle is played."""

    def hot(self, tmp_path: Path) -> ps.Flow:
        """Make a flow whose keys all lie on the first of two tasks."""
        keys = [key for key in range(400) if hash_value(key) % SHARDS < SHARDS // 2][:40]
        rows = [{**row, "k": keys[row["k"]]} for row in make_rows(1000, keys=len(keys))]
        write_files(tmp_path / "data", rows, 100)
        return two_sinks(tmp_path / "data", tmp_path / "out")

    def test_tables_move_and_the_output_is_that_of_the_sequential_engine(self, tmp_path):
        flow = self.hot(tmp_path)
        engine = make_engine(flow, tmp_path / "ck", tasks=2, epoch_rows=100, backend=Busy(2, 0))
        engine.run()
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")
        assert {line.controller for line in engine.decisions if line.what == "table"} == {
            "running/shards",
            "windows/shards",
        }
        table = engine._position.tables["running"]
        assert table != even_table(SHARDS, 2)
        assert replay(engine.decisions).same

    def test_a_run_that_crashed_goes_on_with_its_table(self, tmp_path):
        flow = self.hot(tmp_path)
        first = make_engine(flow, tmp_path / "ck", tasks=2, epoch_rows=100, backend=Busy(2, 0))
        first._listener = lambda stats: first.stop() if stats.epoch == 4 else None
        first.run()
        table = first._position.tables["running"]
        assert table != even_table(SHARDS, 2)
        # Nothing is measured in the second run, so nothing moves.
        second = make_engine(flow, tmp_path / "ck", tasks=2, epoch_rows=100)
        second.run()
        assert second._position.tables["running"] == table
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    def test_a_change_of_tasks_mends_the_table_and_loses_nothing(self, tmp_path):
        flow = self.hot(tmp_path)
        engine = make_engine(flow, tmp_path / "ck", tasks=1, epoch_rows=100, backend=Busy(4, 0))
        changes = {2: 4, 5: 2}
        engine._listener = lambda stats: engine.set_tasks(changes[stats.epoch]) if stats.epoch in changes else None
        engine.run()
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")
        assert max(engine._position.tables["running"]) == 1

    def test_a_smaller_machine_gets_fewer_tasks_and_loses_nothing(self, tmp_path):
        flow = self.hot(tmp_path)
        first = make_engine(flow, tmp_path / "ck", tasks=8, epoch_rows=100, backend=Busy(8, 0))
        first._listener = lambda stats: first.stop() if stats.epoch == 4 else None
        first.run()
        second = make_engine(flow, tmp_path / "ck", tasks=None, epoch_rows=100, backend=Busy(2, 0))
        seen: list[int] = []
        second._listener = lambda stats: seen.append(stats.tasks)
        second.run()
        assert max(first._position.tables["running"]) == 7
        assert max(seen) == 2
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    def test_a_table_may_name_the_tasks_of_executors_that_came_behind_the_start(self, tmp_path):
        flow = self.hot(tmp_path)
        backend = Busy(2, 0)
        engine = make_engine(flow, tmp_path / "ck", tasks=None, epoch_rows=100, backend=backend)
        backend.cores = 4
        for operator in ("running", "windows"):
            engine.set_table(operator, [shard % 4 for shard in range(SHARDS)])
        engine.run()
        assert max(engine._position.tables["running"]) == 3
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    def test_nothing_is_decided_before_the_run(self, tmp_path):
        assert make_engine(self.hot(tmp_path), tmp_path / "ck").decisions == []


@pytest.mark.parametrize("latency", ["0 s", -1])
def test_a_target_that_cannot_be_is_refused(latency):
    with pytest.raises(ps.FlowError, match="latency"):
        ps.start(scanned(), latency=latency)


def test_a_target_needs_an_engine_that_can_meet_it():
    with pytest.raises(ps.FlowError, match=r"latency= needs on=ps\.Spark\(...\) or on=ps\.Threads"):
        ps.start(scanned(), on=ps.Sequential(), latency="2 s")


def test_one_task_never_runs_an_epoch_of_a_frame_and_of_splits():
    """It would read the frame alone, and the rows of the splits would be committed unread."""
    play = Play()
    assert play.choose(10).solo
    assert not play.pilot.choose(play.limits, 10, play.cores, 2, mixed=True).solo
