"""Every policy against choices worked out by hand from its paper's rule."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.threads.policies import (
    POLICIES,
    CurrentThroughput,
    EstimatedTime,
    LastInPipeline,
    LeastRecent,
    LongestQueue,
    MaxRunningTime,
    MeasuredFlow,
    MinLatency,
    Moment,
    OperatorView,
    Policy,
    QueueSizeThrottling,
    RandomChoice,
    Snapshot,
    VirtualTime,
    by_name,
    measured,
)
from penstock.threads.policies.measured import running_time
from penstock.threads.policies.rules import normalized_rows, priority


def moment(seed: int = 0, time_slice: float = 0.05) -> Moment:
    return Moment(now=100.0, worker=0, random=Random(seed), time_slice=time_slice)


def view(order: int, **values: object) -> Snapshot:
    return Snapshot(name=f"o{order}", order=order, **values)  # type: ignore[arg-type]


def chosen(policy: Policy, ready: Sequence[OperatorView], at: Moment | None = None) -> str:
    return ready[policy.choose(ready, at or moment())].name


def test_least_recent_takes_the_one_that_ran_longest_ago() -> None:
    ready = [view(0, last_run=7.0), view(1, last_run=3.0), view(2, last_run=5.0)]
    assert chosen(LeastRecent(), ready) == "o1"
    assert chosen(LeastRecent(), [*ready, view(3)]) == "o3"  # never run


def test_random_takes_each_about_as_often() -> None:
    ready = [view(order) for order in range(4)]
    at = moment(seed=1)
    picks = [RandomChoice().choose(ready, at) for _ in range(4_000)]
    assert all(900 < picks.count(index) < 1_100 for index in range(4))


def test_longest_queue_counts_all_ports_of_an_operator() -> None:
    ready = [view(1, queued=(40,)), view(2, queued=(30, 30)), view(3, queued=(50,))]
    assert chosen(LongestQueue(), ready) == "o2"


def test_longest_queue_takes_a_ready_source_first() -> None:
    ready = [view(1, queued=(1_000,)), view(0, is_source=True)]
    assert chosen(LongestQueue(), ready) == "o0"


def test_longest_queue_breaks_ties_at_random() -> None:
    ready = [view(1, queued=(5,)), view(2, queued=(5,)), view(3, queued=(4,))]
    assert {chosen(LongestQueue(), ready, moment(seed)) for seed in range(20)} == {"o1", "o2"}


def test_min_latency_takes_the_oldest_row_and_a_source_by_its_last_run() -> None:
    ready = [view(1, front_time=12.0), view(2, front_time=11.0)]
    assert chosen(MinLatency(), ready) == "o2"
    assert chosen(MinLatency(), [*ready, view(0, is_source=True, last_run=10.0)]) == "o0"
    assert chosen(MinLatency(), [*ready, view(0, is_source=True, last_run=11.5)]) == "o2"


def test_max_running_time_is_the_shortest_of_reading_and_writing() -> None:
    # Reads 100 rows at 50 a second for 2 s; writes into room for 30 at 10 a second for 3 s.
    reader = view(1, queued=(100,), read_rates=(50.0,), downstream_room=(30,), write_rates=(10.0,))
    # Two ports: 4 s and 1 s of reading.
    join = view(2, queued=(40, 10), read_rates=(10.0, 10.0))
    # Plenty to read, but the queue below is nearly full: 1.5 s.
    blocked = view(3, queued=(900,), read_rates=(1.0,), downstream_room=(3,), write_rates=(2.0,))
    assert [v.running_time for v in (reader, join, blocked)] == [2.0, 1.0, 1.5]
    assert chosen(MaxRunningTime(), [reader, join, blocked]) == "o1"


def test_max_running_time_runs_what_was_never_measured() -> None:
    measured = view(1, queued=(100,), read_rates=(1.0,))
    assert chosen(MaxRunningTime(), [measured, view(2, queued=(1,), read_rates=(0.0,))]) == "o2"


def test_qst_thresholds_follow_equation_1() -> None:
    # Selectivities 0.5, 4, 0.25 give cs = 0.5, 2, 0.5: of C = 300 rows, 50, 200 and 50.
    policy = QueueSizeThrottling(capacity=300.0)
    chain = [view(0, outflow_share=0.5 / 3), view(1, outflow_share=2.0 / 3), view(2, outflow_share=0.5 / 3)]
    assert [policy.threshold(operator) for operator in chain] == pytest.approx([50, 200, 50])


def test_qst_takes_the_earliest_operator_below_its_threshold() -> None:
    policy = QueueSizeThrottling(capacity=300.0)
    first = view(0, outflow_share=0.5 / 3, downstream_queued=(49,))
    second = view(1, outflow_share=2.0 / 3, downstream_queued=(10,))
    sink = view(2, outflow_share=0.5 / 3)
    assert chosen(policy, [sink, second, first]) == "o0"
    full = view(0, outflow_share=0.5 / 3, downstream_queued=(51,))
    assert chosen(policy, [sink, second, full]) == "o1"
    fan_out = view(0, outflow_share=0.5 / 3, downstream_queued=(0, 60))  # the fullest port below counts
    assert chosen(policy, [fan_out, sink]) == "o2"


def test_qst_runs_the_least_piled_up_when_all_are_above() -> None:
    policy = QueueSizeThrottling(capacity=100.0)
    twice = view(0, outflow_share=0.5, downstream_queued=(100,))
    thrice = view(1, outflow_share=0.5, downstream_queued=(150,))
    assert chosen(policy, [thrice, twice]) == "o0"


def test_lp_takes_the_latest_operator() -> None:
    ready = [view(1, queued=(900,)), view(3, queued=(1,)), view(2, queued=(5,))]
    assert chosen(LastInPipeline(), ready) == "o3"


def test_et_is_equation_2() -> None:
    # 100 rows of 2 ms with no worker: 0.2 s; 300 rows of 1 ms with one worker already: 0.15 s.
    alone = view(1, queued=(100,), cost=0.002)
    helped = view(2, queued=(200, 100), cost=0.001, workers=1)
    assert [priority(alone), priority(helped)] == pytest.approx([0.2, 0.15])
    assert chosen(EstimatedTime(), [helped, alone]) == "o1"
    full = view(3, queued=(9_000,), cost=1.0, workers=1, permits=1)
    assert priority(full) == 0.0
    assert chosen(EstimatedTime(), [full, alone]) == "o1"


def test_et_runs_an_operator_without_a_cost_first() -> None:
    assert chosen(EstimatedTime(), [view(1, queued=(9_000,), cost=1.0), view(2, queued=(1,))]) == "o2"


def test_ct_is_equation_3_with_the_selectivity_before_the_operator() -> None:
    # Chain with selectivities 0.5 and 4; one row of input is 1 row at the first and 0.5 at the second.
    # The first has had 0.3 s and has one worker for a slice of 0.1 s, at 1 ms a row: 400 rows of input.
    first = view(0, cost=0.001, inflow=1.0, window_time=0.3, workers=1)
    # The second has had 0.3 s at 2 ms a row: 150 of its rows, which is 300 rows of input. With its own
    # selectivity counted (cs_2 = 2) it would be 75, and with none of it 150.
    second = view(1, cost=0.002, inflow=0.5, window_time=0.3)
    assert normalized_rows(first, 0.1) == pytest.approx(400.0)
    assert normalized_rows(second, 0.1) == pytest.approx(300.0)
    at = moment(time_slice=0.1)
    assert chosen(CurrentThroughput(), [first, second], at) == "o1"
    # A third, behind selectivity 4, has had 0.25 s at 0.5 ms a row: 500 of its rows are 250 of input.
    third = view(2, cost=0.0005, inflow=2.0, window_time=0.25)
    assert normalized_rows(third, 0.1) == pytest.approx(250.0)
    assert chosen(CurrentThroughput(), [first, second, third], at) == "o2"


def test_ct_runs_an_operator_without_a_cost_first() -> None:
    ready = [view(0, cost=0.001, window_time=0.1), view(1)]
    assert chosen(CurrentThroughput(), ready) == "o1"


def test_virtual_time_takes_the_earliest_batch_and_of_equals_the_later_operator() -> None:
    ready = [view(0, front_number=8, is_source=True), view(1, front_number=7), view(2, front_number=7)]
    assert chosen(VirtualTime(), ready) == "o2"
    assert chosen(VirtualTime(), [*ready, view(3, front_number=6)]) == "o3"


def test_an_unknown_policy_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match="least-recent, random"):
        by_name("fastest")


class LeastWaiting:
    """A user's own policy: nothing to inherit from, nothing to register."""

    def choose(self, ready: Sequence[OperatorView], moment: Moment) -> int:
        return min(range(len(ready)), key=lambda index: ready[index].rows_waiting)


def test_a_user_can_write_one() -> None:
    policy: Policy = LeastWaiting()
    assert chosen(policy, [view(0, queued=(3,)), view(1, queued=(2,))]) == "o1"


views = st.builds(
    Snapshot,
    name=st.just("o"),
    order=st.integers(0, 9),
    is_source=st.booleans(),
    permits=st.none() | st.integers(1, 4),
    workers=st.integers(0, 4),
    queued=st.tuples(st.integers(0, 100), st.integers(0, 100)),
    front_time=st.none() | st.floats(0, 100),
    front_number=st.none() | st.integers(0, 100),
    downstream_queued=st.tuples(st.integers(0, 100)),
    downstream_room=st.tuples(st.integers(0, 100)),
    last_run=st.floats(0, 100),
    read_rates=st.tuples(st.floats(0, 100), st.floats(0, 100)),
    write_rates=st.tuples(st.floats(0, 100)),
    cost=st.none() | st.floats(0, 1),
    window_time=st.floats(0, 100),
    inflow=st.floats(0, 10),
    outflow_share=st.floats(0, 1),
)


@given(ready=st.lists(views, min_size=1, max_size=6), seed=st.integers(0, 100))
def test_whatever_was_measured_one_of_the_ready_is_chosen_and_the_choice_repeats(
    ready: list[OperatorView], seed: int
) -> None:
    for name in POLICIES:
        choice = by_name(name).choose(ready, moment(seed))
        assert 0 <= choice < len(ready), name
        assert by_name(name).choose(ready, moment(seed)) == choice, name


def test_a_decision_works_out_only_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many operators few have run since the last decision: asking the others again would cost too much."""
    worked_out: list[float] = []

    def counting(*spans: Sequence[float]) -> float:
        worked_out.append(0.0)
        return running_time(*spans)  # type: ignore[arg-type]

    monkeypatch.setattr(measured, "running_time", counting)
    clock = [0.0]
    flow = MeasuredFlow(lambda: clock[0])
    operators = [flow.add(str(n), inputs=1, capacity=16, permits=1) for n in range(100)]
    for above, below in pairwise(operators):
        above.connect(below.ports)
    for each in operators:
        each.ports[0].came(0, 10, 0.0)

    def decide() -> int:
        worked_out.clear()
        MaxRunningTime().choose(operators, Moment(flow.look(), 0, Random(0)))
        return len(worked_out)

    assert decide() == 100
    assert decide() == 0
    operators[50].ports[0].went(0, 10)
    operators[50].add(batches=1, rows_in=10, rows_out=10, wall=0.1)
    operators[51].ports[0].came(0, 10, 0.0)
    assert decide() == 3  # the operator, the one above it, for which there is more room, and the one below
    clock[0] = 1.0
    assert decide() == 100  # another window
