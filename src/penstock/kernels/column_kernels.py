"""Run keyed operators by columns: running aggregates, windows, joins.

A kernel takes a group of rows, or says None, before it has changed anything: columns will not do then, because a key
cannot be had, or a value does not fit, and the rows are taken one by one, which finds the row that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from penstock.errors import RowTypeError
from penstock.kernels.join_columns import can_join, join_columns
from penstock.kernels.join_runs import JoinForm, join_form
from penstock.kernels.join_states import JoinStates
from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import RowKeys, keys_of
from penstock.kernels.running import Running, new_states
from penstock.kernels.shards import Shards, settle
from penstock.kernels.state_columns import ColumnStates
from penstock.kernels.timed_join_columns import NewKeys, TimedJoining
from penstock.kernels.timed_rows import Group, watermarks_at
from penstock.kernels.window_columns import take_windows
from penstock.kernels.window_groups import FAR, by_column, keep_aside, window_rows
from penstock.operators.scan import Aggregate
from penstock.operators.windows import CountWindows, Windowed
from penstock.plan.graph import KeyedNode
from penstock.plan.positions import timed_width
from penstock.rows.chunk import Chunk, Ints, sorted_together
from penstock.rows.timing import Ticks


@dataclass(frozen=True)
class ByColumns:
    """What came of a group of rows."""

    outputs: dict[int, Chunk]
    """The rows of each output port that has any."""
    keys: Callable[[], RowKeys | NewKeys | None]
    """Returns the keys of the rows that were taken."""
    shards: Ints
    """And their shards."""
    rest: Group = field(default_factory=list)
    """Rows that are to be taken one by one."""


ColumnKernel = Callable[[Group, Steps, Ticks], ByColumns | None]


@dataclass(frozen=True)
class _Operator:
    node: KeyedNode
    width: int
    epoch: int
    shards: Shards


def column_kernel(node: KeyedNode, width: int, epoch: int, shards: Shards) -> ColumnKernel | None:
    """Return what takes rows of an operator by columns, if it has that."""
    operator, logic = _Operator(node, width, epoch, shards), node.operator.logic
    if isinstance(logic, Aggregate):
        return partial(_running, operator)
    if isinstance(logic, Windowed) and by_column(logic):
        return partial(_windows, operator, logic)
    form = join_form(node)
    if form is not None:
        return partial(_timed_join, operator, form)
    return partial(_join, operator) if can_join(logic) else None


def by_columns(node: KeyedNode) -> bool:
    """Tell whether rows of an operator are taken by columns where they are many."""
    logic = node.operator.logic
    return by_column(logic) or can_join(logic) or isinstance(new_states(node), ColumnStates | JoinStates)


def _running(operator: _Operator, group: Group, marks: Steps, watermark: Ticks) -> ByColumns | None:
    chunk, shards = sorted_together([(chunk, of) for _, chunk, of in group], operator.width)
    found = Running(operator.node, operator.shards).run(chunk, shards)
    return None if found is None else ByColumns({0: found}, lambda: keys_of(operator.node.operator, 0, chunk), shards)


def _windows(operator: _Operator, logic: Windowed, group: Group, marks: Steps, watermark: Ticks) -> ByColumns | None:
    """Take all rows into their windows, then close those that are due."""
    chunk, shards = sorted_together([(chunk, of) for _, chunk, of in group], operator.width)
    keys, times = keys_of(operator.node.operator, 0, chunk), chunk.times
    if keys is None or (times is None and not isinstance(logic, CountWindows)):
        return None
    if times is not None and (times.min(initial=0) < -FAR or times.max(initial=0) > FAR):
        return None
    waters = watermarks_at(chunk.positions, marks, watermark)
    arrived = window_rows(logic, chunk, keys, shards, waters, operator.shards, operator.epoch)
    taken = None if arrived is None else take_windows(operator.node, arrived, marks, timed_width(operator.width))
    if arrived is None or taken is None:
        return None
    outputs, rest, is_left = taken
    keep_aside(arrived, rest, operator.shards)
    if is_left:
        settle(operator.shards)  # what is due is closed one by one
    return ByColumns(outputs, lambda: keys, shards)


def _join(operator: _Operator, group: Group, marks: Steps, watermark: Ticks) -> ByColumns | None:
    """Join rows; those of windows that rows have begun one by one are left."""
    waters = partial(watermarks_at, marks=marks, watermark=watermark)
    group = [(port, chunk.widened(operator.width), of) for port, chunk, of in group]
    shards, suffix = operator.shards, timed_width(operator.width)
    try:
        found = join_columns(operator.node, group, waters, marks, shards, operator.epoch, suffix)
    except RowTypeError:
        return None
    if found is None:
        return None
    return ByColumns({0: found.rows} if len(found.rows) else {}, lambda: found.keys, found.shards, found.rest)


def _timed_join(operator: _Operator, form: JoinForm, group: Group, marks: Steps, watermark: Ticks) -> ByColumns | None:
    """Join rows with all that are kept; one that keeps columns takes any number of rows, and marks alone."""
    joining = TimedJoining(operator.node, form, operator.width, operator.epoch, operator.shards)
    found = joining.run(group, marks, watermark, partial(watermarks_at, marks=marks, watermark=watermark))
    if found is None:
        return None
    rows = found.rows
    if rows is None:
        nothing = np.empty(0, np.int64)
        return ByColumns(found.chunks, lambda: RowKeys(0), nothing)
    return ByColumns(found.chunks, rows.keys, rows.shards)
