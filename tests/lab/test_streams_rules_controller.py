"""Check the published thread-level rules, step by step."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.elastic.thread_level import ThreadStatistics
from penstock.lab.baselines import StreamsRules


def levels(curve: list[float], periods: int = 30, cpu: float = 0.0) -> list[int]:
    controller = StreamsRules(high=len(curve))
    state, visited = controller.start(), []
    for _ in range(periods):
        state, actions = controller.step(state, ThreadStatistics(curve[state.level - 1], cpu))
        visited += [action.after for action in actions]
    return visited


def test_climbs_by_doubling_and_stays_on_a_rising_curve() -> None:
    assert levels([10, 20, 30, 40, 50, 60, 70, 80]) == [2, 4, 8]


def test_bisects_down_from_a_fall() -> None:
    # 8 is no better than 4, so half way: 6 is better than 4 and not worse than 8, which is trusted: stay.
    assert levels([10, 20, 30, 40, 50, 60, 45, 30]) == [2, 4, 8, 6]


def test_stops_between_levels_that_hide_a_better_one() -> None:
    # The weakness that the other controller mends: 7 gives twice as much, but no neighbour of 6 shows it.
    assert levels([10, 20, 30, 40, 50, 60, 120, 30])[-1] == 6


def test_goes_down_where_nothing_is_gained() -> None:
    assert levels([10.0, 10.0]) == [2, 1]


def test_one_deviating_sample_wipes_out_what_was_learned() -> None:
    controller = StreamsRules(high=4)
    state = controller.start()
    for throughput in (10.0, 20.0, 40.0, 40.0):
        state, _ = controller.step(state, ThreadStatistics(throughput))
    assert [record.level for record in state.trusted] == [1, 2, 4]
    state, actions = controller.step(state, ThreadStatistics(34.0))
    assert [record.level for record in state.trusted] == [4]
    assert [(action.before, action.after) for action in actions] == [(4, 2)]


def test_a_busy_machine_keeps_it_from_climbing() -> None:
    assert levels([10, 20, 30, 40], cpu=0.9) == []


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 300), st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1)), max_size=100))
def test_never_leaves_its_bounds(high: int, samples: list[tuple[float, float]]) -> None:
    controller = StreamsRules(high=high)
    state = controller.start()
    for throughput, usage in samples:
        state, _ = controller.step(state, ThreadStatistics(throughput, usage))
        assert 1 <= state.level <= high
