"""Check the simulated cluster: what it can process, what a reassignment costs, how the approaches rank."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.elastic.decisions import replay
from penstock.lab.sim.cluster import Cluster, ClusterSettings, ReassignmentCosts
from penstock.lab.sim.elasticity import ResourceCentricApproach, StaticApproach, run_approach
from penstock.lab.sim.executor_centric import ExecutorCentricApproach
from penstock.lab.sim.keys import KeySpace, ShardPopularity

SMALL = ClusterSettings(nodes=4, cores_per_node=4, rate=20_000.0, upstream=16)
KEYS = KeySpace(keys=2_000, skew=0.75, shards=512)


def small(**changes: float) -> Cluster:
    """Make a cluster with one executor a core and the shards in turn on them."""
    settings = replace(SMALL, **changes)  # type: ignore[arg-type]
    popularity = ShardPopularity(KEYS, seed=3)
    approach = StaticApproach()
    cluster = Cluster(settings, popularity, approach.homes(settings), seed=4)
    approach.start(cluster)
    return cluster


def test_shares_sum_to_one_and_a_shuffle_changes_them() -> None:
    popularity = ShardPopularity(KEYS, seed=1)
    before = popularity.shares
    assert before.sum() == pytest.approx(1.0)
    popularity.shuffle()
    assert popularity.shares.sum() == pytest.approx(1.0)
    assert not np.allclose(before, popularity.shares)


def test_what_comes_in_is_processed_or_waits() -> None:
    cluster = small()
    cluster.run(5.0)
    assert cluster.arrived == pytest.approx(cluster.processed + cluster.queued.sum())
    assert cluster.queued.min() >= 0


def test_the_fullest_task_decides() -> None:
    """Back-pressure: the task with the largest share is always busy, and holds all others to its pace."""
    cluster = small()
    cluster.run(2.0)
    before = cluster.processed
    cluster.run(20.0)
    shares = np.bincount(cluster.task_of, weights=cluster.popularity.shares)
    assert (cluster.processed - before) / 20.0 == pytest.approx(1000 / shares.max(), rel=0.05)


def test_below_saturation_all_is_processed() -> None:
    cluster = small(rate=4_000.0)
    cluster.run(20.0)
    assert cluster.processed / 20.0 == pytest.approx(4_000, rel=0.02)


def test_tuples_wait_at_their_source_while_it_is_stopped() -> None:
    running, stopped = small(rate=4_000.0), small(rate=4_000.0)
    running.run(10.0)
    stopped.run(2.0)
    stopped.stopped = True
    stopped.run(2.0)
    stopped.stopped = False
    stopped.run(6.0)
    assert stopped.processed == pytest.approx(running.processed, rel=0.001)
    # Those of two seconds, a fifth of all, wait for half of that, and then for each other.
    assert stopped.waited / stopped.arrived > running.waited / running.arrived + 0.2


def test_synchronization_costs_by_hand() -> None:
    costs = ReassignmentCosts()
    assert costs.global_sync(1) == pytest.approx(0.2)
    assert costs.global_sync(256) == pytest.approx(2.0)
    assert costs.global_sync(128) == pytest.approx(0.002 * (100 + 127 / 255 * 900))


def test_state_crosses_links_between_nodes_only() -> None:
    cluster = small()
    # Executor and task i are on node i modulo 4: 0 and 4 share a node.
    shard = int(np.flatnonzero(cluster.task_of == 0)[0])
    assert cluster.move(shard, 4) == 0.0
    assert cluster.move(shard, 1) == 32 * 1024
    assert cluster.state_moved == 32 * 1024


def test_a_task_with_shards_cannot_stop() -> None:
    with pytest.raises(ValueError, match="task 0 still has shards"):
        small().stop_task(0)


def test_a_link_limits_remote_tasks() -> None:
    """Tuples of 1 MB for one remote task: 125 MB/s, there and back, is 62 a second."""
    settings = replace(SMALL, tuple_bytes=10**6)
    cluster = Cluster(settings, ShardPopularity(KEYS, 3), homes=[0], seed=4)
    task = cluster.start_task(executor=0, node=1)
    cluster.task_of[:] = task
    cluster.run(10.0)
    assert cluster.processed / 10.0 == pytest.approx(62.5, rel=0.05)
    assert cluster.remote_bytes == pytest.approx(125e6 * 10, rel=0.05)


def test_a_repartition_stops_the_operator_and_only_then() -> None:
    approach = ResourceCentricApproach()
    outcome, cluster = run_approach(
        approach, shuffles_per_minute=0, seconds=20.0, warmup=0.0, seed=1, settings=SMALL, space=KEYS
    )
    stops = {line.time for line in approach.log if line.what == "repartition"}
    assert stops
    sync = SMALL.costs.global_sync(SMALL.upstream)
    first = min(when for when in stops if when is not None)
    # In flight at most 128 tuples a task, an eighth of a second's work: nothing is left after that.
    silent = [rate for when, rate in outcome.series if first + 0.2 < when < first + sync]
    assert silent
    assert max(silent) < 0.05 * outcome.throughput
    assert not cluster.stopped or cluster.events.now - max(t for t in stops if t is not None) < sync + 1


def test_an_executor_reassigns_one_shard_at_a_time_and_never_stops() -> None:
    approach = ExecutorCentricApproach(executors=4)
    outcome, cluster = run_approach(
        approach, shuffles_per_minute=12, seconds=20.0, warmup=3.0, seed=1, settings=SMALL, space=KEYS
    )
    assert min(rate for _, rate in outcome.series) > 0.5 * outcome.throughput
    assert cluster.paused.sum() <= 4
    assert not cluster.stopped
    used = np.bincount([task.node for task in cluster.tasks.values()], minlength=4)
    assert used.max() <= SMALL.cores_per_node
    assert any(line.what == "table" for line in approach.log)
    assert any(line.what == "node_cores" for line in approach.log)


def test_shards_stay_with_their_executor() -> None:
    approach = ExecutorCentricApproach(executors=4)
    _, cluster = run_approach(
        approach, shuffles_per_minute=12, seconds=10.0, warmup=1.0, seed=1, settings=SMALL, space=KEYS
    )
    for shard, task in enumerate(cluster.task_of):
        assert cluster.tasks[int(task)].executor == shard % 4


def test_the_approaches_rank_as_in_figure_6() -> None:
    """Without shuffles both elastic ones beat the static one, with many only the executor-centric one."""

    def throughput(shuffles: float) -> dict[str, float]:
        approaches = (StaticApproach(), ResourceCentricApproach(), ExecutorCentricApproach(executors=4))
        return {
            approach.name: run_approach(
                approach,
                shuffles_per_minute=shuffles,
                seconds=30.0,
                warmup=5.0,
                seed=1,
                settings=replace(SMALL, upstream=256),
                space=KEYS,
            )[0].throughput
            for approach in approaches
        }

    calm, stormy = throughput(0), throughput(16)
    assert calm["resource_centric"] > 1.1 * calm["static"]
    assert calm["executor_centric"] > 1.1 * calm["static"]
    assert stormy["executor_centric"] > 1.1 * stormy["static"]
    assert stormy["resource_centric"] < stormy["static"]
    assert stormy["executor_centric"] > 0.85 * calm["executor_centric"]


def test_a_run_repeats_exactly_and_its_log_replays() -> None:
    def run() -> tuple[float, ExecutorCentricApproach]:
        approach = ExecutorCentricApproach(executors=4)
        outcome, _ = run_approach(
            approach, shuffles_per_minute=12, seconds=8.0, warmup=1.0, seed=9, settings=SMALL, space=KEYS
        )
        return outcome.throughput, approach

    (first, approach), (second, _) = run(), run()
    assert first == second
    report = replay(approach.log)
    assert report.same
    assert report.actions > 0


def test_the_papers_size() -> None:
    """32 nodes of 8 cores and 8,192 shards: a few virtual seconds of all three."""
    for approach in (StaticApproach(), ResourceCentricApproach(), ExecutorCentricApproach()):
        outcome, cluster = run_approach(approach, shuffles_per_minute=16, seconds=4.0, warmup=2.0, seed=1)
        assert len(cluster.tasks) <= 256
        assert outcome.throughput > 10_000
