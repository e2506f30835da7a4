"""Check the queueing formulas and the allocation of cores."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.elastic.core_allocation import (
    AllocationStatistics,
    CoreAllocation,
    ExecutorLoad,
    allocate,
    erlang_c,
    network_time,
    response_time,
    stable_minimum,
)


def test_formulas_against_known_values() -> None:
    # M/M/1: the mean time is 1 / (mu - lambda).
    assert response_time(8, 10, 1) == pytest.approx(0.5)
    # Erlang C for a load of 2 on 3 servers is 4 / 9.
    assert erlang_c(2, 3) == pytest.approx(4 / 9)
    assert response_time(2, 1, 3) == pytest.approx(1 + 4 / 9)
    assert math.isinf(response_time(10, 10, 1))


def test_the_stable_minimum_is_floor_plus_one() -> None:
    assert [stable_minimum(rate, 10) for rate in (0, 5, 10, 15, 29.9, 30)] == [1, 1, 2, 2, 3, 4]


def test_the_stable_minimum_is_stable_where_the_quotient_is_rounded() -> None:
    # 27 cores serve exactly what arrives, and the quotient is just below 27.
    assert 858.222 >= 27 * 31.786
    assert 858.222 / 31.786 < 27
    assert stable_minimum(858.222, 31.786) == 28


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 1000), st.floats(1e-3, 1e6))
def test_the_stable_minimum_is_stable(cores: int, service: float) -> None:
    for arrivals in (cores * service, math.nextafter(cores * service, 0)):
        assert math.isfinite(response_time(arrivals, service, stable_minimum(arrivals, service)))


def test_a_target_is_met_where_cores_serve_exactly_what_arrives() -> None:
    def cores(arrivals: float) -> tuple[int, ...]:
        loads = (ExecutorLoad("a", arrivals, 31.786),)
        plan = allocate(AllocationStatistics(arrivals, loads, 64), target=0.04)
        assert plan.problem is None
        return plan.cores

    assert cores(858.222) == cores(858.223) == (30,)


def test_the_network_sums_visits() -> None:
    # Each input visits the second queue twice: 0.5 + 2 * 0.25.
    assert network_time(8, [8, 16], [10, 20], [1, 1]) == pytest.approx(0.5 + 2 * 0.25)


def two(cores: int, held: tuple[int, int] = (0, 0)) -> AllocationStatistics:
    loads = (ExecutorLoad("a", 15, 10, held[0]), ExecutorLoad("b", 15, 20, held[1]))
    return AllocationStatistics(15.0, loads, cores)


def test_adds_cores_where_they_help_most_until_the_target_is_met() -> None:
    # Stable: 2 and 1. T = response(15, 10, 2) + response(15, 20, 1) = 0.2286 + 0.2.
    assert allocate(two(8), target=1.0).cores == (2, 1)
    # b gains 0.2 - 0.0582 = 0.142, a gains 0.2286 - 0.1158 = 0.113: b is first, and 0.287 meets 0.3.
    assert allocate(two(8), target=0.3).cores == (2, 2)
    assert allocate(two(8), target=0.18).cores == (3, 2)


def test_actions_name_each_executor_that_changes() -> None:
    controller = CoreAllocation(target=0.3)
    _, actions = controller.step(controller.start(), two(8, held=(2, 1)))
    assert [(each.what, each.target, each.before, each.after) for each in actions] == [("cores", "b", 1, 2)]
    assert actions[0].why == (
        "two cores for b instead of one: 15 rows/s at 20 a core need 0.75, and 4 of 8 in all give 0.29 s, "
        "the target is 0.3 s"
    )


def test_says_when_service_alone_is_too_slow() -> None:
    plan = allocate(two(100), target=0.1)
    assert plan.problem == "service alone takes 0.15 s, the target is 0.1 s: no number of cores meets it"
    # Cores that hardly shorten the wait are not taken.
    assert plan.latency <= 0.15 * 1.05
    assert sum(plan.cores) < 12


def test_says_when_the_cores_are_too_few() -> None:
    plan = allocate(two(4), target=0.2)
    assert plan.cores == (2, 2)
    assert plan.problem == "all 4 cores give 0.287 s, the target is 0.2 s"


def test_says_when_overloaded_and_shares_the_cores_out_by_work() -> None:
    loads = (ExecutorLoad("a", 80, 10), ExecutorLoad("b", 40, 10))
    plan = allocate(AllocationStatistics(120, loads, 6), target=1.0)
    assert plan.cores == (4, 2)
    assert plan.problem == "14 cores are needed to keep up and there are 6: shared out by work"


def test_more_executors_than_cores() -> None:
    loads = tuple(ExecutorLoad(str(i), float(i), 1) for i in range(1, 6))
    assert allocate(AllocationStatistics(15, loads, 3), target=1.0).cores == (0, 0, 1, 1, 1)


def test_keeps_an_allocation_that_is_good_enough() -> None:
    controller = CoreAllocation(target=0.3)
    # One core more than the fewest, ten per cent rounded up: not worth a change.
    assert controller.step(controller.start(), two(8, held=(3, 2)))[1] == ()
    _, actions = controller.step(controller.start(), two(8, held=(4, 3)))
    assert [(each.target, each.after) for each in actions] == [("a", 2), ("b", 2)]


loads = st.lists(st.tuples(st.floats(0.1, 50), st.floats(1, 50)), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(loads, st.floats(0.01, 2))
def test_greedy_uses_no_more_cores_than_the_best_of_all_allocations(
    executors: list[tuple[float, float]], target: float
) -> None:
    """Compare with every allocation up to two cores more for each executor than the greedy one has."""
    statistics = AllocationStatistics(
        1.0, tuple(ExecutorLoad(str(i), a, s) for i, (a, s) in enumerate(executors)), 10**6
    )
    plan = allocate(statistics, target)
    if plan.problem is not None:
        assert target <= sum(a / s for a, s in executors) * (1 + 1e-9)
        return
    assert plan.latency <= target
    if sum(plan.cores) > 60:
        return
    minimum = [stable_minimum(a, s) for a, s in executors]
    choices = itertools.product(*(range(low, cores + 3) for low, cores in zip(minimum, plan.cores, strict=True)))
    arrivals, service = [a for a, _ in executors], [s for _, s in executors]
    fewest = min(
        (sum(cores) for cores in choices if network_time(1.0, arrivals, service, cores) <= target),
        default=sum(plan.cores),
    )
    assert sum(plan.cores) == fewest


@settings(max_examples=200, deadline=None)
@given(loads, st.integers(1, 64), st.one_of(st.none(), st.floats(1e-3, 10)), st.data())
def test_never_gives_more_cores_than_there_are_and_settles_at_once(
    executors: list[tuple[float, float]], cores: int, target: float | None, data: st.DataObject
) -> None:
    held = [data.draw(st.integers(0, 8)) for _ in executors]
    controller = CoreAllocation(target)
    for _ in range(2):
        loads = tuple(ExecutorLoad(str(i), a, s, held[i]) for i, (a, s) in enumerate(executors))
        _, actions = controller.step(controller.start(), AllocationStatistics(1.0, loads, cores))
        changes = [action for action in actions if action.what == "cores"]
        for action in changes:
            held[int(action.target)] = int(action.after or 0)
        assert sum(held) <= cores
    assert changes == []
