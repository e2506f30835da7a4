"""Run keyed operators by columns: running aggregates, windows, joins; and leave out rows that change nothing.

A kernel takes a group of rows, or says None, before it has changed anything: columns will not do then, because a key
cannot be had, or a value does not fit, and the rows are taken one by one, which finds the row that fails.

A sieve leaves out rows, by columns, that surely change and emit nothing: most rows of a running top, or of `distinct`.
What is left is taken row by row. A row that enters makes it harder for those after it, so a chunk is looked at in
pieces that grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.join_columns import can_join, join_columns
from penstock.kernels.join_runs import join_form
from penstock.kernels.join_states import JoinStates
from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import ByColumns, grouped, keys_of
from penstock.kernels.running import Running, new_states
from penstock.kernels.shards import AtWork, Shards, settle
from penstock.kernels.state_columns import ColumnStates
from penstock.kernels.timed_join_columns import TimedJoining
from penstock.kernels.timed_rows import Group, watermarks_at
from penstock.kernels.window_columns import take_windows
from penstock.kernels.window_groups import FAR, by_column, keep_aside, window_rows
from penstock.operators.aggregate_columns import has_its_columns
from penstock.operators.base import Logic
from penstock.operators.scan import Aggregate, FlatScan, keep_first
from penstock.operators.window_folds import Ranking, RunningTop
from penstock.operators.windows import CountWindows, Windowed
from penstock.plan.graph import KeyedNode
from penstock.plan.positions import timed_width
from penstock.rows.chunk import Chunk, Ints, sorted_together
from penstock.rows.timing import Ticks

ColumnKernel = Callable[[Group, Steps, Ticks], ByColumns | None]
"""Takes a group of rows and the marks among them, the watermark before them given."""


def column_kernel(node: KeyedNode, width: int, epoch: int, shards: Shards) -> ColumnKernel | None:
    """Return what takes rows of an operator by columns, if it has that."""
    at, logic, form = AtWork(node, width, epoch, shards), node.operator.logic, join_form(node)
    if isinstance(logic, Aggregate):
        return partial(_running, at)
    if isinstance(logic, Windowed) and by_column(logic):
        return partial(_windows, at, logic)
    if form is not None:
        return lambda group, marks, watermark: TimedJoining(at, form).run(group, marks, watermark)
    return partial(join_columns, at) if can_join(logic) else None


def by_columns(node: KeyedNode) -> bool:
    """Tell whether rows of an operator are taken by columns where they are many."""
    logic = node.operator.logic
    return by_column(logic) or can_join(logic) or isinstance(new_states(node), ColumnStates | JoinStates)


def _running(at: AtWork, group: Group, marks: Steps, watermark: Ticks) -> ByColumns | None:
    chunk, shards = sorted_together([(chunk, of) for _, chunk, of in group], at.width)
    found = Running(at.node, at.shards).run(chunk, shards)
    return None if found is None else ByColumns({0: found}, lambda: keys_of(at.node.operator, 0, chunk), shards)


def _windows(at: AtWork, logic: Windowed, group: Group, marks: Steps, watermark: Ticks) -> ByColumns | None:
    """Take all rows into their windows, then close those that are due."""
    chunk, shards = sorted_together([(chunk, of) for _, chunk, of in group], at.width)
    keys, times = keys_of(at.node.operator, 0, chunk), chunk.times
    if keys is None or (times is None and not isinstance(logic, CountWindows)):
        return None
    if times is not None and (times.min(initial=0) < -FAR or times.max(initial=0) > FAR):
        return None
    waters = watermarks_at(chunk.positions, marks, watermark)
    arrived = window_rows(logic, chunk, keys, shards, waters, at.shards, at.epoch)
    taken = None if arrived is None else take_windows(at.node, arrived, marks, timed_width(at.width))
    if arrived is None or taken is None:
        return None
    outputs, rest, is_left = taken
    keep_aside(arrived, rest, at.shards)
    if is_left:
        settle(at.shards)  # what is due is closed one by one
    return ByColumns(outputs, lambda: keys, shards)


FIRST_ROWS = 512
"""Rows of the first piece; each one after it has twice as many."""


def can_sieve(logic: Logic) -> bool:
    return isinstance(logic, FlatScan) and (logic.function is keep_first or isinstance(logic.function, RunningTop))


def sieved(node: KeyedNode, chunk: Chunk, shard_of: Ints, shards: Shards) -> Iterator[tuple[Ints, ByColumns]]:
    """Yield (rows to be taken, what is known of those that are not), piece by piece; nothing where it cannot be told.

    What is to be taken must be before the next piece is asked for.
    """
    keys, function = keys_of(node.operator, 0, chunk), node.operator.logic.function  # type: ignore[attr-defined]
    if keys is None or chunk.columns is None:
        return
    of, first = grouped(keys.codes()[0])
    own = keys.take(first).values()
    states = [shards.get(number).states for number in shard_of[first].tolist()]
    if function is keep_first:
        new = np.fromiter((not states[n].get(key) for n, key in enumerate(own)), bool, len(own))
        taken = np.sort(first[new])
        rest = np.delete(np.arange(len(chunk)), taken)
        yield taken, ByColumns({}, partial(keys.take, rest), shard_of[rest])
        return
    ranking = function.ranking
    values = _values(ranking, chunk)
    if values is None:
        return
    start, size = 0, FIRST_ROWS
    while start < len(chunk):
        stop = min(len(chunk), start + size)
        held = [state.get(key) for state, key in zip(states, own, strict=True)]
        enters = _may_enter(ranking, held, values, of[start:stop], slice(start, stop))
        rest = start + np.flatnonzero(~enters)
        yield start + np.flatnonzero(enters), ByColumns({}, partial(keys.take, rest), shard_of[rest])
        start, size = stop, 2 * size


def _values(ranking: Ranking, chunk: Chunk) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None] | None:
    """Return what rows are ranked by, and which have it, None for all; None where that is no number."""
    if chunk.columns is None or not ranking.by.by_columns or not has_its_columns(chunk.type):
        return None
    try:
        found = ranking.by.read_many(chunk.columns, list)
    except Exception:
        return None  # found again row by row
    if not isinstance(found, pa.Array) or not (pa.types.is_signed_integer(found.type) or found.type == pa.float64()):
        return None
    valid = found.is_valid().to_numpy(zero_copy_only=False) if found.null_count else None
    return found.fill_null(0).to_numpy(zero_copy_only=False), valid


def _may_enter(
    ranking: Ranking,
    held: list[Any],
    values: tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None],
    of: Ints,
    some: slice,
) -> npt.NDArray[np.bool_]:
    """Tell which of some rows may come before the last one that is held; more than do is no harm."""
    numbers, valid = values[0][some], values[1]
    full = np.fromiter((state is not None and len(state) >= ranking.count for state in held), bool, len(held))
    last = np.zeros(len(held), values[0].dtype)
    last[full] = [state[-1][0] for state, is_full in zip(held, full.tolist(), strict=True) if is_full]
    against = last[of]
    behind = numbers <= against if ranking.largest else numbers >= against  # false for NaN
    enters: npt.NDArray[np.bool_] = ~(full[of] & behind)
    if valid is None:
        return enters
    new = np.fromiter((state is None for state in held), bool, len(held))  # a null makes a key known, no more
    enters &= valid[some] | new[of]
    return enters
