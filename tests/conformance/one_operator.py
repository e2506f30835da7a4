"""Run one operator by itself, over rows that come cut in epochs: for tests that compare ways in which it can run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import numpy as np

from penstock.kernels import keyed
from penstock.kernels.failures import Failures
from penstock.kernels.marks import Steps, rises
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk
from penstock.rows.timing import BEFORE, FOREVER

from .shards_in_memory import InMemory

NO_MARKS = Steps([np.empty(0, np.int64)], np.empty(0, np.int64))
Part = tuple[int, Chunk, Any]
"""A port, rows that come there, and the shard of each of them."""


def times_of(steps: Iterable[int], back: Sequence[int]) -> Any:
    """Return the times of rows: each by its step after the one before, and as much earlier as `back` says in turn."""
    ahead = np.cumsum(list(steps))
    return np.maximum(0, ahead - np.resize(back, len(ahead)))


def chunk_of(numbers: list[int], times: Any, row_type: Any, rows: list[Any]) -> Chunk:
    """Return rows as they come at the operator; positions leave room for marks between them."""
    return Chunk([2 * np.array(numbers, np.int64) + 1], times[numbers], row_type, row_type.encode(rows))


def run_in_epochs(
    node: Node,
    shards: Any,
    entries: Sequence[Any],
    times: Any,
    parts: Callable[[list[int]], Iterable[Part]],
    way: Callable[[int], AbstractContextManager[Any]],
    after: Callable[[int], Iterable[Any]],
) -> list[Any]:
    """Run an operator over entries, each a tuple whose last field tells whether a cut follows; return what is seen.

    `parts` makes some of the rows, given by number; `way` is what an epoch runs in; what `after` returns of an epoch is
    seen, too, after the rows that came out.
    """
    failures, seen = Failures(), list[Any]()
    water, start = BEFORE, 0
    cuts = [number + 1 for number, entry in enumerate(entries) if entry[-1]]
    for epoch, stop in enumerate([*cuts, len(entries)]):
        numbers = np.arange(start, stop)
        raised = numbers[rises(times[start:stop], water)]
        marks = Steps([2 * raised], times[raised])
        if stop == len(entries):
            marks = Steps([np.append(2 * raised, 2 * stop)], np.append(times[raised], FOREVER))
        sent = (numbers[::2], numbers[1::2])  # as two tasks above would have sent them
        group = [part for some in sent for part in parts(some.tolist()) if len(part[1])]
        runner = keyed.KeyedRunner(node, 1, epoch, shards, failures)
        with way(epoch):
            made = runner.run(group, marks, water)
        seen += [
            (port, list(zip(*(p.tolist() for p in out.positions), strict=True)), out.times.tolist(), out.get_rows())
            for port, out in sorted(made.items())
            if out.times is not None
        ]
        seen += after(epoch)
        water, start = int(marks.values[-1]) if len(marks) else water, stop
    assert not failures.fatal
    return seen


def run_by_columns(
    node: Any,
    entries: Sequence[Any],
    times: Any,
    parts: Callable[[list[int]], Iterable[Part]],
    columns: Sequence[bool],
    reload: bool,
) -> list[Any]:
    """Run an operator over entries; its states are seen after each epoch, and with `reload` saved and loaded.

    `columns` says of each epoch whether it is to be taken by columns, over and over again.
    """
    shards = InMemory(node.operator.logic)

    def by_columns(epoch: int) -> AbstractContextManager[Any]:
        return mock.patch.object(keyed, "FEW_ROWS", 0 if columns[epoch % len(columns)] else len(entries))

    def look(epoch: int) -> list[str]:
        states = shards.shown()
        if reload:
            shards.reload()
        return [states]

    return run_in_epochs(node, shards, entries, times, parts, by_columns, look)
