"""Check the simulated PE: times by hand, nothing lost, order kept, back-pressure, repeatability."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lab.sim.events import Events
from penstock.lab.sim.graphs import Graph, Operator, data_parallel, mixed, pipeline, reverse_tree, tree, with_rate
from penstock.lab.sim.machine import Machine, Synchronization
from penstock.lab.sim.pe import PE
from penstock.lab.sim.ports import Batch, Ports

FREE = Synchronization(claim=0.0, tuple_passing=0.0, lock=0.0, wake=0.0)
IDEAL = Machine("ideal", cores=64, physical=64, synchronization=FREE)


def in_all(pe: PE) -> float:
    """Return the rows that are anywhere: in queues, in claims, or out."""
    return sum(batch.rows for queue in pe.ports.queues for batch in queue)


def test_a_queue_counts_as_full_while_somebody_waits_for_room_in_it() -> None:
    events = Events()
    ports = Ports(pipeline(2, 0.001), 2, events)
    for _ in range(2):
        ports.reserve(2)
    events.run(until=1.0)
    # All room is kept, and nobody minds.
    assert ports.full_seconds(2) == 0.0
    ports.block(1, on=2)
    events.run(until=4.0)
    assert ports.full_seconds(2) == 3.0
    ports.put(2, Batch(1.0, 0, 0.0))
    ports.take(2, 1)
    assert ports.unblock(2) == [1]
    events.run(until=9.0)
    assert ports.full_seconds(2) == 3.0


def test_one_worker_takes_the_sum_of_the_costs() -> None:
    # Three operators of 1 ms and batches of 10 rows: 30 ms for each batch.
    pe = PE(pipeline(3, 0.001), IDEAL, level=1, rows=10)
    pe.run(3.0)
    assert pe.processed[4] == pytest.approx(3.0 / 0.03 * 10, rel=0.2)
    assert sum(pe.worker_busy) == pytest.approx(3.0, rel=0.02)


def test_a_pipeline_runs_as_fast_as_it_has_workers() -> None:
    def rate(level: int) -> float:
        pe = PE(pipeline(8, 0.001), IDEAL, level=level, rows=10, filled=0.5)
        pe.run(5.0)
        return sum(pe.processed[1:9]) / 5.0

    assert rate(1) == pytest.approx(1000, rel=0.02)
    assert rate(4) == pytest.approx(4000, rel=0.05)
    assert rate(8) == pytest.approx(8000, rel=0.1)
    # There are eight operators, and each is run by one worker at a time.
    assert rate(16) == pytest.approx(8000, rel=0.1)


def test_synchronization_costs_what_the_machine_says() -> None:
    costs = Synchronization(claim=0.001, tuple_passing=0.0001, lock=0.0, wake=0.0)
    machine = replace(IDEAL, synchronization=costs)
    # One operator, one batch a claim: 1 ms of claim, and 10 rows at 0.1 ms + 0.9 ms.
    graph = Graph("one", (Operator(0.0, (1,), source=True), Operator(0.0009)))
    pe = PE(graph, machine, level=1, rows=10, capacity=1)
    pe.run(11.0)
    assert pe.processed[1] == pytest.approx(10 * 11.0 / 0.011, rel=0.01)


def test_sharing_makes_it_dearer() -> None:
    shared = replace(IDEAL, synchronization=replace(FREE, passing_sharing=0.0005))
    pe = PE(pipeline(8, 0.001), shared, level=2, rows=10, filled=0.5)
    pe.run(5.0)
    # Two workers, and each row costs 1.5 ms: the other one runs too.
    assert sum(pe.processed[1:9]) / 5.0 == pytest.approx(2000 / 1.5, rel=0.05)


def test_a_lock_lets_one_pass_at_a_time() -> None:
    locked = replace(IDEAL, synchronization=replace(FREE, lock=0.001))
    pe = PE(data_parallel(32, 0.001), locked, level=32, rows=4, filled=1 / 16)
    pe.run(5.0)
    # However many workers: 1 ms a row under the lock of the sink.
    assert pe.processed[33] / 5.0 == pytest.approx(1000, rel=0.05)
    waiting = replace(IDEAL, synchronization=replace(FREE, lock=0.001, lock_waiter=0.1))
    slower = PE(data_parallel(32, 0.001), waiting, level=32, rows=4, filled=1 / 16)
    slower.run(5.0)
    assert slower.processed[33] < 0.5 * pe.processed[33]


def test_waiting_takes_no_core() -> None:
    # 1 ms of computing and 9 ms of waiting a row; one row in flight keeps a worker for 10 ms.
    graph = Graph("lookup", (Operator(0.0, (1,), source=True), Operator(0.001, wait=0.009)))
    pe = PE(graph, IDEAL, level=1, rows=10)
    pe.run(10.0)
    assert pe.processed[1] == pytest.approx(1000, rel=0.02)
    assert sum(pe.worker_busy) == pytest.approx(1.0, rel=0.02)
    more = PE(graph, IDEAL, level=1, rows=10)
    more.set_in_flight(1, 5)
    more.run(10.0)
    # Ten rows wait in two rounds: 10 ms of computing and 18 ms of waiting for each batch.
    assert more.processed[1] == pytest.approx(10 * 10.0 / 0.028, rel=0.02)


def test_back_pressure_fills_the_queues_above_the_slowest_and_only_those() -> None:
    operators = (
        Operator(0.0, (1,), source=True),
        Operator(0.0001, (2,)),
        Operator(0.01, (3,)),
        Operator(0.0001),
    )
    pe = PE(Graph("slow", operators), IDEAL, level=3, rows=1, capacity=4)
    pe.run(10.0)
    full = [pe.ports.full_seconds(i) / 10.0 for i in range(4)]
    assert full[1] > 0.9
    assert full[2] > 0.9
    assert full[3] < 0.05
    assert pe.processed[3] == pytest.approx(1000, rel=0.02)


def test_selectivity_makes_rows_fewer() -> None:
    graph = Graph("half", (Operator(0.0, (1,), source=True), Operator(0.001, (2,), selectivity=0.5), Operator(0.001)))
    pe = PE(graph, IDEAL, level=2, rows=10)
    pe.run(10.0)
    assert pe.processed[2] == pytest.approx(pe.processed[1] / 2, rel=0.05)


def test_a_source_with_a_rate_makes_no_more() -> None:
    pe = PE(with_rate(pipeline(1, 1e-6), 500.0), IDEAL, level=1, rows=10)
    pe.run(10.0)
    assert pe.processed[1] == pytest.approx(5000, rel=0.02)


def test_fewer_workers_leave_and_come_back() -> None:
    pe = PE(pipeline(8, 0.001), IDEAL, level=8, rows=10, filled=0.5)
    rates = []
    for level in (8, 2, 4):
        pe.set_workers(level)
        pe.run(1.0)
        before = sum(pe.processed)
        pe.run(4.0)
        rates.append((sum(pe.processed) - before) / 4.0)
    # The sink costs nothing and runs in passing: 9 rows for 8 ms of work.
    assert rates[1] == pytest.approx(2000 * 9 / 8, rel=0.05)
    assert rates[2] == pytest.approx(4000 * 9 / 8, rel=0.07)


def test_bound_operators_run_on_their_own_worker_and_move_when_told() -> None:
    pe = PE(pipeline(2, 0.001), IDEAL, level=2, rows=10, binding=[0, 0, 0, 0])
    pe.run(5.0)
    assert pe.worker_busy[1] == 0.0
    done = sum(pe.processed[1:3])
    pe.bind(2, 1)
    pe.run(5.0)
    assert sum(pe.processed[1:3]) - done == pytest.approx(2 * done, rel=0.05)


class Chance:
    """Choose at random, and remember what there was to choose from."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.choices: list[int] = []

    def choose(self, pe: PE, worker: int, candidates: Sequence[int]) -> int:
        self.choices.append(len(candidates))
        return self.random.choice(candidates)


def born_at_the_sink(pe: PE) -> list[float]:
    return [now - latency for now, latency in pe.latencies]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 6),
    st.integers(1, 8),
    st.integers(0, 1000),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 8)), max_size=6),
)
def test_order_is_kept_and_nothing_lost_under_any_schedule(
    level: int, length: int, permits: int, seed: int, changes: list[tuple[int, int]]
) -> None:
    """Several workers an operator, chosen at random, with levels and permits that change while it runs."""
    chance = random.Random(seed)
    operators = [Operator(0.0, (1,), source=True)]
    for i in range(1, length + 1):
        kind = chance.choice([1, permits, None])
        operators.append(Operator(chance.uniform(1e-5, 1e-3), (i + 1,), permits=kind))
    graph = with_rate(Graph("chain", (*operators, Operator(0.0))), 20_000.0)
    pe = PE(graph, IDEAL, level=level, rows=10, capacity=4, chooser=Chance(seed))
    made = 0.0
    for new_level, new_permits in [(level, permits), *changes]:
        pe.set_workers(new_level)
        for i in range(1, length + 1):
            if operators[i].permits != 1:
                pe.set_permits(i, new_permits)
        pe.run(0.3)
        assert all(a <= b for a, b in pairwise(born_at_the_sink(pe)))
        assert all(len(queue) <= 4 for queue in pe.ports.queues)
        made = pe.made_rows
    # Everything that was made is in a queue, in a worker's hands, in a reorder buffer, or out.
    assert pe.processed[length + 1] + in_all(pe) <= made
    for _ in range(20):  # one worker that chooses by chance may take its time
        if pe.processed[length + 1] == 0:
            pe.run(0.3)
    assert pe.processed[length + 1] > 0


@pytest.mark.parametrize("graph", [tree(3, 2, 1e-4), reverse_tree(3, 2, 1e-4), mixed(3, 4, 1e-4)])
def test_every_shape_flows_at_its_best_rate(graph: Graph) -> None:
    """With a worker for each operator the busiest operator decides: its share of the rows times its cost."""
    pe = PE(graph, IDEAL, level=len(graph.operators), rows=10, filled=1 / 16)
    pe.run(1.0)
    before = list(pe.processed)
    pe.run(4.0)
    rates = [(after - old) / 4.0 for after, old in zip(pe.processed, before, strict=True)]
    busiest = max(rate * operator.cost for rate, operator in zip(rates, graph.operators, strict=True))
    assert busiest == pytest.approx(1.0, rel=0.1)


def test_a_run_repeats_exactly() -> None:
    def run() -> tuple[list[float], list[tuple[float, float]]]:
        pe = PE(mixed(3, 4, 1e-4), IDEAL, level=5, rows=10)
        pe.run(1.0)
        return pe.processed, pe.latencies

    assert run() == run()
