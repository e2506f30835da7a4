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
from penstock.kernels.count_columns import count_windows
from penstock.kernels.join_columns import can_join, join_columns
from penstock.kernels.join_runs import JoinForm, join_form
from penstock.kernels.join_states import JoinStates
from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import CodedKeys, coded_keys
from penstock.kernels.running import Running, new_states
from penstock.kernels.session_columns import sessions
from penstock.kernels.shards import Shards
from penstock.kernels.state_columns import ColumnStates
from penstock.kernels.timed_join_columns import NewKeys, TimedJoining
from penstock.kernels.timed_rows import Group, watermarks_at
from penstock.kernels.window_columns import time_windows
from penstock.kernels.window_groups import FAR, Closing, WindowRows, by_column, fold_members, keep
from penstock.operators.scan import Aggregate
from penstock.operators.windows import LATE, CountWindows, SessionWindows, TimeWindows
from penstock.plan.graph import KeyedNode
from penstock.plan.positions import timed_width
from penstock.rows.chunk import Chunk, Ints, sorted_together
from penstock.rows.timing import BEFORE, FOREVER, Ticks


@dataclass(frozen=True)
class ByColumns:
    """What came of a group of rows."""

    outputs: dict[int, Chunk]
    """The rows of each output port that has any."""
    keys: Callable[[], CodedKeys | NewKeys]
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
    if isinstance(logic, CountWindows) and by_column(logic):
        return partial(_count_windows, operator, logic)
    if isinstance(logic, (TimeWindows, SessionWindows)) and by_column(logic):
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
    return None if found is None else ByColumns({0: found[0]}, found[1], shards)


def _arrived(operator: _Operator, group: Group, marks: Steps, watermark: Ticks, timed: bool) -> WindowRows | None:
    """Return rows that are to go to windows, with what columns need of them."""
    chunk, shards = sorted_together([(chunk, of) for _, chunk, of in group], operator.width)
    keys, times = coded_keys(operator.node.operator, chunk), chunk.times
    if times is None and not timed:
        times = np.zeros(len(chunk), np.int64)
    if keys is None or times is None or times.min(initial=0) < -FAR or times.max(initial=0) > FAR:
        return None
    waters = watermarks_at(chunk.positions, marks, watermark)
    return WindowRows(chunk, times, keys, shards, waters, operator.shards)


def _count_windows(
    operator: _Operator, logic: CountWindows, group: Group, marks: Steps, watermark: Ticks
) -> ByColumns | None:
    arrived = _arrived(operator, group, marks, watermark, timed=False)
    # After the end each row would close what is open.
    if arrived is None or arrived.waters.max(initial=BEFORE) >= FOREVER:
        return None
    made = count_windows(operator.node, logic, arrived, operator.epoch, timed_width(operator.width))
    if made is None:
        return None
    return ByColumns({0: made} if len(made) else {}, lambda: arrived.keys, arrived.shard_of)


def _windows(
    operator: _Operator, logic: TimeWindows | SessionWindows, group: Group, marks: Steps, watermark: Ticks
) -> ByColumns | None:
    """Take all rows into their windows, then close those that are due."""
    arrived = _arrived(operator, group, marks, watermark, timed=True)
    if arrived is None:
        return None
    found = time_windows(logic, arrived) if isinstance(logic, TimeWindows) else sessions(logic, arrived)
    if found is None:
        return None
    groups, late = found
    inside = fold_members(logic.fold_, arrived.chunk, groups)
    if inside is None:
        return None
    outputs, node, width = {}, operator.node, operator.width
    if len(late):
        rows = arrived.chunk.select(late)
        outputs[LATE] = rows.replace_rows(rows.get_rows(), node.types[LATE]).widened(width + timed_width(width))
    closing = Closing(node, logic.fold_, operator.epoch, marks)
    due = closing.due(groups)
    closed = closing.close(arrived, groups, inside, due) if due.any() else None
    if closed is not None:
        outputs[0] = closed
    left = ~due if closed is not None else np.ones(len(due), bool)
    keep(arrived, groups, inside, left, operator.epoch, logic)
    return ByColumns(outputs, lambda: arrived.keys, arrived.shard_of)


def _join(operator: _Operator, group: Group, marks: Steps, watermark: Ticks) -> ByColumns | None:
    """Join rows of windows that begin and end here; those of others are left."""
    if len(marks) == 0:
        return None
    width = operator.width
    widened = [chunk.widened(width) for _, chunk, _ in group]
    positions = [np.concatenate([chunk.positions[i] for chunk in widened]) for i in range(width)]
    waters = watermarks_at(positions, marks, watermark)
    try:
        found = join_columns(operator.node, group, positions, waters, marks, operator.shards, timed_width(width))
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
        return ByColumns(found.chunks, lambda: CodedKeys(nothing, []), nothing)
    return ByColumns(found.chunks, rows.keys, rows.shards)
