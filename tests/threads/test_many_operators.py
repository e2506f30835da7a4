"""A thousand operators: pipeline, data-parallel and a mix of both, with few and with many workers."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.plan.plan import make_plan
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.settings import Settings

from ..in_turn import one_of_each

ROWS = 40


def pipeline(source: ps.Stream) -> ps.Stream:
    for _ in range(1000):
        source = source.map(lambda v: v + 1)
    return source


def data_parallel(source: ps.Stream) -> ps.Stream:
    branches = [source.map(lambda v, b=branch: v * 1000 + b) for branch in range(1000)]
    return branches[0].union(*branches[1:])


def mix(source: ps.Stream) -> ps.Stream:
    branches = []
    for branch in range(10):
        stream = source
        for _ in range(100):
            stream = stream.map(lambda v, b=branch: v + b)
        branches.append(stream)
    return branches[0].union(*branches[1:])


EXPECTED = {
    "pipeline": [v + 1000 for v in range(ROWS)],
    "data_parallel": [v * 1000 + branch for v in range(ROWS) for branch in range(1000)],
    "mix": [v + 100 * branch for v in range(ROWS) for branch in range(10)],
}


@pytest.mark.parametrize(("workers", "graph"), one_of_each([1, 8, 64, 2], [pipeline, data_parallel, mix]))
def test_a_thousand_operators(graph, workers):
    flow = ps.Flow("thousand")
    graph(flow.source("in", ps.read.items(range(ROWS)))).sink("out")
    # Not fused: what is tested is that so many can be scheduled.
    engine = LocalEngine(make_plan(flow), LocalOptions(batch_rows=10, settings=Settings(workers=workers, fuse=False)))
    engine.run()
    assert engine.results["out"] == EXPECTED[graph.__name__]


@pytest.mark.parametrize("graph", [pipeline, mix])
def test_a_thousand_operators_in_chains(graph):
    flow = ps.Flow("thousand")
    graph(flow.source("in", ps.read.items(range(ROWS)))).sink("out")
    run = ps.run(flow, on=ps.Threads(workers=2, batch_rows=10))
    assert run.results["out"] == EXPECTED[graph.__name__]
    assert len(run.stats.operators) > 1000  # each is still told of by itself


def test_a_thousand_operators_without_threads():
    flow = ps.Flow("thousand")
    pipeline(flow.source("in", ps.read.items(range(ROWS)))).sink("out")
    assert ps.run(flow, on=ps.Threads(model="manual")).results["out"] == EXPECTED["pipeline"]
