"""Check the batch size."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.elastic.base import Action
from penstock.elastic.batch_size import BatchSize, BatchStatistics


def run(
    controller: BatchSize, fixed: float, per_row: float, arrivals: float, periods: int = 60
) -> tuple[int, list[Action]]:
    """Feed it a fixed cost for each batch and a cost for each row; the backlog grows while it is too slow."""
    state, backlog, log = controller.start(), 0.0, []
    for _ in range(periods):
        seconds = fixed + per_row * state.size
        busy = arrivals * seconds / state.size
        backlog = max(0.0, backlog + (busy - 1) * arrivals)
        state, actions = controller.step(state, BatchStatistics(state.size, seconds, arrivals, backlog))
        log += actions
    return state.size, log


def test_doubles_when_behind() -> None:
    controller = BatchSize(initial=100)
    _, actions = controller.step(controller.start(), BatchStatistics(100, 0.1, 990, 0))
    why = (
        "batches of 200 rows instead of 100: 0 rows wait and processing is 99 % busy; a row costs 1 ms, in these 0.5 ms"
    )
    assert actions == (Action("batch_rows", "", 100, 200, why, (("rows", 100), ("seconds", 0.1))),)


def test_a_growing_backlog_is_behind_and_a_shrinking_one_is_not() -> None:
    controller = BatchSize(initial=100)
    state = controller.start()
    state, actions = controller.step(state, BatchStatistics(100, 0.1, 900, 500))
    assert [action.after for action in actions] == [200]
    _, actions = controller.step(state, BatchStatistics(200, 0.11, 900, 450))
    assert actions == ()


def test_halves_when_half_is_expected_to_keep_up() -> None:
    controller = BatchSize(initial=100)
    # One point: all of the 0.01 s might be fixed, so 50 rows would be 1000 * 0.01 / 50 = 20 % busy.
    _, actions = controller.step(controller.start(), BatchStatistics(100, 0.01, 1000, 0))
    why = "batches of 50 rows instead of 100: they would be 20 % busy and have less latency"
    assert actions == (Action("batch_rows", "", 100, 50, why, (("rows", 100), ("seconds", 0.01))),)


def test_a_target_that_is_met_with_room_keeps_large_batches() -> None:
    controller = BatchSize(initial=100, target=1.0)
    # Filling takes 0.1 s and processing 0.01 s: far below half a second.
    assert controller.step(controller.start(), BatchStatistics(100, 0.01, 1000, 0))[1] == ()
    tight = BatchSize(initial=100, target=0.1)
    assert tight.step(tight.start(), BatchStatistics(100, 0.01, 1000, 0))[1][0].after == 50


def test_noise_does_not_make_batches_of_slow_rows_ever_longer() -> None:
    """Rows of 5 ms that are too many: measured in two noisy batches, any part of their time may look fixed."""
    for seed in range(20):
        rng, ends = random.Random(seed), []
        for longest in (None, 0.25):
            controller = BatchSize(low=16, initial=32, longest=longest)
            state = controller.start()
            for _ in range(200):
                rows = state.size * rng.uniform(0.5, 1.0)
                seconds = 0.005 * rows * max(0.1, 1 + rng.gauss(0, 0.3))
                state, _ = controller.step(state, BatchStatistics(rows, seconds, 200.0, 3.0 * state.size))
            ends.append(state.size)
        assert ends[1] <= 128
        assert ends[0] > 1000  # what the limit is for


def test_does_not_grow_where_the_rows_themselves_are_too_slow() -> None:
    # 2 ms a row and 1,000 rows a second: no batch size helps, and the first doubling shows it.
    size, log = run(BatchSize(initial=64), fixed=1e-4, per_row=2e-3, arrivals=1000)
    assert size <= 128
    assert len(log) <= 1


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-4, 1), st.floats(1e-7, 1e-4), st.floats(10, 1e5), st.integers(0, 16))
def test_settles_and_keeps_up_if_any_size_does(fixed: float, per_row: float, arrivals: float, start: int) -> None:
    """At most one change for each doubling between the bounds, and two more; then none."""
    controller = BatchSize(high=1 << 16, initial=1 << start)
    size, log = run(controller, fixed, per_row, arrivals)
    assert len(log) <= 16 + 2
    assert run(controller, fixed, per_row, arrivals, periods=40) == (size, log)
    slowest = arrivals * (fixed / (1 << 16) + per_row)
    if slowest <= 0.9:
        assert arrivals * (fixed + per_row * size) / size <= 0.95


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 100),
    st.integers(0, 1000),
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 10), st.floats(0, 1e6), st.floats(0, 1e9))),
)
def test_never_leaves_its_bounds(low: int, more: int, log: list[tuple[float, float, float, float]]) -> None:
    controller = BatchSize(low=low, high=low + more, initial=low)
    state = controller.start()
    for rows, seconds, arrivals, backlog in log:
        state, _ = controller.step(state, BatchStatistics(rows, seconds, arrivals, backlog))
        assert low <= state.size <= low + more


def test_a_slow_spell_does_not_leave_batches_small_for_ever() -> None:
    # All of the input is there: 0.05 s a batch and 10 us a row, five times that for a while; the target allows 1 s.
    controller = BatchSize(initial=50_000, high=1 << 20, target=2.0)
    state, backlog, sizes = controller.start(), 10_000_000.0, []
    for period in range(40):
        seconds = (0.05 + 1e-5 * state.size) * (5 if period < 8 else 1)
        backlog -= state.size
        state, _ = controller.step(state, BatchStatistics(state.size, seconds, 0.0, backlog))
        sizes.append(state.size)
    assert min(sizes[:8]) < 25_000
    # 50,000 rows take 0.55 s; twice as many would take 1.05 s.
    assert sizes[-1] == 50_000
    assert len(set(sizes[-20:])) == 1


def test_without_a_target_batches_that_are_short_already_are_not_made_shorter() -> None:
    """A size that is far too small for what may come is far from the right one, too."""
    for shortest, sizes in ((0.01, range(1_000, 4_000)), (0.0, range(1, 2))):
        size, _ = run(BatchSize(initial=1 << 14, shortest=shortest), fixed=0.0, per_row=1e-5, arrivals=1_000)
        assert size in sizes
