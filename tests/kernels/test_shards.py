"""How many shards a flow has is the flow's to say: on Spark, and for executors in threads."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import FlowError
from penstock.plan.plan import make_plan
from penstock.threads.element import QUEUE_PARTITIONS


def flow(**options: Any) -> ps.Flow:
    made = ps.Flow("sharded", **options)
    keyed = made.source("in", ps.read.items(range(900), schema=int)).key_by(lambda n: n % 300)
    keyed.scan(lambda count, n: (count + 1, (n, count)), 0, schema={"n": int, "before": int}, name="counted").sink(
        "out"
    )
    return made


@pytest.mark.parametrize(
    ("options", "partitioned", "shards"),
    [({}, "executor", 256), ({"shards": 12}, "executor", 12), ({"shards": 12}, "hybrid", QUEUE_PARTITIONS)],
)
def test_an_executor_has_the_flows_shards(options: dict[str, Any], partitioned: Any, shards: int) -> None:
    run = ps.run(flow(**options), on=ps.Threads(workers=2, batch_rows=100, partitioned=partitioned))
    assert [tuple(row) for row in run.results["out"]] == [(n, n // 300) for n in range(900)]
    station = run.engine.element.stations["counted"]
    assert len(station.partitions()) == shards
    if partitioned == "executor":
        assert len(station.squad.table) == shards
        assert sorted(set(station.squad.table)) == [0, 1]


def test_every_operator_of_a_flow_has_its_shards() -> None:
    made = flow(shards=7)
    late = made.forward("later")
    late.sink("also")
    late.connect(made.source("more", ps.read.items([1], schema=int)))
    assert make_plan(made).shards == 7
    assert {node.shards for node in made.nodes.values()} == {7}


@pytest.mark.parametrize("shards", [0, -1, 1 << 17, 2.0, True, "8"])
def test_a_number_that_cannot_be_is_refused(shards: Any) -> None:
    with pytest.raises(FlowError, match=r"flow 'sharded': shards=.*; give a whole number from 1 to 65,536"):
        flow(shards=shards)
