"""Check how many rows a waiting operator keeps in flight."""

import math
import random
import statistics
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.elastic.base import Action
from penstock.elastic.climb import WaitingConcurrency, WaitingStatistics
from penstock.elastic.search import probe_budget


def throughput(in_flight: int, wait: float, cpu: float, service: float, supply: float = math.inf) -> float:
    """Return rows a second: limited by the rows in flight, by the worker, by whom they wait for, and by what comes."""
    return min(in_flight / (wait + cpu), 1 / cpu, service, supply)


def run(
    controller: WaitingConcurrency, wait: float, cpu: float, service: float, periods: int = 150
) -> tuple[int, list[Action]]:
    state, log = controller.start(), []
    for _ in range(periods):
        level = state.levels.level
        rate = throughput(level, wait, cpu, service)
        # All that may be in flight is: what does not compute waits, for its turn or for its answer.
        state, actions = controller.step(state, WaitingStatistics(rate, level / rate - cpu, cpu))
        log += actions
    assert state.levels.settled
    return state.levels.level, log


def test_the_first_guess_is_waiting_against_computing() -> None:
    controller = WaitingConcurrency()
    _, actions = controller.step(controller.start(), WaitingStatistics(100.0, 0.009, 0.001))
    why = "ten rows in flight instead of one: a row waits 9 ms and computes 1 ms: ten keep one worker busy"
    figures = (("throughput", 100.0), ("wait_seconds", 0.009), ("cpu_seconds", 0.001))
    assert actions == (Action("in_flight", "", 1, 10, why, figures),)


def test_a_row_that_hardly_computes_starts_at_the_largest_guess() -> None:
    assert WaitingConcurrency().guess(WaitingStatistics(1.0, 0.002, 0.0)) == 64
    assert WaitingConcurrency(high=20).guess(WaitingStatistics(1.0, 0.002, 1e-9)) == 20


def test_the_largest_guess_does_not_pretend_to_keep_the_workers_busy() -> None:
    controller = WaitingConcurrency()
    for cpu, words in ((1e-6, "2,000,002 would keep two workers busy"), (0.0, "no number keeps two workers busy")):
        _, actions = controller.step(controller.start(), WaitingStatistics(1.0, 1.0, cpu, workers=2))
        took = "1 µs" if cpu else "0 s"
        why = f"64 rows in flight instead of one: a row waits 1 s and computes {took}: {words}, "
        assert [(each.before, each.after) for each in actions] == [(1, 64)]
        assert actions[0].why == f"{why}and 64 is the most to begin with"


def test_two_workers_want_twice_as_many() -> None:
    assert WaitingConcurrency().guess(WaitingStatistics(100.0, 0.009, 0.001, workers=2)) == 20


def test_a_lookup_of_2_ms_gets_hundreds() -> None:
    level, _ = run(WaitingConcurrency(), wait=0.002, cpu=4e-6, service=1e9)
    assert throughput(level, 0.002, 4e-6, 1e9) >= 0.95 / 4e-6


def test_a_service_that_gives_no_more_gets_no_more() -> None:
    # 1,000 rows a second at 10 ms: ten in flight are all that it can use.
    level, _ = run(WaitingConcurrency(), wait=0.01, cpu=1e-6, service=1000)
    assert 9 < level <= 11


@pytest.mark.parametrize("rows_a_second", [1.0, 1_000.0, 12_000.0])
def test_rows_that_come_slowly_say_nothing_about_how_many_may_be_in_flight(rows_a_second: float) -> None:
    controller = WaitingConcurrency(initial=64, largest_guess=64)
    state = controller.start()
    for period in range(50):
        rate = throughput(state.levels.level, 0.002, 4e-6, 1e9, rows_a_second * (1 + 0.3 * (period % 2)))
        state, actions = controller.step(state, WaitingStatistics(rate, 0.002, 4e-6))
        assert actions == ()
    assert state.levels.records == ()


def test_an_operator_that_does_not_wait_stays_at_one() -> None:
    assert run(WaitingConcurrency(), wait=0.0, cpu=0.001, service=1e9)[0] == 1


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-4, 1), st.floats(1e-6, 1e-2), st.floats(10, 1e6))
def test_ends_within_5_percent_of_the_best(wait: float, cpu: float, service: float) -> None:
    """One guess and one search: that bounds the changes."""
    controller = WaitingConcurrency(high=1024)
    level, actions = run(controller, wait, cpu, service)
    best = throughput(1024, wait, cpu, service)
    assert throughput(level, wait, cpu, service) >= 0.95 * best
    assert len(actions) <= probe_budget(1, 1024) + 2


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 100),
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 10), st.floats(0, 10), st.integers(1, 8))),
)
def test_never_leaves_its_bounds(high: int, log: list[tuple[float, float, float, int]]) -> None:
    controller = WaitingConcurrency(high=high)
    state = controller.start()
    for rate, wait, cpu, workers in log:
        state, _ = controller.step(state, WaitingStatistics(rate, wait, cpu, workers))
        assert 1 <= state.levels.level <= high


def found_by_itself(begins: int, most: int, rate: Callable[[int], float], noise: float, seed: int) -> float:
    """Run as long as twenty seconds of half-second looks; return what the second half gives of the best there is."""
    chance, controller = random.Random(seed), WaitingConcurrency(initial=begins, largest_guess=begins, high=most)
    state, given = controller.start(), []
    for _ in range(40):
        level = state.levels.level
        given.append(rate(level))
        seen = rate(level) * chance.gauss(1, noise)
        state, _ = controller.step(state, WaitingStatistics(seen, level / seen, 0.0))
    return statistics.mean(given[20:]) / max(map(rate, range(1, most + 1)))


@pytest.mark.parametrize("wait", [0.0005, 0.002, 0.02])
@pytest.mark.parametrize("degrades", [False, True])
@pytest.mark.parametrize(
    ("begins", "most", "cost", "crowd"),
    [pytest.param(512, 4096, 8e-6, 1e-4, id="async"), pytest.param(64, 1024, 1.5e-5, 4e-4, id="plain")],
)
def test_whatever_the_form_it_goes_on_as_long_as_it_gains(
    wait: float, degrades: bool, begins: int, most: int, cost: float, crowd: float
) -> None:
    """Beyond the best number each row in flight costs a little more; a service may stand 32 at once and no more."""

    def rate(level: int) -> float:
        answer = wait * (max(1.0, level / 32) ** 2 if degrades else 1.0)
        return min(level / (answer + cost), 1 / (cost * (1 + crowd * level)))

    assert statistics.median(found_by_itself(begins, most, rate, 0.02, seed) for seed in range(9)) >= 0.95
    assert statistics.median(found_by_itself(begins, most, rate, 0.05, seed) for seed in range(9)) >= 0.9
