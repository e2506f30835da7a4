"""Runs in threads are calm: at a constant load hardly anything changes once they are settled, and more is answered.

Played on a made-up machine (`steady`), whose periods vary by 15 to 30 %; one in 500 takes five times as long.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from penstock.elastic.base import Actions
from penstock.elastic.climb import GRAIN, WaitingConcurrency, WaitingStatistics
from penstock.elastic.costs import Calm
from penstock.elastic.decisions import from_json, replay, to_json
from penstock.elastic.rebinding import BindingStatistics, OperatorLoad, new_places, own_rebinding
from penstock.elastic.replicas import OperatorStatistics, Replicas, ReplicaStatistics
from penstock.elastic.utilization_pool import PoolStatistics, UtilizationPool
from penstock.threads.levers import POOL_SECONDS
from penstock.threads.pilot import PERIOD, SEARCH_PERIOD

from ..in_turn import few_of
from .steady import SteadyThreads, Work, noisy

MINUTE, FIVE_MINUTES = 60.0, 300.0
WORKS = {
    "computes": Work(),
    "holds the lock": Work(released=0.0),
    "holds the lock for half of the time": Work(released=0.5),
    "waits": Work(0.0005, 1e-3, waits=0.95),
    "cheap rows": Work(1e-4, 1e-6),
    "expensive rows": Work(1e-4, 1e-3),
}
PARTS = [None, 0.3, 0.8, 1.5, 3.0]
"""What sources give, in workers' worth of work; None is as much as is taken."""


def steady(work: str, part: float | None, **other: object) -> SteadyThreads:
    rate = None if part is None else part / WORKS[work].per_row
    return SteadyThreads(None if rate is None else lambda at: rate, work=WORKS[work], **other)  # type: ignore[arg-type]


def most_in_five_minutes(times: list[float]) -> int:
    """Return how many of these fall into five minutes, at the worst."""
    return max((sum(0 <= later - first < FIVE_MINUTES for later in times) for first in times), default=0)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("work", WORKS)
def test_a_constant_load_changes_hardly_anything_once_settled(work, part):
    """Before there was a cost to a change, twelve minutes of these had up to 48 of them in five."""
    run = steady(work, part, noise=0.3, seed=3).run(7 * MINUTE)
    assert most_in_five_minutes([at for at, _ in run.changes(since=MINUTE)]) <= 1
    assert replay(from_json(to_json(line)) for line in run.log).same


@pytest.mark.parametrize(("work", "target", "seed"), [("waits", 0.5, 5)])
def test_a_first_search_ends_within_a_minute(work, target, seed):
    """One sample that was half of what followed had begun it anew, when it was nearly done."""
    run = steady(work, None, noise=0.3, seed=seed, target=target).run(7 * MINUTE)
    assert most_in_five_minutes([at for at, _ in run.changes(since=MINUTE)]) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("target", [None, 0.05, 0.5])
@pytest.mark.parametrize("noise", [0.15, 0.3])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("work", WORKS)
def test_half_an_hour_at_a_constant_load(work, part, noise, target):
    for seed in range(4):
        run = steady(work, part, noise=noise, seed=seed, target=target).run(30 * MINUTE)
        assert most_in_five_minutes([at for at, _ in run.changes(since=MINUTE)]) <= 1, seed


@pytest.mark.parametrize("part", [0.6, 0.9, 1.5])
@pytest.mark.parametrize("work", ["computes", "waits", "cheap rows", "expensive rows"])
def test_a_doubled_load_is_answered(work, part):
    """A settled run looks for more workers once it fell behind for some periods, as one that never settles does."""
    begins, row = 4 * MINUTE, WORKS[work].per_row
    run = SteadyThreads(
        lambda at: part / row * (2 if at >= begins else 1), work=WORKS[work], noise=0.05, hiccups=0, seed=1
    )
    run.run(begins + 20)
    assert run.waiting * row / (2 * part) < 6  # seconds' rows
    run.run(begins + 40)
    assert run.waiting * row / (2 * part) < 0.5
    assert run.workers >= 2 * part


@pytest.mark.parametrize("part", [0.6, 0.9, 1.5])
@pytest.mark.parametrize("work", ["computes", "waits", "cheap rows", "expensive rows"])
def test_a_doubled_load_is_answered_as_soon_as_by_a_run_that_is_never_calm(work, part):
    """Where nothing was calm, more than half a second's rows waited for up to 36 seconds, 26 in the mean of some."""
    spells = [behind_after_doubling(work, part, noise, seed) for noise in (0.05, 0.2) for seed in range(3)]
    assert max(spells) <= 10 * PERIOD
    assert sum(spells) / len(spells) <= 6 * PERIOD


def behind_after_doubling(work: str, part: float, noise: float, seed: int) -> float:
    """Return the seconds of a minute for which half a second's rows waited, or more."""
    begins, row, behind = 2.5 * MINUTE, WORKS[work].per_row, 0.0
    run = SteadyThreads(
        lambda at: part / row * (2 if at >= begins else 1), work=WORKS[work], noise=noise, hiccups=0, seed=seed
    )
    run.run(begins)
    while (at := run.stats.at) < begins + MINUTE:
        run.run(at + SEARCH_PERIOD / 2)  # one period
        if run.waiting * row / (2 * part) > 0.5:
            behind += run.stats.at - at
    return behind


TWO_CORES = {"work": Work(released=1 - 1 / 1.9), "cores": 2, "hiccups": 0}
"""Two workers give 1.9 times as much as one, as an interpreter without a GIL has it."""


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(5))
def test_a_second_worker_that_nearly_doubles_throughput_is_there_in_six_periods(noise, seed):
    run = SteadyThreads(None, noise=noise, seed=seed, **TWO_CORES).run(6 * SEARCH_PERIOD)  # type: ignore[arg-type]
    assert run.workers == 2
    run.run(3 * MINUTE)
    assert [line.after for _, line in run.changes() if line.what == "thread_level"] == [2]


@pytest.mark.parametrize("busy", [2.0, 20.0, 2 * MINUTE])
@pytest.mark.parametrize("seed", range(3))
def test_a_second_worker_is_found_once_other_programs_leave_room_for_it(busy, seed):
    """They leave one core, so that one worker gives as much as without them."""
    run = SteadyThreads(
        None,
        noise=0.05,
        seed=seed,
        others=lambda at: 0.5 if at < busy else 0.0,
        **TWO_CORES,  # type: ignore[arg-type]
    )
    run.run(busy)
    assert run.workers == 1  # as Streams has it: what others keep busy is not for the taking
    run.run(busy + 7 * PERIOD)
    assert run.workers == 2
    run.run(busy + 5 * MINUTE)
    assert [line.after for _, line in run.changes() if line.what == "thread_level"] == [2]


@pytest.mark.parametrize("seed", range(4))
def test_other_programs_that_come_and_go_are_no_room_for_more(seed):
    """Workers that were looked for again whenever the machine's usage fell had up to 17 changes here."""
    chance = random.Random(seed)
    run = SteadyThreads(None, noise=0.1, seed=seed, others=lambda at: min(0.95, max(0.0, chance.gauss(0.4, 0.2))))
    run.run(7 * MINUTE)
    assert most_in_five_minutes([at for at, _ in run.changes(since=MINUTE)]) <= 1


@pytest.mark.parametrize("part", [0.6, 0.8, 1.5])
@pytest.mark.parametrize("work", ["computes", "waits", "expensive rows"])
def test_sources_whose_rate_varies_are_no_other_load(work, part):
    chance, row = random.Random(0), WORKS[work].per_row
    run = SteadyThreads(lambda at: max(0.1, chance.gauss(1, 0.2)) * part / row, work=WORKS[work], noise=0.15)
    assert most_in_five_minutes([at for at, _ in run.run(10 * MINUTE).changes(since=MINUTE)]) <= 1


class Alone:
    """A controller alone, over half an hour of made-up periods; its changes after the first minute."""

    def __init__(self, seed: int, noise: float) -> None:
        self.chance, self.at, self.times = random.Random(seed), 0.0, list[float]()
        self.seconds, self._noise = PERIOD, noise

    def noisy(self) -> float:
        return noisy(self.chance, self._noise, hiccups=0.002)

    def periods(self) -> Iterator[float]:
        while self.at < 30 * MINUTE:
            self.at += self.seconds
            yield self.at

    def took(self, actions: Actions) -> None:
        self.times += [self.at] if actions and self.at > MINUTE else []


@pytest.mark.parametrize("seed", few_of(range(3), 1))
@pytest.mark.parametrize("noise", [0.15, 0.3])
class TestAlone:
    @pytest.mark.parametrize(("most", "wait"), [(500, 0.01), (5000, 0.05), (200, 0.2), (1e9, 0.02)])
    def test_rows_in_flight(self, noise, seed, most, wait):
        run, controller = Alone(seed, noise), WaitingConcurrency(initial=64, largest_guess=64, grain=GRAIN)
        state = controller.start()
        for _ in run.periods():
            rows = state.levels.level
            rate = min(rows / wait, most) / run.noisy()
            state, actions = controller.step(state, WaitingStatistics(rate, rows / rate - 1e-4, 1e-4))
            run.seconds = PERIOD if state.levels.settled else SEARCH_PERIOD
            run.took(actions)
        assert most_in_five_minutes(run.times) <= 1

    @pytest.mark.parametrize("load", [0.8, 1.5, 2.5])
    def test_replicas(self, noise, seed, load):
        run, controller, replicas = Alone(seed, noise), Replicas(high=8, calm=Calm()), 1
        state = controller.start()
        for at in run.periods():
            able = min(replicas, 4) * 1000 / run.noisy()
            rate = min(able, load * 1000)
            full, busy = 0.9 if able < load * 1000 else 0.0, rate / able * min(replicas, 4) / replicas
            seen = OperatorStatistics("work", (full,) * replicas, 0.0, rate, busy)
            state, actions = controller.step(state, ReplicaStatistics((seen,), at=at))
            replicas = next((int(each.after or 1) for each in actions), replicas)
            self.took_after_two_minutes(run, actions)
        assert most_in_five_minutes(run.times) <= 1

    @staticmethod
    def took_after_two_minutes(run: Alone, actions: Actions) -> None:
        """Replicas come one by one, and each shows what it gains in up to 20 periods; workers find theirs sooner."""
        run.took(actions if run.at > 2 * MINUTE else ())

    @pytest.mark.parametrize(("operators", "workers"), [(6, 2), (12, 4), (40, 4)])
    def test_bindings(self, noise, seed, operators, workers):
        run, controller = Alone(seed, noise), own_rebinding()
        state, costs = controller.start(), [run.chance.expovariate(1e4) for _ in range(operators)]
        bound = [number % workers for number in range(operators)]
        for at in run.periods():
            loads = (
                OperatorLoad(str(number), bound[number], 0, cost * run.noisy(), 2000)
                for number, cost in enumerate(costs)
            )
            state, actions = controller.step(state, BindingStatistics(workers, tuple(loads), at))
            for operator, worker in (place for each in actions for place in new_places(each)):
                bound[int(operator)] = worker
            assert len(actions) <= 1  # all moves of one moment are one decision
            run.took(actions)
        assert most_in_five_minutes(run.times) <= 1
        sums = [sum(cost for cost, own in zip(costs, bound, strict=True) if own == worker) for worker in range(workers)]
        assert max(sums) <= max(1.4 * sum(sums) / workers, *costs)

    @pytest.mark.parametrize("load", [0.7, 1.5, 2.0])
    def test_a_pool_by_utilization(self, noise, seed, load):
        run, controller = Alone(seed, noise), UtilizationPool(high=16, calm=Calm())
        state = controller.start()
        run.seconds = POOL_SECONDS
        for at in run.periods():
            busy = min(1.0, load * run.noisy() / state.size)
            state, actions = controller.step(state, PoolStatistics((busy,) * state.size, at))
            run.took(actions)
        assert most_in_five_minutes(run.times) <= 1
        assert load < state.size <= load + 2


def test_a_pool_that_is_settled_grows_with_its_load():
    controller = UtilizationPool(high=16, calm=Calm())
    state, sizes = controller.start(), []
    for at in range(0, 1000, 10):
        load = 1.5 if at < 600 else 6.5
        state, _ = controller.step(state, PoolStatistics((min(1.0, load / state.size),) * state.size, float(at)))
        sizes.append(state.size)
    assert sizes[50:60] == [2] * 10
    assert sizes[60 + 8] == 7  # one a period, once three have shown it
