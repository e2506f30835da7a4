"""Check bottleneck detection, replicas, the black list and scaling back in."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.elastic import Action, OperatorStatistics, Replicas, ReplicaStatistics
from penstock.elastic.replicas import PARTITIONED, STATEFUL, ReplicaState

CONTROLLER = Replicas(high=8)


def operator(name: str, blocked: tuple[float, ...], below: float, throughput: float = 100.0) -> OperatorStatistics:
    return OperatorStatistics(name, blocked, below, throughput)


def step(state: ReplicaState, *operators: OperatorStatistics) -> tuple[ReplicaState, list[tuple[str, int, int]]]:
    state, actions = CONTROLLER.step(state, ReplicaStatistics(operators))
    return state, [(action.target, int(action.before or 0), int(action.after or 0)) for action in actions]


def test_a_congested_input_and_a_free_output_make_a_bottleneck() -> None:
    _, actions = CONTROLLER.step(CONTROLLER.start(), ReplicaStatistics((operator("slow", (0.3,), 0.0),)))
    why = "its input is full 30 % of the time and its output 0 %, with 1 % as the limit: a bottleneck"
    assert actions == (Action("replicas", "slow", 1, 2, why),)


def test_an_operator_held_back_from_below_is_not_a_bottleneck() -> None:
    _, actions = step(CONTROLLER.start(), operator("held", (0.9,), 0.5), operator("slow", (0.5,), 0.0))
    assert actions == [("slow", 1, 2)]


def test_the_threshold_is_inclusive_and_the_average_is_over_replicas() -> None:
    assert step(CONTROLLER.start(), operator("at", (0.01,), 0.0))[1] == [("at", 1, 2)]
    assert step(CONTROLLER.start(), operator("under", (0.018, 0.0), 0.0))[1] == []
    assert step(CONTROLLER.start(), operator("over", (0.02, 0.0), 0.0))[1] == [("over", 2, 3)]


def test_only_the_most_congested_of_several_grows() -> None:
    _, actions = step(CONTROLLER.start(), operator("a", (0.2,), 0.0), operator("b", (0.4,), 0.0))
    assert actions == [("b", 1, 2)]


def test_stateful_and_many_port_operators_do_not_grow() -> None:
    one = operator("one", (0.5,), 0.0)
    for fixed in (replace(one, kind=STATEFUL), replace(one, inputs=2), replace(one, outputs=2)):
        assert step(CONTROLLER.start(), fixed)[1] == []


def test_a_partitioned_operator_grows_up_to_its_shards() -> None:
    two = replace(operator("keyed", (0.5, 0.5), 0.0), kind=PARTITIONED, shards=3)
    _, actions = CONTROLLER.step(CONTROLLER.start(), ReplicaStatistics((two,)))
    assert [(action.before, action.after) for action in actions] == [(2, 3)]
    assert "3 shards are spread over one replica more, state with them" in actions[0].why
    assert step(CONTROLLER.start(), replace(two, input_blocked=(0.5,) * 3))[1] == []


def test_a_replica_that_gains_nothing_is_taken_back_and_the_operator_black_listed() -> None:
    state, actions = step(CONTROLLER.start(), operator("io", (0.5,), 0.0, 100.0))
    assert actions == [("io", 1, 2)]
    state, actions = step(state, operator("io", (0.5, 0.5), 0.0, 102.0))
    assert actions == [("io", 2, 1)]
    for _ in range(10):
        state, actions = step(state, operator("io", (0.5,), 0.0, 100.0))
        assert actions == []
    # Another load: what was learned does not hold for it.
    _, actions = step(state, operator("io", (0.5,), 0.0, 140.0))
    assert actions == [("io", 1, 2)]


def test_a_replica_is_kept_when_the_bottleneck_moves_on() -> None:
    """Of two equal operators in a row the first shows its gain only once the second has grown (figure 10)."""
    state, actions = step(CONTROLLER.start(), operator("a", (0.5,), 0.0), operator("b", (0.0,), 0.0))
    assert actions == [("a", 1, 2)]
    state, actions = step(state, operator("a", (0.5, 0.5), 0.5, 101.0), operator("b", (0.5,), 0.0, 101.0))
    assert actions == [("b", 1, 2)]
    _, actions = step(state, operator("a", (0.2, 0.2), 0.0, 200.0), operator("b", (0.0, 0.0), 0.0, 200.0))
    assert actions == [("a", 2, 3)]


def test_an_idle_replica_is_given_back_and_returns_if_it_was_needed() -> None:
    idle = OperatorStatistics("op", (0.0, 0.0, 0.0), 0.0, 100.0, busy=0.5)
    state, actions = step(CONTROLLER.start(), idle)
    assert actions == [("op", 3, 2)]
    state, actions = step(state, replace(idle, input_blocked=(0.2, 0.2), busy=1.0))
    assert actions == [("op", 2, 3)]
    for _ in range(10):
        state, actions = step(state, idle)
        assert actions == []


def test_a_busy_replica_is_not_given_back() -> None:
    # Two of three would be 0.62 * 3 / 2 = 93 % busy.
    assert step(CONTROLLER.start(), OperatorStatistics("op", (0.0,) * 3, 0.0, 100.0, busy=0.62))[1] == []


def test_nothing_is_done_or_judged_while_threads_are_short() -> None:
    slow = operator("slow", (0.3,), 0.0)
    state, actions = CONTROLLER.step(CONTROLLER.start(), ReplicaStatistics((slow,), short_of_threads=True))
    assert actions == ()
    state, actions = CONTROLLER.step(state, ReplicaStatistics((slow,)))
    assert [action.after for action in actions] == [2]
    # The second replica has no thread yet: that it gained nothing says nothing.
    grown = operator("slow", (0.3, 0.3), 0.0)
    state, actions = CONTROLLER.step(state, ReplicaStatistics((grown,), short_of_threads=True))
    assert actions == ()
    _, actions = CONTROLLER.step(state, ReplicaStatistics((replace(grown, throughput=190.0),)))
    assert [action.after for action in actions] == [3]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(5, 200), min_size=1, max_size=4), st.integers(1, 8), st.floats(20, 2000))
def test_a_chain_settles_near_its_best(rates: list[float], high: int, offered: float) -> None:
    """Drive a chain of operators with these rates a replica; the slowest bounds it.

    It settles within as many steps as there are replicas to add, and one to take back for each operator.
    """
    controller = Replicas(high=high)
    state, replicas = controller.start(), [1] * len(rates)
    best = min(offered, min(rates) * high)
    quiet = 0
    for _ in range(2 * len(rates) * high + 20):
        capacity = [rate * count for rate, count in zip(rates, replicas, strict=True)]
        through = min(offered, *capacity)
        slowest = capacity.index(min(capacity))
        operators = []
        for i, count in enumerate(replicas):
            # A full queue before the slowest operator, and by back-pressure before all upstream of it.
            full = 1.0 if through < offered and i <= slowest else 0.0
            below = 1.0 if through < offered and i < slowest else 0.0
            busy = min(1.0, through / capacity[i])
            operators.append(OperatorStatistics(f"op{i}", (full,) * count, below, through, busy))
        state, actions = controller.step(state, ReplicaStatistics(tuple(operators)))
        for action in actions:
            assert 1 <= int(action.after or 0) <= high
            replicas[int(action.target[2:])] = int(action.after or 0)
        quiet = 0 if actions else quiet + 1
    assert quiet >= 10
    assert min(offered, *(rate * count for rate, count in zip(rates, replicas, strict=True))) >= 0.95 * best


fractions = st.floats(0, 1)
operators = st.builds(
    OperatorStatistics,
    name=st.sampled_from(["a", "b", "c"]),
    input_blocked=st.lists(fractions, min_size=1, max_size=6).map(tuple),
    output_blocked=fractions,
    throughput=st.floats(0, 1e6),
    busy=fractions,
    kind=st.sampled_from(["stateless", "partitioned", "stateful"]),
    shards=st.integers(1, 6),
    inputs=st.integers(1, 2),
    outputs=st.integers(1, 2),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(operators, max_size=3, unique_by=lambda each: each.name).map(tuple), max_size=40))
def test_any_statistics_change_a_replica_at_a_time_within_bounds(
    log: list[tuple[OperatorStatistics, ...]],
) -> None:
    controller = Replicas(high=6)
    state = controller.start()
    for seen in log:
        state, actions = controller.step(state, ReplicaStatistics(seen))
        now = {each.name: each.replicas for each in seen}
        assert len({action.target for action in actions}) == len(actions)
        for action in actions:
            assert action.before == now[action.target]
            assert abs(int(action.after or 0) - int(action.before)) == 1
            assert 1 <= int(action.after or 0) <= 6
