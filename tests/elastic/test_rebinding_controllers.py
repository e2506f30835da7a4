"""Check the three binding controllers: greedy as published, the one that only makes lighter, round robin."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.elastic.base import Action, Actions
from penstock.elastic.rebinding import BindingStatistics, OperatorLoad, Rebinding
from penstock.lab.baselines import GreedyRebinding


def bind(workers: int, *loads: tuple[int, int]) -> BindingStatistics:
    """Make operators a, b, c, ... from (worker, pending), at one second a tuple."""
    names = "abcdefghij"
    return BindingStatistics(
        workers,
        tuple(OperatorLoad(names[i], worker, pending, 1.0) for i, (worker, pending) in enumerate(loads)),
    )


def moves(actions: Actions) -> list[tuple[str, int, int]]:
    return [(action.target, int(action.before or 0), int(action.after or 0)) for action in actions]


def apply(statistics: BindingStatistics, actions: Actions) -> BindingStatistics:
    to = {action.target: int(action.after or 0) for action in actions}
    moved = (
        OperatorLoad(each.name, to.get(each.name, each.worker), each.pending, each.seconds, each.arrived)
        for each in statistics.operators
    )
    return BindingStatistics(statistics.workers, tuple(moved))


def busiest(statistics: BindingStatistics) -> float:
    loads = [0.0] * statistics.workers
    for each in statistics.operators:
        loads[each.worker] += each.work
    return max(loads)


def test_greedy_takes_the_lightest_first_to_the_least_loaded() -> None:
    # Loads 6 and 0, mean 3. a (1) goes: 5 and 1. b (2) goes: 3 and 3. c (3) stays: 3 is not above the mean.
    _, actions = GreedyRebinding().step(GreedyRebinding().start(), bind(2, (0, 1), (0, 2), (0, 3)))
    assert moves(actions) == [("a", 0, 1), ("b", 0, 1)]
    assert actions[0].why == "worker 0 has 6 s of work, the mean is 3 s; least has 1"


def test_greedy_moves_in_every_round_on_loads_that_stand_still() -> None:
    """One operator on two workers can never be balanced, yet it is moved for ever."""
    statistics, controller = bind(2, (0, 5)), GreedyRebinding()
    for to in (1, 0, 1, 0):
        _, actions = controller.step(controller.start(), statistics)
        assert moves(actions) == [("a", 1 - to, to)]
        statistics = apply(statistics, actions)


def test_the_other_moves_only_if_the_busiest_gets_lighter() -> None:
    _, actions = Rebinding().step(Rebinding().start(), bind(2, (0, 5)))
    assert actions == ()
    # Loads 6 and 1. c (3) leaves 3 and 4, b (2) leaves 4 and 3, a (1) leaves 5 and 2: b is the first of the
    # best.
    _, actions = Rebinding().step(Rebinding().start(), bind(2, (0, 1), (0, 2), (0, 3), (1, 1)))
    why = "b goes from worker 0, which has 6 s of work, to worker 1, which has 1 s: the busier of the two then has 4 s"
    assert actions == (Action("binding", "b", 0, 1, why),)


def test_an_operator_that_keeps_up_is_a_load_too() -> None:
    """Without the arrivals both workers look idle: their queues are empty."""
    busy = tuple(OperatorLoad(name, 0, 0, 0.001, arrived=1000) for name in "ab")
    _, actions = Rebinding().step(Rebinding().start(), BindingStatistics(2, busy))
    assert moves(actions) == [("a", 0, 1)]
    _, actions = GreedyRebinding().step(GreedyRebinding().start(), BindingStatistics(2, busy))
    assert actions == ()


def test_a_move_must_take_off_more_than_the_gain() -> None:
    # Loads 102 and 100: moving a (2) would leave 100 and 102; b (1) leaves 101 and 101, a gain of 1 %.
    statistics = bind(2, (0, 2), (0, 1), (0, 99), (1, 100))
    assert Rebinding().step(Rebinding().start(), statistics)[1] == ()
    assert moves(Rebinding(gain=0.005).step(Rebinding().start(), statistics)[1]) == [("b", 0, 1)]


def test_an_operator_that_moves_twice_in_one_step_says_why_it_left_its_worker() -> None:
    # Loads 4, 11 and 11: a (2) goes to worker 0. Then 6, 9 and 11: d (4) goes there. Then 10, 9 and 7: a goes on.
    _, actions = Rebinding().step(Rebinding().start(), bind(3, (1, 2), (1, 9), (0, 4), (2, 4), (2, 7)))
    assert moves(actions) == [("a", 1, 2), ("d", 2, 0)]
    assert actions[0].why == (
        "a goes from worker 1, which has 11 s of work, to worker 0, which has 4 s: the busier of the two then has 9 s; "
        "after that a goes from worker 0, which has 10 s of work, to worker 2, which has 7 s: "
        "the busier of the two then has 9 s"
    )


def bind_many(workers: int, rows: list[tuple[int, int, float]]) -> BindingStatistics:
    operators = (OperatorLoad(f"op{i}", w % workers, n, s) for i, (w, n, s) in enumerate(rows))
    return BindingStatistics(workers, tuple(operators))


loads = st.builds(
    bind_many,
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1000), st.floats(0, 1)), max_size=40),
)


@settings(max_examples=200, deadline=None)
@given(loads)
def test_the_busiest_worker_never_gets_heavier_and_a_second_step_moves_nothing(
    statistics: BindingStatistics,
) -> None:
    """On loads that stand still it settles after one step."""
    controller = Rebinding(most_moves=10_000)
    _, actions = controller.step(controller.start(), statistics)
    after = apply(statistics, actions)
    assert all(0 <= int(action.after or 0) < statistics.workers for action in actions)
    if actions:
        assert busiest(after) < busiest(statistics)
    assert controller.step(controller.start(), after)[1] == ()


@settings(max_examples=200, deadline=None)
@given(loads)
def test_no_operator_is_left_whose_move_would_pay(statistics: BindingStatistics) -> None:
    """The bound: each operator of the busiest is below the gain, or would make the least busy as heavy."""
    controller = Rebinding(most_moves=10_000)
    _, actions = controller.step(controller.start(), statistics)
    after = apply(statistics, actions)
    sums = [sum(each.work for each in after.operators if each.worker == w) for w in range(after.workers)]
    top = max(sums)
    for each in after.operators:
        if sums[each.worker] == top > 0:
            limit = top * (1 - controller.gain) * (1 - 1e-9)
            assert top - each.work >= limit or min(sums) + each.work >= limit


@settings(max_examples=100, deadline=None)
@given(loads)
def test_greedy_only_names_workers_that_exist(statistics: BindingStatistics) -> None:
    _, actions = GreedyRebinding().step(GreedyRebinding().start(), statistics)
    assert all(0 <= int(action.after or 0) < statistics.workers for action in actions)
