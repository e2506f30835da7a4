"""Check the controllers in the loop: the papers' adaptation experiments on small machines."""

from dataclasses import replace

import pytest

from penstock.elastic.batch_size import BatchSize
from penstock.elastic.climb import WaitingConcurrency
from penstock.elastic.decisions import replay
from penstock.elastic.pilot import Period
from penstock.elastic.rebinding import Rebinding
from penstock.elastic.replicas import Replicas
from penstock.elastic.thread_level import ThreadLevel
from penstock.elastic.utilization_pool import UtilizationPool
from penstock.lab.baselines import GreedyRebinding
from penstock.lab.sim.graphs import Graph, Operator, data_parallel, pipeline
from penstock.lab.sim.machine import CSTREAM_HOST, Machine, Synchronization
from penstock.lab.sim.pe import PE
from penstock.lab.sim.steering import (
    BoundLever,
    PermitsLever,
    batch_lever,
    pool_lever,
    static_throughput,
    steer,
    thread_lever,
    waiting_lever,
)

FREE = Synchronization(claim=0.0, tuple_passing=0.0, lock=0.0, wake=0.0)
IDEAL = Machine("ideal", cores=16, physical=16, synchronization=FREE)


def find_workers(period: float, noise: float, seed: int) -> int:
    """Return the number of workers that a pipeline of six operators ends with, which must not change any more."""
    pe = PE(pipeline(6, 0.001), IDEAL, level=1, rows=10, filled=0.5)
    journey = steer(pe, [thread_lever(pe, ThreadLevel(high=16))], period=period, periods=100, noise=noise, seed=seed)
    assert len(set(journey.levels[-20:])) == 1
    return journey.levels[-1]


def test_the_thread_level_finds_the_workers_that_a_pipeline_can_use() -> None:
    assert find_workers(period=2.0, noise=0.0, seed=0) == 6
    # Six operators use six workers. More do no harm here, so noise may leave some.
    ends = sorted(find_workers(period=0.5, noise=0.05, seed=seed) for seed in range(20))
    assert ends[0] == 6
    assert ends[len(ends) // 2] <= 8


def test_the_thread_level_backs_off_from_a_contended_lock() -> None:
    machine = replace(IDEAL, synchronization=replace(FREE, lock=0.0002, lock_waiter=0.2))
    pe = PE(data_parallel(64, 0.001), machine, level=1, rows=4, filled=1 / 16)
    # The guard is left out: the threads that spin make the machine look busy before the best level is known.
    controller = ThreadLevel(high=16, cpu_limit=1.0)
    journey = steer(pe, [thread_lever(pe, controller)], period=0.5, periods=60)
    best = {level: PE(data_parallel(64, 0.001), machine, level=level, rows=4, filled=1 / 16) for level in range(1, 17)}
    rates = {level: static_throughput(each, period=0.5, warmup=2, periods=4) for level, each in best.items()}
    assert rates[journey.levels[-1]] >= 0.95 * max(rates.values())
    assert max(journey.levels) > journey.levels[-1]


def test_replicas_and_pool_resolve_a_bottleneck_as_in_figure_9() -> None:
    """One busy operator of 80 us between a cheap source and sink ends with several replicas and threads."""
    operators = (
        Operator(16e-6, (1,), source=True),
        Operator(80e-6, (2,), permits=None),
        Operator(10e-6),
    )
    pe = PE(Graph("one busy", operators), CSTREAM_HOST, level=1, rows=8, capacity=32)
    pe.set_permits(1, 1)
    levers = [pool_lever(pe, UtilizationPool(high=12)), PermitsLever(pe, Replicas(high=12))]
    steer(pe, levers, period=0.1, periods=45)
    # The source makes a row every 16 us: the busy operator needs five workers for that.
    assert pe.permits[1] in (5, 6)
    assert pe.level >= 5
    before = pe.processed[1]
    pe.run(1.0)
    assert (pe.processed[1] - before) / 1.0 >= 0.9 / 16e-6


def test_two_busy_operators_grow_in_turn_as_in_figure_10() -> None:
    operators = (
        Operator(20e-6, (1,), source=True),
        Operator(60e-6, (2,), permits=None),
        Operator(60e-6, (3,), permits=None),
        Operator(5e-6),
    )
    pe = PE(Graph("two busy", operators), CSTREAM_HOST, level=12, rows=8, capacity=32)
    for operator in (1, 2):
        pe.set_permits(operator, 1)
    journey = steer(pe, [PermitsLever(pe, Replicas(high=12))], period=0.5, periods=30)
    assert pe.permits[1] in (3, 4, 5)
    assert pe.permits[2] in (3, 4, 5)
    grown = [line.target for line in journey.log if line.what == "replicas"]
    assert {"1", "2"} <= set(grown[:3])
    before = pe.processed[2]
    pe.run(1.0)
    assert (pe.processed[2] - before) / 1.0 >= 0.9 / 20e-6


def skewed_chain() -> Graph:
    """Return sixteen queries of one operator; those that round robin puts on one worker are the dear ones."""
    operators = [Operator(0.0, tuple(range(1, 17)), source=True, rate=300.0)]
    operators += [Operator(0.002 if i % 4 == 0 else 0.0002) for i in range(16)]
    return Graph("queries", tuple(operators))


def run_bound(controller: object) -> tuple[PE, int]:
    pe = PE(skewed_chain(), IDEAL, level=4, rows=4, capacity=4096, binding=[0, *(i % 4 for i in range(16))])
    levers = [] if controller is None else [BoundLever(pe, controller)]  # type: ignore[arg-type]
    journey = steer(pe, levers, period=0.5, periods=20)
    return pe, sum(line.what == "binding" for line in journey.log)


def test_rebinding_keeps_up_where_round_robin_does_not_and_moves_less_than_greedy() -> None:
    """On one worker the dear operators are 2.4 workers' worth; spread out, four workers have 0.8 each."""
    still, _ = run_bound(None)
    lighter, few = run_bound(Rebinding())
    _, many = run_bound(GreedyRebinding())

    def backlog(pe: PE) -> float:
        return sum(batch.rows for queue in pe.ports.queues for batch in queue)

    assert backlog(still) > 10 * backlog(lighter)
    assert few < many
    assert few <= 12


def test_waiting_concurrency_finds_the_rows_in_flight() -> None:
    graph = Graph("lookup", (Operator(0.0, (1,), source=True), Operator(1e-5, wait=0.002)))
    pe = PE(graph, IDEAL, level=1, rows=256)
    steer(pe, [waiting_lever(pe, WaitingConcurrency(high=1024), 1)], period=5.0, periods=60)
    before = pe.processed[1]
    pe.run(20.0)
    best = PE(graph, IDEAL, level=1, rows=256)
    best.set_in_flight(1, 256)
    best.run(20.0)
    assert pe.processed[1] - before >= 0.95 * best.processed[1]


def find_rows(rate: float, initial: int) -> PE:
    """Return a PE after its batch size was steered: 0.1 ms a row, and 5 ms a batch."""
    machine = replace(IDEAL, synchronization=replace(FREE, claim=0.005))
    graph = Graph("batches", (Operator(0.0, (1,), source=True, rate=rate), Operator(0.0001)))
    # Without a time slice a worker claims one batch at a time, so that each pays for its claim.
    pe = PE(graph, machine, level=1, rows=initial, time_slice=0.0)
    journey = steer(pe, [batch_lever(pe, BatchSize(initial=initial))], period=1.0, periods=40)
    assert len(set(journey.rows[-20:])) == 1
    assert replay(journey.log).same
    return pe


def test_batches_grow_where_a_backlog_builds_up_and_shrink_where_none_does() -> None:
    # Batches of 32 give 32 / 8.2 ms = 3,900 rows a second, and of 64 64 / 11.4 ms = 5,600. A full queue is worked off
    # only slowly with these, which may look like falling behind once more.
    behind = find_rows(rate=5000.0, initial=8)
    assert behind.rows in (64, 128)
    before = behind.processed[1]
    behind.run(10.0)
    assert behind.processed[1] - before == pytest.approx(50_000, rel=0.02)
    # Batches of 8 keep a worker 36 % busy at 500 rows a second, of 4 68 %, more than is given up for latency.
    assert find_rows(rate=500.0, initial=1024).rows == 8


def test_a_journey_replays_from_its_log() -> None:
    pe = PE(pipeline(6, 0.001), IDEAL, level=1, rows=10, filled=0.5)
    levers = [thread_lever(pe, ThreadLevel(high=16))]
    journey = steer(pe, levers, period=0.5, periods=40, noise=0.05, seed=5)
    report = replay(journey.log)
    assert report.same
    assert report.steps == 40


def test_what_levers_read_by_hand() -> None:
    pe = PE(pipeline(2, 0.001), IDEAL, level=2, rows=10, filled=0.5)
    levers = thread_lever(pe, ThreadLevel()), pool_lever(pe, UtilizationPool()), PermitsLever(pe, Replicas())
    before = pe.statistics()
    pe.run(1.0)
    period = Period(before, pe.statistics())
    assert period.seconds == 1.0
    threads, pool, replicas = (lever.read(period) for lever in levers)
    assert threads is not None
    assert pool is not None
    # Two operators at 1,000 rows a second each, and the sink at as much.
    assert threads.throughput == pytest.approx(3000, rel=0.05)
    assert threads.cpu_usage == pytest.approx(2 / 16, rel=0.05)
    assert pool.utilization == pytest.approx((1.0, 1.0), rel=0.05)
    assert [operator.kind for operator in replicas.operators] == ["stateful"] * 3
