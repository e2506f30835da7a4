"""Keys in ranges in the threads engine: what comes out is what comes out by hash, and neighbours share a partition."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

import penstock as ps
from penstock.errors import FlowError
from penstock.plan.plan import make_plan
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.settings import Settings
from penstock.threads.stations import Partitioned

from .support import MODELS, numbers

KEYS, ROWS = 23, 400
BOUNDS = [4, 8, 20]


def keyed(ranges: list[int] | None, rows: Any = None) -> ps.Flow:
    flow = ps.Flow("ranges")
    read = ps.read.items(rows or numbers(ROWS), schema={"v": int})
    made = flow.source("in", read, time="v").map(key, schema={"v": int, "k": int}, name="work")
    made.key_by("k", ranges=ranges).scan(count, name="count").sink("counts")
    made.key_by("k", ranges=ranges).window(50).aggregate(rows=ps.agg.count(), name="windows").sink("closed")
    return flow


def key(row: Any) -> dict[str, int]:
    return {"v": row.v, "k": row.v * 7 % KEYS}


def count(state: int | None, row: Any) -> tuple[int, tuple[int, int, int]]:
    return (state or 0) + 1, (row.v, row.k, (state or 0) + 1)


def run(flow: ps.Flow, **settings: Any) -> LocalEngine:
    options = LocalOptions(batch_rows=4, settings=Settings(**{"partitions": 6, "in_flight": 24, **settings}))
    engine = LocalEngine(make_plan(flow), options)
    engine.run()
    return engine


def rows_of(engine: LocalEngine, name: str) -> list[int]:
    found = engine.statistics().operators[name]
    return [rows for rows, _ in found.shards.values()]


EXPECTED = ps.run(keyed(None), on=ps.Sequential()).results


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("partitioned", get_args(Partitioned))
def test_the_same_comes_out_however_workers_share_the_ranges(partitioned, workers):
    for ranges in (BOUNDS, list(range(KEYS)), [1000]):
        engine = run(keyed(ranges), partitioned=partitioned, workers=workers)
        assert engine.results == EXPECTED


@pytest.mark.parametrize("model", MODELS)
def test_state_goes_to_the_partition_of_its_range(model):
    """Replicas come while windows are open: the state of each key, and its timers, must be where its rows go."""
    engines: list[LocalEngine] = []

    def rows() -> Any:
        for number in range(ROWS):
            if number == 120:
                for name in ("count", "windows"):
                    engines[0].element.set_replicas(name, 3)
            yield {"v": number}

    settings = Settings(model=model, workers=2, partitions=6, in_flight=24)
    engines.append(LocalEngine(make_plan(keyed(BOUNDS, rows())), LocalOptions(batch_rows=4, settings=settings)))
    engines[0].run()
    assert engines[0].results == EXPECTED


@pytest.mark.parametrize("partitions", [2, 3, 8])
def test_ranges_are_dealt_to_the_partitions_there_are(partitions):
    engine = run(keyed(BOUNDS), partitioned="executor", workers=2, partitions=partitions)
    of_range = np.searchsorted(BOUNDS, np.arange(ROWS) * 7 % KEYS, "right")
    dealt = {2: [0, 0, 1, 1], 3: [0, 1, 1, 2], 8: [0, 1, 2, 3]}[partitions]
    expected = np.bincount(np.array(dealt)[of_range]).tolist()
    assert rows_of(engine, "count") == expected
    assert rows_of(engine, "windows") == expected


def test_there_are_no_more_replicas_than_ranges():
    with pytest.raises(FlowError, match="'count': 5 replicas; there may be 4, one a partition"):
        run(keyed(BOUNDS), replicas={"count": 5})
