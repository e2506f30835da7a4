"""Write the flow of the latency benchmark in Bytewax: map, stateful map by key, filter; one worker."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from bench.latency import Arrivals, positive, scaled, summed, table
from bench.peers.bytewax_common import run_dataflow

BATCH = 4_096
"""Rows that the source gives at once, at most."""


class _Row(NamedTuple):
    serial: int
    key: int
    value: float


class _Rows(StatelessSourcePartition[Any]):
    def __init__(self, arrivals: Arrivals, rows: int) -> None:
        self._arrivals, self._rows = arrivals, rows
        self._taken = 0
        self._began: float | None = None

    def next_batch(self) -> list[Any]:
        if self._taken >= self._rows:
            raise StopIteration
        start, stop = self._taken, min(self._rows, self._taken + BATCH, self._due())
        if stop <= start:
            return []
        self._taken = stop
        columns = [column.to_numpy().tolist() for column in table(self._arrivals, start, stop).columns]
        return list(map(_Row, *columns))

    def _due(self) -> int:
        rate = self._arrivals.rate
        if rate is None:
            return self._rows
        if self._began is None:
            self._began = time.monotonic()
        return int((time.monotonic() - self._began) * rate)


class _Source(DynamicSource[Any]):
    def __init__(self, arrivals: Arrivals, rows: int) -> None:
        self._made = arrivals, rows

    def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> _Rows:
        return _Rows(*self._made)


class _Leave(StatelessSinkPartition[Any]):
    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def write_batch(self, items: Sequence[Any]) -> None:
        self._arrivals.leave([row for _, row in items])


class _Sink(DynamicSink[Any]):
    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> _Leave:
        return _Leave(self._arrivals)


def run(rows: int, rate: float | None) -> tuple[Arrivals, float]:
    """Run the flow over so many rows, at a rate or as fast as it can; return what came when, and the seconds."""
    arrivals = Arrivals(rate)
    flow = Dataflow("latency")
    plain = op.map("scaled", op.input("rows", flow, _Source(arrivals, rows)), scaled)
    keyed = op.key_on("key", plain, lambda row: str(row[1]))  # only strings can be keys
    sums = op.stateful_map("summed", keyed, lambda total, row: summed(total or 0.0, row))
    op.output("out", op.filter("positive", sums, lambda pair: positive(pair[1])), _Sink(arrivals))
    seconds = run_dataflow(flow)
    if sorted(serial for serial, _ in arrivals.left) != list(range(rows)):
        raise AssertionError("bytewax: the outputs are not complete")
    return arrivals, seconds
