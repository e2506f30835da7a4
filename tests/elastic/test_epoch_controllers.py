"""Check the controllers of whole epochs: one task or stages, how long to wait, how many executors."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.elastic.base import Action
from penstock.elastic.epochs import (
    EpochWait,
    ExecutorCount,
    ExecutorStatistics,
    OneTask,
    PaceStatistics,
    WorkStatistics,
)
from penstock.elastic.shard_balance import ShardBalance, ShardStatistics


def run(controller, seen):
    state, log = controller.start(), []
    for statistics in seen:
        state, actions = controller.step(state, statistics)
        log.append(actions)
    return state, log


class TestOneTask:
    def step(self, *seen: WorkStatistics) -> bool:
        return run(OneTask(), seen)[0].one

    def test_small_epochs_of_cheap_rows_are_for_one_task(self) -> None:
        assert self.step(WorkStatistics(0, 0.0, 10_000, 2))
        assert not self.step(WorkStatistics(0, 0.0, 10_001, 2))

    def test_an_epoch_that_was_slow_once_does_not_count_for_ever(self) -> None:
        """Workers start in the first epoch, and all others are too small to tell more than what a row costs at most."""
        slow, usual = WorkStatistics(100, 0.5, 100, 2), WorkStatistics(100, 0.01, 100, 2)
        assert not self.step(slow)
        assert self.step(slow, usual)
        # What small epochs say is not below what is assumed before anything is known.
        nothing = WorkStatistics(100, 0.0, 100, 2)
        assert not self.step(slow, nothing, WorkStatistics(0, 0.0, 1_000_000, 2))

    def test_costly_rows_are_shared_however_few(self) -> None:
        # 100 rows of 2 ms: half of 0.2 s is saved by a second core.
        assert not self.step(WorkStatistics(100, 0.2, 100, 2))
        assert self.step(WorkStatistics(100, 0.2, 10, 2))

    def test_a_tiny_epoch_says_nothing_of_the_cost_of_a_row(self) -> None:
        # 10 ms for 5 rows is the task's own start, not 2 ms a row.
        assert self.step(WorkStatistics(5, 0.01, 5_000, 2))

    def test_one_core_shares_nothing(self) -> None:
        assert self.step(WorkStatistics(10**6, 5.0, 10**6, 1))

    def test_the_reason_names_both_sides(self) -> None:
        _, log = run(OneTask(), [WorkStatistics(0, 0.0, 1_000, 2)])
        why = (
            "one task instead of two: an epoch of 1,000 rows would take 5 ms beside what is fixed, "
            "instead of 28 ms with shuffles"
        )
        figures = (("rows", 1_000), ("work_seconds", 0.005), ("shuffle_seconds", 0.025))
        assert log == [(Action("one_task", "", False, True, why, figures),)]

    def test_noise_does_not_switch_back_and_forth(self) -> None:
        seen = [WorkStatistics(10_000, 0.05 * (1.2 if i % 2 else 0.8), 10_000, 2) for i in range(40)]
        assert sum(map(len, run(OneTask(), seen)[1])) <= 1


class TestEpochWait:
    def test_waits_for_what_the_target_leaves(self) -> None:
        state, log = run(EpochWait(target=2.0), [PaceStatistics(0.3, 0)])
        assert state.every == pytest.approx(1.2)
        assert log[0][0].why == (
            "an epoch begins 1.2 s after the last instead of 0 s: it takes 0.3 s, "
            "and the target of 2 s leaves the rest for rows to gather"
        )

    def test_waits_for_nothing_while_rows_are_left(self) -> None:
        state, log = run(EpochWait(target=2.0), [PaceStatistics(0.3, 0), PaceStatistics(0.3, 10)])
        assert state.wait == 0
        assert not log[1]  # that is no change yet

    def test_one_slow_epoch_is_no_change(self) -> None:
        seen = [PaceStatistics(0.3, 0) for _ in range(5)]
        state, log = run(EpochWait(target=2.0), [*seen, PaceStatistics(1.2, 0)])
        assert state.wait == pytest.approx(0.3)
        assert not log[-1]
        assert run(EpochWait(target=2.0), [*seen, PaceStatistics(1.2, 0), *seen])[0].wait == pytest.approx(1.2)

    @given(st.lists(st.tuples(st.floats(0.001, 10), st.integers(0, 5)), max_size=30), st.floats(0.1, 10))
    def test_a_wait_and_an_epoch_stay_within_the_target(self, epochs, target) -> None:
        controller = EpochWait(target=target)
        state = controller.start()
        for seconds, backlog in epochs:
            state, _ = controller.step(state, PaceStatistics(seconds, backlog))
            assert state.wait == 0 or state.wait + seconds <= target

    def test_settles(self) -> None:
        seen = [PaceStatistics(0.3 * (1 + 0.2 * (i % 3 - 1)), 0) for i in range(50)]
        assert sum(map(len, run(EpochWait(target=2.0), seen)[1])) <= 2


class TestExecutorCount:
    """Epochs of 0.1 s and 1.6 s of work, on executors of two cores."""

    def epoch(self, executors: int) -> ExecutorStatistics:
        return ExecutorStatistics(executors, 2, 0.1 + 0.8 / executors, 1.6)

    def settle(self, controller: ExecutorCount, executors: int) -> tuple[int, int]:
        """Return where it ends, and after how many epochs nothing changed any more."""
        state, last = controller.start(), 0
        for number in range(60):
            state, actions = controller.step(state, self.epoch(executors))
            for action in actions:
                assert (action.before, action.what) == (executors, "executors")
                executors, last = action.after, number
        return executors, last

    def test_the_fewest_that_meet_half_the_target(self) -> None:
        # 1: 0.9 s, 2: 0.5 s, 3: 0.37 s, 4: 0.3 s.
        assert self.settle(ExecutorCount(target=1.0, high=8), 1)[0] == 2
        assert self.settle(ExecutorCount(target=0.8, high=8), 1)[0] == 3
        assert self.settle(ExecutorCount(target=0.2, high=3), 1)[0] == 3

    def test_more_come_soon_and_fewer_go_late(self) -> None:
        assert self.settle(ExecutorCount(target=0.8, high=8), 1) == (3, 2)
        assert self.settle(ExecutorCount(target=4.0, high=8), 4) == (1, 9)

    def test_one_that_would_just_do_is_not_enough_to_give_one_back(self) -> None:
        # Two take 0.5 s, half of the target; with three there is room, so three stay.
        assert self.settle(ExecutorCount(target=1.0, high=8), 3)[0] == 3

    def test_asks_for_no_more_than_it_sees_that_there_may_be(self) -> None:
        tight, high = ExecutorCount(target=0.2, high=256), 3
        seen = [replace(self.epoch(1), most=high)] * 3
        assert [action.after for action in run(tight, seen)[1][-1]] == [high]

    def test_advice_is_called_advice(self) -> None:
        _, log = run(ExecutorCount(target=0.8, high=8, advise=True), [self.epoch(1)] * 3)
        assert [action.what for action in log[-1]] == ["advise_executors"]
        assert log[-1][0].why == (
            "three executors instead of one: an epoch would take 0.37 s instead of 0.9 s, by three epochs in a row; "
            "half of the target is 0.4 s"
        )

    def test_votes_with_another_number_of_executors_do_not_count(self) -> None:
        controller = ExecutorCount(high=8, patience_down=2)
        fewer = [ExecutorStatistics(8, 1, 1.0, 2.0), ExecutorStatistics(3, 1, 0.0, 0.0)]
        assert run(controller, fewer)[1] == [(), ()]
        assert [action.after for action in run(controller, [*fewer, fewer[1]])[1][-1]] == [1]

    @given(
        st.lists(
            st.builds(ExecutorStatistics, st.integers(1, 9), st.integers(1, 4), st.floats(0, 9), st.floats(0, 99)),
            max_size=40,
        ),
        st.none() | st.floats(0.01, 10),
    )
    @example([ExecutorStatistics(8, 1, 1.0, 2.0), ExecutorStatistics(3, 1, 0.0, 0.0)], None)
    def test_never_leaves_its_bounds(self, epochs, target) -> None:
        controller = ExecutorCount(target=target, low=2, high=6, patience_up=1, patience_down=2)
        _, log = run(controller, epochs)
        for seen, actions in zip(epochs, log, strict=True):
            for action in actions:
                assert 2 <= action.after <= max(6, seen.executors)
                assert action.after != action.before


class TestLeastGain:
    def test_an_imbalance_that_costs_little_is_left_alone(self) -> None:
        seen = ShardStatistics((0.01, 0.002), (0, 0), 1)
        uneven = ShardStatistics((0.01, 0.01, 0.001), (0, 0, 1), 2)
        assert ShardBalance(least_gain=0.02).step(ShardBalance().start(), seen)[1] == ()
        assert ShardBalance(least_gain=0.02).step(ShardBalance().start(), uneven)[1] == ()
        assert ShardBalance(least_gain=0.005).step(ShardBalance().start(), uneven)[1] != ()

    def test_a_task_without_shards_gets_its_part(self) -> None:
        empty = ShardStatistics((0.01, 0.01, 0.001), (0, 0, 0), 2)
        assert ShardBalance(least_gain=0.02).step(ShardBalance().start(), empty)[1] != ()
