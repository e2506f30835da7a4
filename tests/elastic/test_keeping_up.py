"""Where sources are the limit, the thread level is the lowest that keeps up, and it stays there."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.elastic.base import Action
from penstock.elastic.core_allocation import response_time
from penstock.elastic.search import probe_budget
from penstock.elastic.thread_level import ThreadLevel, ThreadStatistics

PERIOD = 2.0


def drive(
    controller: ThreadLevel,
    rate: Callable[[int], float],
    capacity: Callable[[int], float],
    periods: int,
    noise: float = 0.02,
    seed: int = 0,
) -> list[int]:
    """Return the level of each period of a flow whose sources make up for what it could not take."""
    rng, state, backlog, levels = random.Random(seed), controller.start(), 0.0, []
    for period in range(periods):
        level = state.levels.level
        levels.append(level)
        there = backlog + rate(period) * PERIOD
        done = min(there, capacity(level) * PERIOD)
        backlog = min(there - done, 40 * rate(period))
        seen = ThreadStatistics(done / PERIOD * (1 + rng.gauss(0, noise)), keeps_up=backlog <= 0.02 * rate(period))
        state, _ = controller.step(state, seen)
    return levels


def changes(levels: list[int]) -> int:
    return sum(a != b for a, b in pairwise(levels))


@given(st.floats(20, 1500), st.integers(2, 64), st.integers(0, 5))
def test_it_ends_on_the_lowest_level_that_keeps_up_with_room_to_catch_up(rate, high, seed):
    controller = ThreadLevel(high=high)
    levels = drive(controller, lambda period: rate, lambda level: 90.0 * level, 500, seed=seed)
    least = math.ceil(rate / 90)
    if least >= high:
        assert levels[-1] == high or 90 * levels[-1] >= 0.9 * min(rate, 90 * high)
        return
    # A level that keeps up by a hair never catches up with what was left undone, and so looks short.
    assert least <= levels[-1] <= math.ceil(rate * 1.1 / 90) + 1
    assert changes(levels[250:]) <= math.ceil(math.log2(high)) + 2
    assert changes(levels) <= 2 * probe_budget(1, high)


def test_a_rate_that_returns_goes_straight_to_its_level():
    levels = drive(
        ThreadLevel(high=16), lambda period: 300 if period // 100 % 2 else 1000, lambda level: 90.0 * level, 800
    )
    assert levels[99::100] == [12, 4] * 4
    assert all(changes(levels[start : start + 100]) <= 2 for start in (300, 500, 700))


def test_sources_without_end_are_searched_by_throughput():
    levels = drive(ThreadLevel(high=16), lambda period: 1e9, lambda level: min(700.0, 90.0 * level), 200)
    assert levels[-1] in (8, 9, 10)
    assert changes(levels[60:]) == 0


@given(
    st.integers(1, 6),
    st.integers(0, 30),
    st.lists(st.tuples(st.sampled_from([None, True, False]), st.floats(0, 1e6), st.integers(0, 3)), max_size=80),
)
def test_it_never_leaves_its_bounds(low, more, periods):
    controller = ThreadLevel(low=low, high=low + more)
    state = controller.start()
    for keeps_up, throughput, unsuspended in periods:
        state, actions = controller.step(state, ThreadStatistics(throughput, 0.5, unsuspended, keeps_up))
        assert low <= state.levels.level <= low + more
        for action in actions:
            assert action.after == state.levels.level != action.before
            assert action.why


@given(st.floats(100, 1200), st.integers(3, 30), st.integers(0, 5))
def test_periods_in_which_nothing_comes_change_nothing(rate, every, seed):
    """Sources that pause between bursts are no other load."""
    levels = drive(
        ThreadLevel(high=16), lambda period: rate * (period % every > 0), lambda level: 90.0 * level, 600, seed=seed
    )
    without = drive(ThreadLevel(high=16), lambda period: rate, lambda level: 90.0 * level, 600, seed=seed)
    assert changes(levels[300:]) <= changes(without[300:]) + 2


class TestTarget:
    """A latency target asks for workers that throughput does not."""

    @staticmethod
    def levels(
        work: float, batches: float = 1.0, *, target: float | None = 1.0, noise: float = 0.0, cores: float | None = None
    ) -> tuple[list[int], list[Action]]:
        """Return the levels of a flow that keeps up at any level, and what was decided."""
        controller = ThreadLevel(high=16, target=target)
        state, rng, found, decided = controller.start(), random.Random(1), [], []
        for _ in range(300):
            seen = ThreadStatistics(
                100.0, 0.3, 0, True, cores, 0.0, batches=batches, work=work * max(0.1, 1 + rng.gauss(0, noise))
            )
            state, actions = controller.step(state, seen)
            decided += actions
            found.append(state.levels.level)
        return found, decided

    def test_as_many_as_the_queueing_model_says(self):
        for work, target in [(0.5, 1.2), (0.9, 2.0), (3.2, 3.5), (3.2, 4.0), (7.5, 8.0)]:
            expected = next(k for k in range(1, 17) if response_time(1.0, 1 / work, k) <= target)
            levels, decided = self.levels(work, target=target)
            assert levels[-1] == expected
            assert changes(levels) <= 1
            assert all(f"need {expected} workers for the target of {target} s" in each.why for each in decided)

    def test_without_one_the_lowest_that_keeps_up(self):
        assert set(self.levels(3.2, target=None)[0]) == {1}

    def test_one_that_cannot_be_met_is_said_once(self):
        levels, decided = self.levels(2.5, target=1.0)
        assert [each.what for each in decided].count("latency_target") == 1
        assert "and more do not help" in next(each.why for each in decided if each.what == "latency_target")
        # As many as leave next to no wait.
        assert response_time(1.0, 1 / 2.5, levels[-1]) <= 1.05 * 2.5

    def test_rates_that_waver_do_not_make_it_oscillate(self):
        for work in (0.5, 1.0, 2.0, 4.0):
            levels, _ = self.levels(work, target=1.5 * work, noise=0.1)
            assert changes(levels[30:]) <= 6
