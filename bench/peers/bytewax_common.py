"""Read the Parquet files of events into Bytewax, and take rows out of it: what its workloads share."""

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from bench.peers.python_loop import make_event
from bench.workload import Event

BATCH = 20_000
"""Rows that the source gives at once: the larger, the faster Bytewax is, up to about so many."""


class _Events(StatelessSourcePartition[Event]):
    def __init__(self, paths: Sequence[Path], batch: int) -> None:
        self._batches = self._read(paths, batch)

    def next_batch(self) -> list[Event]:
        return next(self._batches)  # StopIteration is how Bytewax hears of the end

    @staticmethod
    def _read(paths: Sequence[Path], batch: int) -> Iterator[list[Event]]:
        for path in paths:
            columns = [column.to_numpy().tolist() for column in pq.read_table(path, use_threads=False).columns]
            rows = list(map(make_event, zip(*columns, strict=True)))
            for start in range(0, len(rows), batch):
                yield rows[start : start + batch]


class EventSource(DynamicSource[Event]):
    """The events of the files, in order, as the records that all sides use."""

    def __init__(self, paths: Sequence[Path], batch: int = BATCH) -> None:
        self._paths, self._batch = paths, batch

    def build(self, _step_id: str, worker_index: int, _worker_count: int) -> _Events:
        """Give the only worker all files."""
        return _Events(self._paths if worker_index == 0 else [], self._batch)


class _Collect(StatelessSinkPartition[Any]):
    def __init__(self, into: list[Any]) -> None:
        self._into = into

    def write_batch(self, items: Iterable[Any]) -> None:
        self._into.extend(items)


class ListSink(DynamicSink[Any]):
    """Keep the rows in a list."""

    def __init__(self, into: list[Any]) -> None:
        self._into = into

    def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> _Collect:
        """Collect in the list."""
        return _Collect(self._into)


class _Count(StatelessSinkPartition[Any]):
    def __init__(self, into: list[int]) -> None:
        self._into = into

    def write_batch(self, items: Sequence[Any]) -> None:
        self._into[0] += len(items)


class CountSink(DynamicSink[Any]):
    """Count the rows, in the first place of a list."""

    def __init__(self, into: list[int]) -> None:
        self._into = into

    def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> _Count:
        """Count in the list."""
        return _Count(self._into)


def run_dataflow(flow: Dataflow) -> float:
    """Run a dataflow to its end with one worker, in this process; return the seconds."""
    began = time.perf_counter()
    run_main(flow)
    return time.perf_counter() - began
