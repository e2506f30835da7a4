"""Check the decision log: what a line holds, that it reads back, and that a replay decides the same."""

import json
import math
import random
from dataclasses import replace
from typing import Any

import pytest

from penstock.elastic.base import Action
from penstock.elastic.batch_size import BatchSize, BatchStatistics, BatchWork, WorkDone
from penstock.elastic.climb import WaitingConcurrency, WaitingStatistics
from penstock.elastic.core_allocation import AllocationStatistics, CoreAllocation, ExecutorLoad
from penstock.elastic.decisions import (
    CONTROLLERS,
    HOLD,
    START,
    Decision,
    Recorded,
    build,
    from_json,
    plain,
    replay,
    to_json,
)
from penstock.elastic.epoch_rows import EpochRows, IntakeStatistics
from penstock.elastic.epoch_tasks import EpochStatistics, EpochTasks
from penstock.elastic.epochs import (
    EpochWait,
    ExecutorCount,
    ExecutorStatistics,
    OneTask,
    PaceStatistics,
    WorkStatistics,
)
from penstock.elastic.rebinding import BindingStatistics, OperatorLoad, Rebinding
from penstock.elastic.replicas import OperatorStatistics, Replicas, ReplicaStatistics
from penstock.elastic.shard_balance import HotKey, ShardBalance, ShardKeys, ShardStatistics
from penstock.elastic.thread_level import ThreadLevel, ThreadState, ThreadStatistics
from penstock.elastic.utilization_pool import PoolStatistics, UtilizationPool
from penstock.lab.assignment import Assignment, AssignmentStatistics, ExecutorPlace
from penstock.lab.baselines import (
    GreedyRebinding,
    NaiveAssignment,
    ResourceCentric,
    StreamsRules,
)


def statistics_for(name: str, chance: random.Random) -> Any:
    """Make one period's statistics of each kind, from a seed."""
    fraction, rate = chance.random, lambda: chance.uniform(1, 1e4)
    if name in ("thread_level", "streams_rules"):
        return ThreadStatistics(rate(), fraction(), chance.choice([0, 0, 0, 1]))
    if name == "waiting_concurrency":
        return WaitingStatistics(rate(), fraction(), fraction(), chance.randint(1, 4))
    if name == "utilization_pool":
        return PoolStatistics(tuple(fraction() for _ in range(4)))
    if name == "replicas":
        ops = [
            OperatorStatistics(o, tuple(fraction() for _ in range(chance.randint(1, 3))), fraction(), rate())
            for o in "abc"
        ]
        return ReplicaStatistics(tuple(ops))
    if name in ("rebinding", "greedy_rebinding", "round_robin_binding"):
        ops = [OperatorLoad(f"o{i}", chance.randrange(3), chance.randrange(99), fraction()) for i in range(9)]
        return BindingStatistics(3, tuple(ops))
    if name in ("shard_balance", "resource_centric"):
        hot = (ShardKeys(0, (HotKey("k", fraction()),)),)
        loads = tuple(chance.paretovariate(1) for _ in range(12))
        return ShardStatistics(loads, tuple(chance.randrange(3) for _ in range(12)), 3, (), hot)
    if name == "core_allocation":
        loads = tuple(ExecutorLoad(f"e{i}", rate(), rate(), chance.randint(1, 9)) for i in range(3))
        return AllocationStatistics(rate(), loads, 64)
    if name == "epoch_tasks":
        return EpochStatistics(chance.randint(1, 8), chance.randrange(10**6), fraction() + 0.1, 10**5, 8)
    if name in ("assignment", "naive_assignment"):
        places = tuple(
            ExecutorPlace(f"e{i}", i, chance.randint(1, 4), rate(), 1e3 * rate(), (i % 2, 1, 0)) for i in range(3)
        )
        return AssignmentStatistics(places, (3, 3, 3))
    if name == "epoch_wait":
        return PaceStatistics(fraction(), chance.choice([0, 0, 50]))
    if name == "epoch_rows":
        return IntakeStatistics(chance.randrange(10**5), fraction(), chance.randrange(10**5))
    if name == "executor_count":
        return ExecutorStatistics(chance.randint(1, 4), 2, 1 + fraction(), 8 * fraction())
    if name == "one_task":
        return WorkStatistics(chance.randrange(10**5), fraction(), chance.randrange(10**5), 4)
    if name == "batch_work":
        return WorkDone(chance.randrange(10**6), 10 * fraction())
    assert name == "batch_size"
    return BatchStatistics(rate(), fraction(), rate(), rate())


CONTROLLERS_TO_RUN: list[Any] = [
    Assignment(),
    BatchSize(target=0.5),
    BatchWork(),
    CoreAllocation(0.01),
    EpochRows(target=0.5, high=10**5, initial=10**4),
    EpochTasks(target=0.2, high=8),
    EpochWait(target=1.5),
    ExecutorCount(target=0.5, high=4, patience_up=1, patience_down=2),
    GreedyRebinding(),
    NaiveAssignment(),
    OneTask(),
    Rebinding(),
    Replicas(high=4),
    ResourceCentric(),
    ShardBalance(),
    StreamsRules(high=16),
    ThreadLevel(high=16),
    UtilizationPool(high=16, initial=4),
    WaitingConcurrency(high=64),
]


def run(controllers: list[Any], steps: int = 60) -> list[Decision]:
    """Run controllers side by side, their lines interleaved, as an engine would."""
    chance = random.Random(3)
    pilots, log = [], []
    for i, controller in enumerate(controllers):
        pilot, line = Recorded.begin(f"pe{i}/{controller.name}", controller, time=0.0)
        pilots.append(pilot)
        log.append(line)
    for step in range(steps):
        for i, pilot in enumerate(pilots):
            pilots[i], _, lines = pilot.step(statistics_for(pilot.controller.name, chance), time=10.0 * step)
            log += lines
    return log


def test_every_controller_is_in_the_catalogue_and_in_these_tests() -> None:
    assert {controller.name for controller in CONTROLLERS_TO_RUN} == set(CONTROLLERS)


def test_a_line_holds_when_what_from_to_why_and_what_was_seen() -> None:
    pilot, _ = Recorded.begin("pe0/pool", UtilizationPool(high=4, initial=2))
    _, _, (line,) = pilot.step(PoolStatistics((1.0, 0.98)), time=20.0, epoch=7)
    assert json.loads(to_json(line)) == {
        "time": 20.0,
        "epoch": 7,
        "controller": "pe0/pool",
        "step": 1,
        "what": "threads",
        "target": "",
        "from": 2,
        "to": 3,
        "why": "three threads instead of two: they are 99 % busy, more than 95 %",
        "numbers": {"busy": 0.99},
        "seen": {"utilization": [1.0, 0.98], "at": 0.0, "rate": 0.0},
    }


def test_a_step_without_actions_is_logged_too() -> None:
    pilot, start = Recorded.begin("pool", UtilizationPool(high=4, initial=2))
    assert (start.what, start.step) == (START, 0)
    _, actions, (line,) = pilot.step(PoolStatistics((0.92, 0.92)))
    assert actions == ()
    assert (line.what, line.statistics) == (HOLD, {"utilization": [0.92, 0.92], "at": 0.0, "rate": 0.0})


def test_only_the_first_line_of_a_step_carries_the_statistics() -> None:
    pilot, _ = Recorded.begin("shards", ShardBalance())
    statistics = ShardStatistics((90.0, 5.0, 4.0, 3.0, 3.0), (0,) * 5, 3)
    _, actions, lines = pilot.step(statistics)
    assert len(lines) == len(actions) > 1
    assert [line.statistics is not None for line in lines] == [True] + [False] * (len(lines) - 1)


def test_lines_read_back_as_they_were() -> None:
    for line in run(CONTROLLERS_TO_RUN, steps=20):
        text = to_json(line)
        assert "\n" not in text
        assert from_json(text) == line


def test_a_log_read_from_disk_replays_to_the_same_decisions() -> None:
    log = run(CONTROLLERS_TO_RUN)
    report = replay(from_json(to_json(line)) for line in log)
    assert report.same
    assert report.steps == 60 * len(CONTROLLERS_TO_RUN)
    assert report.actions == sum(line.what not in (START, HOLD) for line in log) > 100


def test_a_replay_notices_a_decision_that_was_not_made() -> None:
    log = run([ThreadLevel(high=16)])
    changed = next(i for i, line in enumerate(log) if line.what == "thread_level")
    log[changed] = replace(log[changed], after=99)
    report = replay(log)
    assert [(each.controller, each.step) for each in report.differences] == [("pe0/thread_level", log[changed].step)]
    assert report.differences[0].logged[0].after == 99


def test_a_replay_notices_statistics_that_were_left_out() -> None:
    log = [line for line in run([ThreadLevel(high=16)]) if line.what != HOLD]
    assert not replay(log).same


def test_a_state_reads_back_in_every_phase_of_a_climb() -> None:
    """A chapter of the journal begins with the state of the moment."""
    controller, chance, phases = ThreadLevel(high=16), random.Random(5), set()
    state = controller.start()
    for step in range(300):
        rate = min(state.levels.level, 4 + step // 100) * chance.uniform(0.98, 1.02) * (1 + step // 150)
        state, _ = controller.step(state, ThreadStatistics(rate))
        phases.add(type(state.levels.phase).__name__)
        assert build(ThreadState, json.loads(json.dumps(plain(state)))) == state
    assert phases == {"Warming", "Searching", "Confirming", "Settled"}


def test_a_log_without_its_start_is_refused() -> None:
    with pytest.raises(ValueError, match="step 1 of pe0/thread_level has no start line"):
        replay(run([ThreadLevel(high=16)])[1:])
    unknown = Decision("x", 0, START, statistics={"type": "nobody", "settings": {}, "state": {}})
    with pytest.raises(ValueError, match="no controller 'nobody'"):
        replay([unknown])
    with pytest.raises(ValueError, match="begins without its statistics"):
        replay([Decision("x", 1, HOLD)])


def test_a_controller_that_decided_by_other_rules_is_left_out_and_named() -> None:
    """Logs that were written before versions were have none, and are of the first."""
    log = run([Rebinding(), ShardBalance(threshold=1.2)])
    old = []
    for line in log:
        seen = line.statistics
        if line.what == START:
            seen = {key: value for key, value in seen.items() if key != "version"}
        old.append(replace(line, statistics=seen, why="in other words", numbers=()))
    report = replay(from_json(to_json(line)) for line in old)
    assert report.same
    assert report.older == ("pe1/shard_balance",)
    assert report.steps == 60
    assert report.actions > 10


def test_codec() -> None:
    assert plain(math.inf) == "inf"
    assert build(float, "inf") == math.inf
    assert build(float, 3) == 3.0
    assert build(tuple[int, ...], [1, 2]) == (1, 2)
    assert build(Action, plain(Action("w", "t", None, 2.5, "y"))) == Action("w", "t", None, 2.5, "y")
    with pytest.raises(TypeError, match="no place in the decision log"):
        plain({1, 2})
    with pytest.raises(TypeError, match="expected int"):
        build(int, "x")
