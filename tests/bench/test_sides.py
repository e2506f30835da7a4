"""Every baseline of the papers is a named side of its benchmark, and what runs is that baseline.

The benchmarks look at the parts of the engine that they have built: a turn of a side fails where they are others.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import pytest

from bench import elastic_threads, flown, hybrid_queue, threading_models, traffic
from bench.__main__ import parser_of
from penstock.elastic.utilization_pool import UtilizationPool
from penstock.lab.baselines import StreamsRules
from penstock.lab.workloads.synthetic import graph
from penstock.threads.engine import LocalOptions
from penstock.threads.settings import Settings


def defaults(module: Any, **changes: Any) -> argparse.Namespace:
    args = parser_of("this", module).parse_args([])
    vars(args).update(changes)
    return args


def test_the_benchmarks_have_the_papers_baselines():
    assert list(threading_models.MODELS) == ["manual", "dedicated", "dynamic", "bound"]
    assert {"hybrid", "partitioned", "shared", "hybrid_locked", "executor"} == set(defaults(hybrid_queue).sides)
    assert {"static", "single_queue", "greedy", "barrier", "rebinding", "dynamic"} == set(defaults(traffic).sides)
    assert {"streams_rules", "utilization"} == set(defaults(elastic_threads).baselines)


@pytest.mark.parametrize("model", threading_models.MODELS)
def test_a_threading_model_takes_its_turn(model):
    options = LocalOptions(5, settings=Settings(model=model, workers=2, fuse=False))
    assert threading_models.turn("mixed", 4, 1, 20, options) > 0


@pytest.mark.parametrize("side", hybrid_queue.SIDES)
def test_a_queue_takes_its_turn(side):
    kind = hybrid_queue.Kind("wait", lambda: None, 2, 0.0, (0.0,))
    keys = hybrid_queue.gaussian_keys(1, 60, 0.0, 0.5)
    experiment = hybrid_queue.Experiment(keys, kind, defaults(hybrid_queue, batch_rows=10, partitions=8))
    assert experiment.turn(side) > 0
    assert len(experiment.latencies[side]) == 1


@pytest.mark.parametrize("side", traffic.SIDES)
def test_a_binding_takes_its_turn(side):
    args = defaults(traffic, replicas=1)
    table, batch = traffic.recorded(20, 4, "constant", 1)
    live = traffic.Live(table, batch, None)
    traffic.go(live, traffic.SIDES[side], args)
    traffic.check(live, 20, "constant", args, 0)


def test_a_run_that_is_not_of_its_side_is_refused(monkeypatch):
    start = traffic.ps.start

    def without_binding(flow: Any, *, on: Any) -> Any:
        return start(flow, on=replace(on, binding=None))

    monkeypatch.setattr(traffic.ps, "start", without_binding)
    live = traffic.Live(*traffic.recorded(20, 4, "constant", 1), None)
    with pytest.raises(AssertionError, match="built with a BindingTable, not a BarrierBinding"):
        traffic.go(live, traffic.SIDES["barrier"], defaults(traffic, replicas=1))


def test_each_way_to_find_the_workers_has_a_pilot_of_its_own():
    flow = graph("chain", width=1, depth=1, cost_us=1, kind="python", rows=None, sink=elastic_threads.nowhere())
    with flown.flying(flow, 8, 0.01, baselines=tuple(flown.BASELINES)) as flying:
        controllers = {name: pilot.levers[0].controller for name, pilot in flying.pilots.items()}
        assert isinstance(controllers["streams_rules"], StreamsRules)
        assert isinstance(controllers["utilization"], UtilizationPool)
        for side in flying.pilots:
            assert flying.settle(side, 2) <= 2
            assert flying.elastic(side, 1) >= 0
        assert set(flying.found) == set(flying.pilots)


def test_a_pair_of_workers_and_replicas_is_in_force_when_it_is_measured():
    flow = graph("chain", width=1, depth=2, cost_us=1, kind="python", rows=None, sink=elastic_threads.nowhere())
    with flown.flying(flow, 8, 0.01, replicas=True) as flying:
        flying.settle("penstock", 1)
        flying.fixed(flown.Setting(3, 2), 0.01)
        assert flying.engine.element.model.active == 3
        assert set(flying.replicas.values()) == {2}
        before = flying.found["penstock"]
        flying.elastic("penstock", 0)
        assert flying.found["penstock"] == before


def test_the_default_experiments_have_every_graph_kind_and_cost():
    chosen = elastic_threads.chosen(defaults(elastic_threads))
    assert len(chosen) == 15
    assert {shape for shape, _, _ in chosen} == set(elastic_threads.SHAPES)
    for kind in elastic_threads.KINDS:
        assert {cost for _, each, cost in chosen if each == kind} == set(elastic_threads.COSTS[kind])
    assert len(elastic_threads.chosen(defaults(elastic_threads, all=True))) == 45
    quick = elastic_threads.chosen(defaults(elastic_threads, quick=3))
    assert len({kind for _, kind, _ in quick}) == len({shape for shape, _, _ in quick}) == 3


def test_a_round_is_compared_with_the_setting_that_was_best_in_the_others():
    one, two = flown.Setting(1), flown.Setting(2)
    fixed = {one: [10.0, 10.0, 10.0], two: [9.0, 9.0, 50.0]}
    assert elastic_threads.best_of(fixed) == two
    assert elastic_threads.best_of(fixed, 2) == one
    assert elastic_threads.pairs_of([1, 4]) == [(1, 1), (4, 1), (4, 2), (4, 4)]
