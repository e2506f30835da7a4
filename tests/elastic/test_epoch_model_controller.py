"""Check the model of Spark's epochs and the tasks that it chooses."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.elastic.base import Action
from penstock.elastic.costs import Costs, Sample, fit
from penstock.elastic.epoch_tasks import EpochStatistics, EpochTasks

COSTS = Costs(fixed=0.2, per_task=0.02, per_row=5e-6)


def epoch(costs: Costs, tasks: int, rows: int, cores: int) -> EpochStatistics:
    return EpochStatistics(tasks, rows, costs.seconds(tasks, rows, cores), rows, cores)


def run(
    controller: EpochTasks,
    costs: Costs,
    rows: int,
    *,
    cores: int,
    tasks: int,
    epochs: int = 40,
) -> tuple[int, list[Action]]:
    log: list[Action] = []
    state = controller.start()
    for _ in range(epochs):
        state, actions = controller.step(state, epoch(costs, tasks, rows, cores))
        for action in actions:
            if action.what == "tasks":
                assert action.before == tasks
                tasks = int(action.after or 0)
                log.append(action)
    return tasks, log


def test_the_model_by_hand() -> None:
    # 0.2 + 4 * 0.02 + 200,000 * 5e-6 / 4
    assert COSTS.seconds(4, 200_000, 8) == pytest.approx(0.53)
    # Tasks beyond the cores only cost.
    assert COSTS.seconds(4, 200_000, 2) == pytest.approx(0.78)


def test_three_numbers_of_tasks_determine_the_costs() -> None:
    found = fit([Sample(n, 200_000, COSTS.seconds(n, 200_000, 8), 8) for n in (1, 2, 4)])
    assert found.fixed == pytest.approx(0.2, rel=1e-3)
    assert found.per_task == pytest.approx(0.02, rel=1e-3)
    assert found.per_row == pytest.approx(5e-6, rel=1e-3)


def test_no_cost_is_negative() -> None:
    # Epochs that get shorter with each task, faster than any work could be shared out.
    found = fit([Sample(n, 1000, s, 8) for n, s in ((1, 1.0), (2, 0.3), (4, 0.05))])
    assert min(found.fixed, found.per_task, found.per_row) >= 0


def test_small_epochs_get_few_tasks_and_large_ones_all_cores() -> None:
    assert run(EpochTasks(high=16), COSTS, rows=1_000, cores=8, tasks=8)[0] == 1
    assert run(EpochTasks(high=16), COSTS, rows=5_000_000, cores=8, tasks=1)[0] == 8


def test_the_fewest_tasks_that_meet_the_target() -> None:
    # 1 task takes 1.22 s, 2 take 0.74, 3 take 0.593, 4 take 0.53.
    tasks, log = run(EpochTasks(target=0.6, high=8), COSTS, rows=200_000, cores=8, tasks=1)
    assert tasks == 3
    assert (
        log[-1].why == "three tasks instead of six: an epoch would take 0.59 s instead of 0.49 s, the target is 0.6 s"
    )
    assert dict(log[-1].numbers)["seconds_then"] == pytest.approx(0.593, abs=1e-3)


def test_says_when_the_target_cannot_be_met() -> None:
    controller = EpochTasks(target=0.3, high=8)
    state, said = controller.start(), []
    for tasks in (4, 4, 8, 7, 7):
        state, actions = controller.step(state, epoch(COSTS, tasks, 200_000, 8))
        said += [each.why for each in actions if each.what == "latency_target"]
    assert said == [
        "no number of tasks meets the target of 0.3 s: the fastest, four, would take 0.53 s for 200,000 rows"
    ]


def test_a_changed_cost_is_learned_anew() -> None:
    controller = EpochTasks(high=16)
    state, tasks = controller.start(), 4
    for costs, right in ((COSTS, 7), (Costs(0.2, 0.02, 5e-8), 1), (COSTS, 7)):
        for _ in range(40):
            state, actions = controller.step(state, epoch(costs, tasks, 200_000, 16))
            tasks = next((int(each.after or 0) for each in actions if each.what == "tasks"), tasks)
        best = min(costs.seconds(n, 200_000, 16) for n in range(1, 17))
        assert costs.seconds(tasks, 200_000, 16) <= 1.05 * best
        assert abs(tasks - right) <= 3


settings_of_a_stage = {
    "fixed": st.floats(0.01, 1),
    "per_task": st.floats(1e-4, 0.1),
    "work": st.floats(1e-3, 100),
    "cores": st.sampled_from([1, 2, 8, 32]),
    "start": st.integers(1, 64),
}


@settings(max_examples=40, deadline=None)
@given(**settings_of_a_stage)
def test_ends_within_5_percent_of_the_best(fixed: float, per_task: float, work: float, cores: int, start: int) -> None:
    """On epochs that follow the model: at most three changes for each doubling, and then none."""
    high = 2 * cores
    costs = Costs(fixed, per_task, work / 100_000)
    tasks, log = run(EpochTasks(high=high), costs, 100_000, cores=cores, tasks=min(start, high), epochs=50)
    best = min(costs.seconds(n, 100_000, cores) for n in range(1, high + 1))
    assert costs.seconds(tasks, 100_000, cores) <= 1.051 * best
    assert len(log) <= 3 * (high.bit_length() + 1)
    assert run(EpochTasks(high=high), costs, 100_000, cores=cores, tasks=min(start, high), epochs=30)[1] == log


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(0, 24),
    st.integers(1, 300),
    st.lists(
        st.tuples(st.integers(0, 10**7), st.floats(1e-3, 1e3) | st.just(0.0), st.integers(0, 10**7)),
        min_size=1,
        max_size=40,
    ),
)
def test_never_leaves_its_bounds(low: int, more: int, start: int, log: list[tuple[int, float, int]]) -> None:
    """Any rows and any seconds, however little they follow the model; from anywhere it is within them at once."""
    controller = EpochTasks(low=low, high=low + more)
    state, tasks = controller.start(), start
    for rows, seconds, expected in log:
        state, actions = controller.step(state, EpochStatistics(tasks, rows, seconds, expected, 8))
        tasks = next((int(action.after or 0) for action in actions if action.what == "tasks"), tasks)
        assert low <= tasks <= low + more


@pytest.mark.parametrize(("low", "high", "start", "right"), [(1, 2, 8, 2), (1, 4, 64, 4), (4, 8, 1, 4)])
def test_goes_to_its_bounds_at_once(low: int, high: int, start: int, right: int) -> None:
    controller = EpochTasks(low=low, high=high)
    _, actions = controller.step(controller.start(), epoch(COSTS, start, 200_000, high))
    assert [(action.before, action.after) for action in actions] == [(start, right)]


def test_bounds_that_are_seen_are_followed() -> None:
    """Machines come while a flow runs; a checkpoint may be of more of them."""
    controller = EpochTasks(high=256)
    state, tasks, chosen = controller.start(), 2, []
    for most in (2,) * 20 + (16,) * 20 + (4,):
        state, actions = controller.step(state, replace(epoch(COSTS, tasks, 5_000_000, most), most=most))
        tasks = next((int(each.after or 0) for each in actions if each.what == "tasks"), tasks)
        chosen.append(tasks)
    assert (chosen[19], chosen[39], chosen[40]) == (2, 16, 4)


def test_before_the_first_epoch_only_the_bounds_count() -> None:
    """Tasks may come from a checkpoint that a larger machine has left."""
    controller = EpochTasks(high=2)
    state, actions = controller.step(controller.start(), EpochStatistics(64, 0, 0.0, 1000, 2))
    assert actions == (Action("tasks", "", 64, 2, "two tasks instead of 64: there is room for 1 to 2"),)
    assert state == controller.start()
    assert controller.step(state, EpochStatistics(2, 0, 0.0, 1000, 2)) == (state, ())


def test_no_epoch_is_expected_to_take_no_time() -> None:
    """What was measured is divided by what was expected, also for an empty epoch whose whole cost is in its rows."""
    assert Costs(fixed=0.0, per_task=0.0, per_row=1e-6).seconds(tasks=1, rows=0, cores=8) > 0


def test_the_rows_of_an_epoch_have_come_while_the_one_before_it_ran() -> None:
    """Long epochs are followed by those of many rows: that is no other load, and no tasks are given back for it."""
    chance, controller, at, rows = random.Random(1), EpochTasks(high=2), 0.0, 600
    state = controller.start()
    for _ in range(300):
        seconds = 0.1 * max(0.3, chance.gauss(1, 0.4))
        at += seconds
        state, _ = controller.step(state, EpochStatistics(2, rows, seconds, rows, 2, at=at))
        rows = round(60_000 * seconds)
        assert not state.lighter
    assert state.rate.mean == pytest.approx(60_000, rel=0.01)
