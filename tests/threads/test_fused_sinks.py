"""Sinks are run with the operator that they read, where that holds nobody up."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.plan.plan import make_plan
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.models.bound import Bound
from penstock.threads.settings import Settings

ROWS = 200


def several() -> ps.Flow:
    """Build a flow with a sink after each kind of operator."""
    flow = ps.Flow("several")
    rows = flow.source("in", ps.read.items(range(ROWS), schema=int))
    rows.sink("as read")
    mapped = rows.map(lambda n: n + 1, name="mapped")
    mapped.sink("copied")
    mapped.threaded().sink("placed")
    mapped.key_by(lambda n: n % 5).scan(lambda count, n: (count + 1, (n, count)), 0, name="keyed").sink("counted")
    mapped.scan(lambda count, n: (count + 1, (n, count)), 0, name="whole").sink("numbered")
    mapped.map(lambda n: n, waits=True, name="waited").sink("answered")
    return flow


def fused(flow: ps.Flow, **settings: object) -> set[str]:
    engine = LocalEngine(make_plan(flow), LocalOptions(batch_rows=10, settings=Settings(**settings)))  # type: ignore[arg-type]
    engine.run()
    found = {name: station.host.name for name, station in engine.element.stations.items() if station.host is not None}
    stats = engine.statistics()
    for name, host in found.items():
        assert stats.operators[name].queue_of == host
    # Whoever runs them, they are told of.
    assert {name: each.rows_in for name, each in stats.operators.items() if each.kind == "sink"} == dict.fromkeys(
        engine.results, ROWS
    )
    assert set(stats.queries) == set(engine.results)
    assert [n for n, _ in engine.results["counted"]] == [n for n, _ in engine.results["numbered"]]
    assert engine.results["copied"] == engine.results["answered"] == [n + 1 for n in range(ROWS)]
    return set(found)


def test_those_that_read_what_admits_several_workers():
    """One that admits one worker goes on with its next batch while another worker writes."""
    assert fused(several(), workers=2) == {"copied", "counted"}


@pytest.mark.parametrize("partitioned", ["hybrid", "partitioned", "shared", "executor"])
def test_however_the_partitions_are_shared(partitioned):
    assert fused(several(), workers=2, partitioned=partitioned) == {"copied", "counted"}


def test_in_the_manual_model_all_but_those_that_have_a_thread():
    assert fused(several(), model="manual") == {"copied", "counted", "numbered"}


def test_where_every_input_has_a_thread_none():
    assert fused(several(), model="dedicated") == set()


def test_none_where_nothing_is_to_be_fused():
    assert fused(several(), fuse=False) == set()


def test_one_that_is_fused_is_bound_with_its_operator():
    flow = ps.Flow("bound")
    rows = flow.source("in", ps.read.items(range(ROWS), schema=int)).map(lambda n: n + 1, name="mapped")
    rows.scan(lambda count, n: (count + 1, n), 0, name="whole").sink("out")
    engine = LocalEngine(make_plan(flow), LocalOptions(batch_rows=10, settings=Settings(model="bound", workers=2)))
    engine.run()
    assert engine.results["out"] == [n + 1 for n in range(ROWS)]
    assert isinstance(engine.element.model, Bound)
    assert set(engine.element.model.bindings()) == {"mapped", "whole"}
