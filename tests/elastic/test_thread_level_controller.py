"""Check the thread level: rules by hand, properties by Hypothesis."""

import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.elastic.noise import LevelRecord
from penstock.elastic.search import expected, preferred, probe_budget, propose
from penstock.elastic.thread_level import ThreadLevel, ThreadStatistics
from penstock.lab.baselines import StreamsRules

from .driving import drive, table, unimodal


def levels_visited(curve: list[float], high: int, initial: int = 1) -> list[int]:
    run = drive(ThreadLevel(high=high, initial=initial), table(curve), 60)
    assert run.state.levels.settled
    return [action.after for action in run.actions]


def test_doubles_up_and_bisects_down() -> None:
    # The top is at 6: 8 is clearly worse, then 6, 5 and 7 close the gaps on both sides of it.
    curve = [10, 20, 30, 40, 50, 60, 45, 30, 20, 10]
    assert levels_visited(curve, high=10) == [2, 4, 8, 6, 5, 7, 6]


def test_stops_climbing_at_the_first_clear_fall() -> None:
    assert levels_visited([10, 9, 8, 7, 6, 5, 4, 3], high=8) == [2, 1]


def test_climbs_a_flat_curve_and_comes_back_to_the_lowest_level() -> None:
    assert levels_visited([10.0] * 8, high=8) == [2, 4, 8, 1]


def test_searches_downwards_from_a_high_start() -> None:
    # 8 is the bound; 4 is no worse, 2 and 1 are no worse: nothing was gained by any thread.
    assert levels_visited([10.0] * 8, high=8, initial=8) == [4, 2, 1]


def test_each_doubling_must_pay() -> None:
    # 4 threads give 4 % more than 2: not worth twice the threads. 2 give 6 % more than 1: worth it.
    assert levels_visited([10, 10.6, 10.8, 11.0], high=4)[-1] == 2


def test_actions_say_what_and_why() -> None:
    run = drive(ThreadLevel(high=4), table([10, 20, 20, 20]), 30)
    first = run.actions[0]
    assert (first.what, first.before, first.after) == ("thread_level", 1, 2)
    assert first.why == "two workers instead of one: throughput has not fallen up to 1 yet, the best is 10/s with 1"
    assert run.actions[-1].why.endswith(": 2 gives 20/s, and the best, 2, 20/s")


def test_the_first_two_samples_are_not_used() -> None:
    controller = ThreadLevel(high=8)
    state = controller.start()
    for throughput in (1000.0, 700.0):
        state, actions = controller.step(state, ThreadStatistics(throughput))
        assert actions == ()
        assert state.levels.records == ()


def test_cpu_guard_stops_exploring_upwards_but_not_downwards() -> None:
    controller = ThreadLevel(high=64, initial=8)
    state = controller.start()
    seen = set()
    for _ in range(60):
        usage = 0.81 if state.levels.level >= 8 else 0.5
        state, _ = controller.step(state, ThreadStatistics(float(state.levels.level), usage))
        seen.add(state.levels.level)
    assert max(seen) == 8
    assert state.levels.level == 8


def test_cpu_guard_allows_what_was_measured_before() -> None:
    # 4 is reached from 2 at 50 % usage. From there 5 and above are out of reach, 3 is tried and 4 returned
    # to.
    controller = ThreadLevel(high=8)
    state = controller.start()
    for _ in range(40):
        usage = 0.25 * state.levels.level
        state, _ = controller.step(state, ThreadStatistics(float(state.levels.level), usage))
    assert state.levels.level == 4


def test_cpu_guard_lets_workers_wait_on_a_machine_that_others_keep_busy() -> None:
    for cores, found in [(0.05, 8), (0.5, 1)]:
        controller = ThreadLevel(high=8)
        state = controller.start()
        for _ in range(40):
            level = state.levels.level
            seen = ThreadStatistics(float(level), 1.0, 0, None, cores * level, 1.0)
            state, _ = controller.step(state, seen)
        assert state.levels.level == found


def test_a_period_in_which_a_worker_did_not_leave_is_not_used() -> None:
    controller = ThreadLevel(high=4, warmup=0)
    state = controller.start()
    state, actions = controller.step(state, ThreadStatistics(10.0, unsuspended=1))
    assert actions == ()
    assert state.levels.records == ()
    # Now known: it is counted as one that stays, and the level goes to one more than that.
    state, actions = controller.step(state, ThreadStatistics(10.0, unsuspended=1))
    assert [(a.before, a.after) for a in actions] == [(1, 2)]


def test_unsuspendable_workers_raise_the_lower_bound_until_they_return() -> None:
    controller = ThreadLevel(high=8, initial=8)
    state = controller.start()
    for _ in range(40):
        state, _ = controller.step(state, ThreadStatistics(10.0, unsuspended=2))
        assert state.levels.level >= 3
    assert state.levels.level == 3


def test_a_load_change_needs_more_than_five_samples_in_a_row() -> None:
    controller = ThreadLevel(high=4)
    settled = drive(controller, table([10, 10, 10, 10]), 30).state
    for below in (5, 6):
        state = settled
        for _ in range(below):
            state, _ = controller.step(state, ThreadStatistics(5.0))
        assert (state.levels.settled) == (below == 5)


def test_samples_on_both_sides_are_noise() -> None:
    controller = ThreadLevel(high=4)
    state = drive(controller, table([10, 10, 10, 10]), 30).state
    for i in range(100):
        state, actions = controller.step(state, ThreadStatistics(14.0 if i % 2 else 7.0))
        assert actions == ()


def test_a_returning_load_goes_straight_to_its_level() -> None:
    controller = ThreadLevel(high=184)

    def few(n: int) -> float:
        return min(n, 9) / (1 + 0.05 * max(0, n - 9))

    def many(n: int) -> float:
        return 3 / (0.02 + 0.98 / n)

    run = drive(controller, few, 60)
    assert run.level == 9
    run = drive(controller, many, 60, state=run.state)
    found = run.level
    assert found > 100
    for curve, level in ((few, 9), (many, found), (few, 9)):
        run = drive(controller, curve, 20, state=run.state)
        assert run.levels[-1] == level
        assert len(run.actions) == 1
    assert run.state.levels.settled


def test_a_load_that_is_like_a_past_one_at_one_level_only_is_searched_anew() -> None:
    # At level 7 the third load gives what the first did, at 6 a sixth less: its own top is 7.
    controller = ThreadLevel(high=7)
    loads = [
        [1.0, 1.5, 2.25, 2.8125, 3.515625, 4.39453125, 3.995],
        [1.0, 1.5, 2.25, 3.375, 5.0625, 7.59375, 11.390625],
        [1.0, 1.5, 1.875, 2.34375, 2.9296875, 3.662109375, 4.119873046875],
    ]
    run, ends = None, []
    for curve in loads:
        run = drive(controller, table(curve), 100, state=run.state if run else None)
        ends.append(run.level)
    assert ends == [6, 7, 7]


def test_a_false_memory_is_dropped() -> None:
    # At level 2 the third load looks like the first, but at the first one's level it gives something else.
    controller = ThreadLevel(high=16, warmup=0)
    first = table([10, 20, 30, 40, 50, 60, 70, 80, 70, 60, 50, 40, 30, 20, 10, 5])
    second = table([50, 60, 20, 10] + [5.0] * 12)
    third = table([20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20])
    run = drive(controller, first, 40)
    assert run.level == 8
    run = drive(controller, second, 40, state=run.state)
    assert run.level == 2
    run = drive(controller, third, 60, state=run.state)
    assert run.actions[0].after == 8
    assert run.level == 1


@pytest.mark.parametrize("noise", [0.1, 0.2, 0.3])
def test_noise_does_not_make_it_oscillate_as_the_published_rules_do(noise: float) -> None:
    def curve(n: int) -> float:
        return n / (1 + 0.01 * (n - 1) + 0.0001 * n * (n - 1))

    changes = len(drive(ThreadLevel(high=184), curve, 1000, noise=noise).actions)
    assert changes <= probe_budget(1, 184) + 1
    chance, published = random.Random(0), StreamsRules(high=184)
    state, moved = published.start(), 0
    for _ in range(1000):
        sample = curve(state.level) * (1 + noise * chance.gauss(0, 1))
        state, actions = published.step(state, ThreadStatistics(sample))
        moved += len(actions)
    assert moved > 10 * changes


@settings(max_examples=100, deadline=None)
@given(unimodal(0.05), st.data())
def test_ends_within_5_percent_of_any_unimodal_curve(values: list[float], data: st.DataObject) -> None:
    """Start anywhere; settle within the probe budget, and end near the top."""
    high = len(values)
    initial = data.draw(st.integers(1, high))
    run = drive(ThreadLevel(high=high, initial=initial), table(values), 6 * probe_budget(1, high))
    assert values[run.level - 1] >= 0.95 * max(values)
    assert len(run.actions) <= probe_budget(1, high) + 1
    assert run.state.levels.settled


@settings(max_examples=100, deadline=None)
@given(unimodal(1e-6), st.data())
@example([1 + 0.01 * n for n in range(184)], None)
def test_small_steps_need_no_restriction(values: list[float], data: st.DataObject | None) -> None:
    """The wide probe compares with the best, so steps below the sensitivity are climbed all the same."""
    high = len(values)
    initial = data.draw(st.integers(1, high)) if data else 1
    run = drive(ThreadLevel(high=high, initial=initial), table(values), 6 * probe_budget(1, high))
    assert values[run.level - 1] >= 0.95 * max(values)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_loads_that_come_and_go(data: st.DataObject) -> None:
    """After every change that can be seen it ends near the best again, unless the load looks like another one.

    What gives within 10 % of what a past load gave, where it is measured first, is taken for that load.
    """
    high = data.draw(st.integers(1, 40))
    curves = data.draw(st.lists(unimodal(0.06, highest=high), min_size=2, max_size=3))
    loads = [table([*values, *[values[-1] / 1.1 ** (i + 1) for i in range(high - len(values))]]) for values in curves]
    controller, state, visited = ThreadLevel(high=high), None, set()
    for index in data.draw(st.lists(st.integers(0, len(loads) - 1), min_size=2, max_size=6)):
        curve = loads[index]
        trusted = None
        if state is not None:
            trusted = next(r.mean for r in state.levels.records if r.level == state.levels.level)
        seen = trusted is None or abs(curve(state.levels.level) / trusted - 1) > 0.2
        run = drive(controller, curve, 8 * probe_budget(1, high), state=state)
        state = run.state
        assert state.levels.settled
        others = [other for number, other in enumerate(loads) if number != index]
        alike = any(abs(curve(level) / other(level) - 1) <= 0.11 for other in others for level in visited)
        if seen and not alike:
            assert curve(run.level) >= 0.95 * max(curve(level) for level in range(1, high + 1))
        visited.add(run.level)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 64),
    st.integers(0, 200),
    st.lists(
        st.tuples(st.floats(0, 1e9), st.floats(0, 1), st.integers(0, 3), st.none() | st.floats(0, 8)),
        min_size=1,
        max_size=120,
    ),
)
def test_never_leaves_its_bounds(low: int, more: int, samples: list[tuple[float, float, int, float | None]]) -> None:
    """Any throughput, usage, number of stuck workers and busy cores, in any order."""
    controller = ThreadLevel(low=low, high=low + more)
    state = controller.start()
    for throughput, usage, stuck, cores in samples:
        before = state.levels.level
        state, actions = controller.step(state, ThreadStatistics(throughput, usage, stuck, cores=cores))
        assert low <= state.levels.level <= low + more
        assert [(a.before, a.after) for a in actions] == ([(before, state.levels.level)] if actions else [])


@settings(max_examples=100, deadline=None)
@given(unimodal(0.05, highest=64), st.integers(0, 1000))
def test_bounded_noise_settles_after_a_bounded_number_of_changes(values: list[float], seed: int) -> None:
    """Noise of up to 8 % never looks like a change of load, so the probe budget bounds the changes."""
    chance, high = random.Random(seed), len(values)
    controller = ThreadLevel(high=high)
    state, changes = controller.start(), []
    for period in range(400):
        sample = values[state.levels.level - 1] * chance.uniform(0.92, 1.08)
        state, actions = controller.step(state, ThreadStatistics(sample))
        changes += [period] * len(actions)
    # Confirming may go round the levels that look alike until each has its five samples.
    assert len(changes) <= 2 * probe_budget(1, high) + 1
    assert state.levels.settled
    assert not changes or changes[-1] < 300


@pytest.mark.parametrize(
    "curve",
    [[80, 109, 94, 80.5, 78, 75, 73, 71], [83, 75, 71, 68, 67.5, 67, 67, 66.5], [10, 19, 27, 34, 40, 46, 51, 55]],
    ids=["top at 2", "falling", "rising"],
)
def test_samples_that_differ_by_a_quarter_do_not_decide_by_luck(curve: list[float]) -> None:
    """Levels that noise does not tell apart are measured again before one of them is chosen."""
    ends = [drive(ThreadLevel(high=8), table(curve), 150, noise=0.25, seed=seed).level for seed in range(40)]
    found = [curve[level - 1] / max(curve) for level in ends]
    assert sum(found) / len(found) >= 0.97
    assert sum(share >= 0.85 for share in found) >= 38


def test_the_best_and_the_choice_are_measured_again_where_noise_hides_the_difference() -> None:
    records = (LevelRecord(1, 90, 90, 5), LevelRecord(2, 100, 100, 5), LevelRecord(4, 60, 60, 5))
    # One worker is within the error of two: either may be the better one. Both have as many samples.
    probe = propose(records, 1, 8, 0.05, noise=0.2)
    assert probe is not None
    assert probe.level == 1
    assert probe.why == "1 gives 90/s and 2 100/s, give or take 13%, so 1 is measured again"
    probe = propose((LevelRecord(1, 90, 90, 10), *records[1:]), 1, 8, 0.05, noise=0.2)
    assert probe is not None
    assert probe.level == 2
    # Where noise is small, the best is clear, and where it was measured again often enough, it is left at that.
    probe = propose(records, 1, 8, 0.05, noise=0.02)
    assert probe is not None
    assert probe.level == 3
    assert propose(records, 1, 8, 0.05, noise=0.2, doubt=False) == probe


def test_flat_noise_ends_at_the_lowest_level() -> None:
    """Pure-Python operators gain nothing from threads; noise must not make it look otherwise."""
    ends = [drive(ThreadLevel(high=4), lambda n: 100 / (1 + 0.02 * n), 200, noise=0.1, seed=s).level for s in range(40)]
    assert ends.count(1) >= 36


def steered(cores: list[float], throughput: list[float], noise: float, seed: int = 0, usage: float = 0.5) -> int:
    """Return where it ends if levels keep so many cores busy and give so much."""
    chance, controller = random.Random(seed), ThreadLevel(high=len(cores))
    state = controller.start()
    for _ in range(80):
        at = state.levels.level - 1
        sample = throughput[at] * (1 + noise * chance.gauss(0, 1))
        state, _ = controller.step(state, ThreadStatistics(sample, usage, cores=cores[at]))
    return state.levels.level


def test_threads_that_take_turns_gain_nothing_whatever_throughput_says() -> None:
    """Python functions: one core is busy at any level, and what looks like a gain is a machine that became faster."""
    ends = [steered([1.0, 1.02, 1.05, 1.08], [50, 54, 56, 60], 0.05, seed) for seed in range(20)]
    assert ends == [1] * 20


def test_threads_that_compute_at_the_same_time_are_found_by_throughput() -> None:
    assert steered([1.0, 1.9, 1.95, 1.95], [50, 90, 80, 70], 0.0) == 2
    # The lock is released now and then: 1.3 cores are worth it.
    assert steered([1.0, 1.3, 1.32, 1.32], [50, 60, 58, 57], 0.0) == 2


def test_a_flow_that_waits_may_have_more_workers_than_cores_it_keeps_busy() -> None:
    assert steered([0.2, 0.4, 0.6, 0.8], [20, 40, 60, 80], 0.0) == 4
    # Two workers keep the core busy that one leaves idle half of the time; a third has nothing to add.
    assert steered([0.5, 1.0, 1.0, 1.0], [50, 100, 100, 100], 0.0) == 2


def test_where_others_keep_the_machine_busy_cores_tell_nothing() -> None:
    """Nothing above the first level is looked at there, and no level is ruled out for later."""
    controller = ThreadLevel(high=4)
    state = controller.start()
    for _ in range(20):
        state, _ = controller.step(state, ThreadStatistics(50.0, 0.95, cores=1.0, elsewhere=0.45))
    assert state.used == ()
    # What the flow itself keeps busy tells.
    assert steered([1.0, 1.0, 1.0, 1.0], [50, 90, 80, 70], 0.0, usage=0.79) == 1


def test_one_quiet_period_does_not_make_a_machine_idle() -> None:
    """Two workers keep two processors busy nearly all of the time: four are not tried when one period is below 80 %."""
    controller = ThreadLevel(high=16)
    state = controller.start()
    levels = set()
    for period in range(60):
        at = state.levels.level
        usage = 0.5 if at == 1 else 0.75 if period % 4 == 0 else 0.85
        state, _ = controller.step(state, ThreadStatistics(50.0 * min(at, 2), usage))
        levels.add(state.levels.level)
    assert levels == {1, 2}
    # On a machine that became idle they are.
    for _ in range(30):
        state, _ = controller.step(state, ThreadStatistics(80.0 * state.levels.level, 0.3))
        levels.add(state.levels.level)
    assert max(levels) == 16


@pytest.mark.parametrize("busy", [4, 10, 100])
def test_a_machine_that_others_kept_busy_is_looked_at_again_once_they_are_gone(busy: int) -> None:
    """One worker gives as much as before then, for there was a core for it: only the machine's usage tells."""
    controller = ThreadLevel(high=16, skipped=1, least_noise=0.05)
    state = controller.start()
    for period in range(busy + 15):
        elsewhere, cores = (0.5 if period < busy else 0.0), min(2.0, 0.95 * state.levels.level)
        seen = ThreadStatistics(100 * cores, 0.5 * cores + elsewhere, cores=cores, elsewhere=elsewhere)
        assert state.levels.level == 1 or period >= busy
        state, _ = controller.step(state, seen)
    assert state.levels.level == 2
    assert state.levels.settled


def end_on_a_drifting_machine(seed: int) -> int:
    """Return where a live flow's settings end if the machine's speed drifts by 15 %, slowly; two workers are best."""
    throughput, cores = [123.0, 145, 141, 138, 120, 120, 120, 120], [1.0, 1.5, 1.5, 1.55, 1.5, 1.5, 1.5, 1.5]
    chance, controller = random.Random(seed), ThreadLevel(high=8, skipped=1, least_noise=0.05)
    state, drift = controller.start(), chance.gauss(0, 1)
    for _ in range(60):
        drift = 0.7 * drift + 0.51**0.5 * chance.gauss(0, 1)
        at = state.levels.level - 1
        sample = throughput[at] * math.exp(0.15 * drift + 0.05 * chance.gauss(0, 1))
        state, _ = controller.step(
            state, ThreadStatistics(sample, 0.5, cores=cores[at] * (1 + 0.03 * chance.gauss(0, 1)))
        )
    return state.levels.level


def test_drift_is_seldom_taken_for_a_level() -> None:
    """12 of these seeds end wrong; 15 if noise is not learned from visit to visit, 19 and 20 without the rest."""
    ends = [end_on_a_drifting_machine(seed) for seed in range(100)]
    assert ends.count(1) <= 14


def test_what_cores_told_of_one_load_is_not_held_against_another() -> None:
    """A flow that waits returns behind one whose threads take turns: it goes back to its own level."""
    controller = ThreadLevel(high=4)
    waiting, computing = ([20.0, 40, 60, 80], [0.2, 0.4, 0.6, 0.8]), ([50.0, 49, 48, 47], [1.0, 1.0, 1.0, 1.0])
    state, ends = controller.start(), []
    for throughput, cores in (waiting, computing, waiting):
        for _ in range(60):
            at = state.levels.level - 1
            state, _ = controller.step(state, ThreadStatistics(throughput[at], 0.5, cores=cores[at]))
        ends.append(state.levels.level)
    assert ends == [4, 1, 4]


def test_loads_that_keep_other_cores_busy_come_and_go() -> None:
    """Whatever is remembered of other loads, it stays within its bounds, and goes on deciding."""
    for seed in range(100):
        chance = random.Random(seed)
        high = chance.choice([2, 4, 8])
        loads = [
            (
                [chance.choice([10, 20, 40, 80, 160]) * (1 + chance.random() * level) for level in range(high)],
                [chance.choice([0.3, 1.0, 1.0, 1.5])] * high,
            )
            for _ in range(3)
        ]
        controller = ThreadLevel(high=high, skipped=chance.choice([0, 1]))
        state = controller.start()
        for _ in range(8):
            throughput, cores = chance.choice(loads)
            for _ in range(chance.choice([8, 20, 60])):
                at = state.levels.level - 1
                state, _ = controller.step(state, ThreadStatistics(throughput[at], 0.5, cores=cores[at]))
                assert 1 <= state.levels.level <= high


def test_the_reason_says_that_workers_take_turns() -> None:
    controller = ThreadLevel(high=4)
    state, log = controller.start(), []
    for _ in range(20):
        state, actions = controller.step(state, ThreadStatistics(50.0 + state.levels.level, cores=1.0))
        log += actions
    assert [action.after for action in log] == [2, 1]
    assert log[-1].why.endswith("(more workers than 1 take turns: they keep no more cores busy)")


def test_the_first_sample_behind_a_change_may_be_left_out() -> None:
    """What waited at one level is worked off at the next, and would look like its throughput."""
    controller = ThreadLevel(high=4, skipped=1)
    state, before = controller.start(), 1
    for _ in range(40):
        level = state.levels.level
        state, _ = controller.step(state, ThreadStatistics(10.0 * level if level == before else 1e6))
        before = level
    assert state.levels.level == 4
    assert all(record.mean == 10.0 * record.level for record in state.levels.records)


def test_search_helpers() -> None:
    records = (LevelRecord(1, 10, 10), LevelRecord(4, 40, 40), LevelRecord(8, 41, 41))
    assert preferred(records, 0.05) == records[1]
    assert preferred(records, 0.01) == records[2]
    assert expected(records, 2) == pytest.approx(25)
    assert expected(records, 16) is None
    assert propose((LevelRecord(4, 10, 10),), 1, 8, 0.05) is not None
    assert math.isclose(LevelRecord(1, 10, 10).add(20).mean, 15)


@pytest.mark.parametrize("noise", [0.05, 0.15, 0.3])
@pytest.mark.parametrize("gains_up_to", [1, 4, 16])
def test_half_an_hour_at_a_constant_load_changes_nothing_after_a_minute(noise: float, gains_up_to: int) -> None:
    """As a flow in threads is looked at: twice a second while levels are compared, and every two seconds after that."""
    controller = ThreadLevel(high=16, initial=1, skipped=1, least_noise=0.05)
    state, chance, at, changes = controller.start(), random.Random(7), 0.0, []
    while at < 1800:
        at += 0.5 if state.searching else 2.0
        throughput = 1000 * min(state.levels.level, gains_up_to) * max(0.1, chance.gauss(1, noise))
        state, actions = controller.step(state, ThreadStatistics(throughput, 0.5, 0))
        changes += [at for action in actions if action.what == "thread_level"]
    assert [each for each in changes if each > 60] == []
