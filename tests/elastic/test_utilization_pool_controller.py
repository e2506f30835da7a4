"""Check the utilization pool."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.elastic.base import Action
from penstock.elastic.utilization_pool import PoolStatistics, UtilizationPool


def sizes(controller: UtilizationPool, work: float, periods: int = 100) -> list[int]:
    """Give the pool a fixed amount of work, spread over its threads."""
    state, visited = controller.start(), [controller.start().size]
    for _ in range(periods):
        share = min(1.0, work / state.size)
        state, _ = controller.step(state, PoolStatistics((share,) * state.size))
        visited.append(state.size)
    return visited


def test_one_thread_more_above_95_percent_and_one_less_below_90() -> None:
    controller = UtilizationPool(high=12, initial=4)
    state = controller.start()
    state, actions = controller.step(state, PoolStatistics((1.0, 1.0, 0.9, 0.92)))
    assert actions == (
        Action(
            "threads",
            "",
            4,
            5,
            "five threads instead of four: they are 95.5 % busy, more than 95 %",
            (("busy", 0.955),),
        ),
    )
    state, actions = controller.step(state, PoolStatistics((0.92,) * 5))
    assert actions == ()
    calm = controller.start()
    calm, actions = controller.step(calm, PoolStatistics((0.9, 0.9, 0.89, 0.9)))
    assert [each.why for each in actions] == ["three threads instead of four: they are 89.8 % busy, less than 90 %"]


def test_the_published_rule_never_settles_on_work_for_one_and_a_half_threads() -> None:
    published = sizes(UtilizationPool(high=12, remember=False), 1.5)
    assert published[-4:] == [1, 2, 1, 2] or published[-4:] == [2, 1, 2, 1]
    assert sizes(UtilizationPool(high=12), 1.5)[1:] == [2] * 100


def test_a_size_that_was_too_small_is_tried_again_when_the_load_falls() -> None:
    controller = UtilizationPool(high=12)
    state = controller.start()
    for work, periods, size in ((2.5, 20, 3), (1.2, 20, 2), (0.5, 20, 1)):
        for _ in range(periods):
            share = min(1.0, work / state.size)
            state, _ = controller.step(state, PoolStatistics((share,) * state.size))
        assert state.size == size


@settings(max_examples=200, deadline=None)
@given(st.floats(0.01, 40), st.integers(1, 32), st.integers(1, 32))
def test_settles_after_the_distance_and_two_more(work: float, high: int, initial: int) -> None:
    """On a fixed amount of work: straight there, and at most one step too far and back."""
    controller = UtilizationPool(high=high, initial=initial)
    visited = sizes(controller, work)
    changes = sum(a != b for a, b in pairwise(visited))
    assert changes <= abs(visited[0] - visited[-1]) + 2
    assert visited[-50:] == [visited[-1]] * 50
    # What is left is not too busy, unless it is as large as allowed, and one thread fewer would be too few.
    assert work / visited[-1] <= 0.95 or visited[-1] == high
    assert visited[-1] == 1 or work / (visited[-1] - 1) > 0.9


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 20), st.integers(0, 20), st.lists(st.floats(0, 1), max_size=100))
def test_never_leaves_its_bounds(low: int, more: int, means: list[float]) -> None:
    controller = UtilizationPool(low=low, high=low + more, initial=low + more // 2)
    state = controller.start()
    for mean in means:
        state, actions = controller.step(state, PoolStatistics((mean,) * state.size))
        assert low <= state.size <= low + more
        assert all(abs(int(a.after or 0) - int(a.before or 0)) == 1 for a in actions)
