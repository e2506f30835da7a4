"""Run operators without memory over chunks. User functions are called by C loops; a failing row is found by
counting."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.flow.checks import DEAD_LETTER, DeadLetter
from penstock.kernels.failures import Failures
from penstock.kernels.waiting import InFlight, Job, run_job, shared_window
from penstock.operators.aggregate_values import raise_stop
from penstock.operators.base import Union
from penstock.operators.calling import Calling, Tally
from penstock.operators.stateless import (
    SKIPPED,
    Columnar,
    Filter,
    FilterExpression,
    FlatMap,
    Map,
    MapBatches,
    PerRow,
    Split,
    Stateless,
)
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.records import Row

Outputs = dict[int, Chunk]
Called = tuple[list[Any], list[tuple[int, DeadLetter]], bool]
"""The results, the dead letters with the numbers of their rows, and whether any row was skipped."""
Caller = Callable[[Node, Callable[[Row], Any], list[Row], Chunk, Failures], Called]
"""Calls a function for each row of a chunk."""


def run_stateless(
    node: Node, chunk: Chunk, failures: Failures, caller: Caller | None = None, calling: Calling | None = None
) -> Outputs:
    """Take a chunk through an operator without memory; return a chunk for each output port that has rows.

    Functions that wait are called by `caller`, by default many rows at once until all of the chunk are done. `calling`
    has what this process keeps for an operator's calls; without it they are plain calls.
    """
    operator = node.operator
    if isinstance(operator, Union):
        return {0: chunk if node.types[0] is not None else _undeclared(chunk)}
    assert isinstance(operator, Stateless)
    if isinstance(operator, Columnar):
        bound = operator if calling is None or not isinstance(calling.operator, Columnar) else calling.operator
        return _in_pieces(node, bound, chunk, failures)
    rows = chunk.get_rows()
    if isinstance(operator, PerRow):
        if operator.in_flight is None:
            caller = call
        elif caller is None:
            caller = waiting_caller(shared_window(operator.is_async, operator.in_flight))
        tally = Tally()
        function = operator.row_function() if calling is None else calling.function(tally)
        results, letters, skipped = caller(node, function, rows, chunk, failures)
        failures.tally(node, tally)
    if isinstance(operator, Map):
        outputs = {0: _without_skipped(chunk, results, node) if skipped else chunk.replace_rows(results, node.types[0])}
    elif isinstance(operator, Filter):
        held = np.fromiter(map(_holds if skipped else bool, results), bool, len(results))
        outputs = {0: chunk if held.all() else _kept(chunk, rows, held)}
    elif isinstance(operator, FlatMap):
        outputs = {0: _flatten(chunk, results, node)}
    else:
        assert isinstance(operator, Split)
        results, letters, skipped = call(node, operator.port, rows, chunk, failures)
        ports = np.fromiter((-1 if r is SKIPPED else r for r in results), np.int64, len(results))
        outputs = {int(port): chunk.select(np.flatnonzero(ports == port)) for port in np.unique(ports) if port >= 0}
    if letters:
        outputs[node.operator.outputs.index("errors")] = letters_chunk(
            chunk, letters, len(chunk.positions) + operator.expands
        )
    return {port: out for port, out in outputs.items() if len(out)}


def call(node: Node, function: Callable[[Row], Any], rows: list[Row], chunk: Chunk, failures: Failures) -> Called:
    """Call a function for each row. A row that fails leaves `SKIPPED`; under "fail" nothing after it is called."""
    results: list[Any] = []
    letters: list[tuple[int, DeadLetter]] = []
    skipped = False
    while len(results) < len(rows):
        try:
            # `extend` keeps what it has when the iterator raises, so the length tells which row failed.
            results.extend(map(function, rows[len(results) :] if results else rows))
            if len(results) < len(rows):
                raise_stop(function, rows[len(results)])
        except Exception as error:
            index, skipped = len(results), True
            letter = failures.report(node, error, rows[index], chunk.position(index))
            if node.operator.on_error == "fail":
                results.extend([SKIPPED] * (len(rows) - index))
                break
            results.append(SKIPPED)
            if letter is not None:
                letters.append((index, letter))
    return results, letters, skipped


def waiting_caller(window: InFlight) -> Caller:
    """Return a caller that has as many rows of a chunk in flight as the window allows, and waits for the last."""

    def wait(node: Node, function: Callable[[Row], Any], rows: list[Row], chunk: Chunk, failures: Failures) -> Called:
        return gathered(run_job(window, function, rows, node.operator.on_error == "fail"), node, chunk, failures)

    return wait


def gathered(job: Job, node: Node, chunk: Chunk, failures: Failures) -> Called:
    """Return what the rows of a job that is done came to, as `call` does."""
    letters: list[tuple[int, DeadLetter]] = []
    failures.tally(node, job.tally)
    for index in sorted(job.errors):
        letter = failures.report(node, job.errors[index], job.rows[index], chunk.position(index))
        if node.operator.on_error == "fail":
            # Rows after it may have been begun; that is not to be seen.
            job.results[index:] = [SKIPPED] * (len(job.rows) - index)
            break
        if letter is not None:
            letters.append((index, letter))
    return job.results, letters, bool(job.errors)


def letters_chunk(chunk: Chunk, letters: list[tuple[int, DeadLetter]], width: int) -> Chunk:
    """Make the chunk of dead letters, each at the position of its row."""
    index = np.array([i for i, _ in letters], np.int64)
    times = None if chunk.times is None else chunk.times[index]
    made = Chunk([p[index] for p in chunk.positions], times, DEAD_LETTER, None, [letter for _, letter in letters])
    return made.widened(width)


def _holds(result: Any) -> bool:
    return result is not SKIPPED and bool(result)


def _kept(chunk: Chunk, rows: list[Row], held: npt.NDArray[np.bool_]) -> Chunk:
    """Return the rows that a predicate holds for; the rows by a C loop, faster than by their numbers."""
    columns = None if chunk.columns is None else chunk.columns.filter(pa.array(held))
    return Chunk(
        [p[held] for p in chunk.positions],
        None if chunk.times is None else chunk.times[held],
        chunk.type,
        columns,
        list(compress(rows, held.tolist())),
    )


def _undeclared(chunk: Chunk) -> Chunk:
    """Forget the type of rows that meet rows of another type."""
    return Chunk(chunk.positions, chunk.times, None, None, chunk.get_rows())


def _without_skipped(chunk: Chunk, results: list[Any], node: Node) -> Chunk:
    keep = np.array([i for i, result in enumerate(results) if result is not SKIPPED], np.int64)
    return Chunk(
        [p[keep] for p in chunk.positions],
        None if chunk.times is None else chunk.times[keep],
        node.types[0],
        None,
        [result for result in results if result is not SKIPPED],
    )


def _flatten(chunk: Chunk, results: list[Any], node: Node) -> Chunk:
    lists = [() if result is SKIPPED else result for result in results]
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    index, emission = expansion(counts)
    positions = [*(p[index] for p in chunk.positions), emission]
    times = None if chunk.times is None else chunk.times[index]
    return Chunk(positions, times, node.types[0], None, list(chain.from_iterable(lists)))


def expansion(counts: Ints) -> tuple[Ints, Ints]:
    """Return, for rows that each became `counts` rows, the input row of each output row and its emission index."""
    index = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    starts = np.cumsum(counts) - counts
    return index, np.arange(len(index), dtype=np.int64) - starts[index]


def _in_pieces(node: Node, operator: Columnar, chunk: Chunk, failures: Failures) -> Outputs:
    """Run an operator by columns, on no more rows at once than it takes."""
    most = operator.rows if isinstance(operator, MapBatches) else None
    if most is None or len(chunk) <= most:
        return _run_columnar(node, operator, chunk, failures)
    return _run_each(node, operator, chunk, failures, most)


def _run_columnar(node: Node, operator: Columnar, chunk: Chunk, failures: Failures) -> Outputs:
    try:
        columns = chunk.get_columns()
        if isinstance(operator, FilterExpression):
            mask = operator.mask(columns).to_numpy(zero_copy_only=False)
            return {0: chunk.select(np.flatnonzero(mask))} if mask.any() else {}
        result, index = operator.batch(columns)
    except Exception:
        if len(chunk) == 1:
            return _run_one(node, operator, chunk, failures)
        # Row by row, to find the row that fails: results do not depend on the cut.
        return _run_each(node, operator, chunk, failures)
    return made_of(node, operator, chunk, result, index)


def made_of(node: Node, operator: Columnar, chunk: Chunk, result: pa.RecordBatch, index: Any) -> Outputs:
    """Return the rows that an operator made of a chunk, each at the position of its input row."""
    index = np.arange(len(chunk), dtype=np.int64) if index is None else np.asarray(index, np.int64)
    positions = [p[index] for p in chunk.positions]
    if operator.expands:
        positions.append(expansion(np.bincount(index, minlength=len(chunk)))[1])
    times = None if chunk.times is None else chunk.times[index]
    return {0: Chunk(positions, times, node.types[0], result)} if result.num_rows else {}


def _run_each(node: Node, operator: Columnar, chunk: Chunk, failures: Failures, size: int = 1) -> Outputs:
    from penstock.rows.chunk import concat

    parts: dict[int, list[Chunk]] = {}
    for start in range(0, len(chunk), size):
        known = len(failures.fatal)
        piece = chunk.slice(start, min(start + size, len(chunk)))
        for port, part in _run_columnar(node, operator, piece, failures).items():
            parts.setdefault(port, []).append(part)
        if len(failures.fatal) > known:
            break
    return {port: concat(chunks) for port, chunks in parts.items()}


def _run_one(node: Node, operator: Columnar, chunk: Chunk, failures: Failures) -> Outputs:
    try:
        results = operator.one(chunk.get_rows()[0])
    except Exception as error:
        letter = failures.report(node, error, chunk.get_rows()[0], chunk.position(0))
        if letter is None:
            return {}
        port = node.operator.outputs.index("errors")
        return {port: letters_chunk(chunk, [(0, letter)], len(chunk.positions) + operator.expands)}
    rows = [row for _, row in results]
    index, emission = expansion(np.array([len(rows)]))
    positions = [p[index] for p in chunk.positions] + ([emission] if operator.expands else [])
    times = None if chunk.times is None else chunk.times[index]
    return {0: Chunk(positions, times, node.types[0], None, rows)} if rows else {}
