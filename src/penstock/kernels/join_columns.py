"""Join rows by columns where a window begins and ends in the chunk: no key ever has such a window in its state.

All pairs of such a window are known at once; each stands at its later row, those of one row in the order of the others.
Rows of all other windows, and those that are late, are left to the loop over rows: windows have nothing in common.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import CodedKeys, dense, key_columns
from penstock.kernels.shards import Shards
from penstock.kernels.stateless import expansion
from penstock.operators.base import Logic
from penstock.operators.join import Join, SideBySide
from penstock.plan.graph import KeyedNode
from penstock.rows.chunk import Chunk, Ints
from penstock.rows.value_columns import column_values

Group = list[tuple[int, Chunk, Ints]]
MOST_PAIRS = 1 << 22
"""More pairs at once would take too much memory."""
FAR = 1 << 61


class JoinedRows(NamedTuple):
    """What came of a group of rows."""

    rows: Chunk
    rest: Group
    """Rows that are to be taken one by one."""
    shards: Ints
    """The shard of each row that was taken by columns."""
    keys: CodedKeys
    """And its key."""


def can_join(logic: Logic) -> bool:
    """Tell whether some rows of an operator may be joined by columns."""
    return (
        isinstance(logic, Join)
        and logic.how == "inner"
        and logic.returns is None
        and isinstance(logic.combine, SideBySide)
        and logic.windows.size == logic.windows.every
        and max(logic.windows.size, abs(logic.windows.offset)) < FAR
    )


def join_columns(
    node: KeyedNode, group: Group, positions: list[Ints], waters: Ints, marks: Steps, shards: Shards, suffix: int
) -> JoinedRows | None:
    """Join the rows of a group, whose positions and watermarks are one after the other; None where it cannot be."""
    logic = node.operator.logic
    assert isinstance(logic, Join)
    declared = node.types[0]
    sides = [[(chunk, of) for port, chunk, of in group if port == side] for side in (0, 1)]
    if declared is None or not all(sides) or any(chunk.type is None or chunk.times is None for _, chunk, _ in group):
        return None
    codes, keys = _codes(node, group)
    if codes is None:
        return None
    times = np.concatenate([np.asarray(chunk.times) for _, chunk, _ in group])
    if times.min(initial=0) < -FAR or times.max(initial=0) > FAR:
        return None
    starts = times - (times - logic.windows.offset) % logic.windows.size
    ends = starts + logic.windows.size
    ports = np.repeat([port for port, _, _ in group], [len(chunk) for _, chunk, _ in group])
    shard_of = np.concatenate([of for _, _, of in group])
    taken = (codes >= 0) & (ends > waters) & (ends <= marks.values[-1])
    taken &= ~_held(shards, keys, codes, shard_of, starts)
    found = _pairs(codes, starts, ports, _ranks(positions), taken)
    if found is None:
        return None
    left, right, later, number = found
    zeros = np.zeros(len(later), np.int64)
    places = [*(p[later] for p in positions), *[zeros] * (suffix - 1), number]
    arrays = _columns(logic.combine, group, left, right)
    made = pa.RecordBatch.from_arrays(arrays, schema=declared.schema)
    return JoinedRows(
        Chunk(places, times[later], declared, made), _rest(group, taken), shard_of[taken], CodedKeys(codes[taken], keys)
    )


def _codes(node: KeyedNode, group: Group) -> tuple[Ints | None, list[Any]]:
    """Return the key of each row as a number, -1 for null, and the keys; None where sides differ in type."""
    assert node.operator.keys is not None
    columns = [
        key_columns(node.operator.keys[port], Chunk([], None, chunk.type, chunk.get_columns()))
        for port, chunk, _ in group
    ]
    if any(column is None or len(column) != 1 for column in columns):
        return None, []
    alike = [column[0] for column in columns if column is not None]
    if len({column.type for column in alike}) > 1:
        return None, []
    encoded = pa.chunked_array(alike).combine_chunks().dictionary_encode()
    return encoded.indices.fill_null(-1).to_numpy().astype(np.int64), column_values(encoded.dictionary)


def _held(shards: Shards, keys: list[Any], codes: Ints, shard_of: Ints, starts: Ints) -> npt.NDArray[np.bool_]:
    """Tell which rows are of a window that their key has already."""
    held = np.zeros(len(codes), bool)
    rows = np.flatnonzero(codes >= 0)
    first_codes, first = np.unique(codes[rows], return_index=True)
    begun: dict[int, list[int]] = {}
    for code, number in zip(first_codes.tolist(), shard_of[rows[first]].tolist(), strict=True):
        state = shards.get(number).states.get(keys[code])
        if state:
            begun[code] = list(state)
    if begun:
        some = np.flatnonzero(np.isin(codes, list(begun)))
        held[some] = [
            start in begun[code] for code, start in zip(codes[some].tolist(), starts[some].tolist(), strict=True)
        ]
    return held


def _ranks(positions: list[Ints]) -> Ints:
    """Return the place of each row among all."""
    order = np.lexsort(tuple(reversed(positions)))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _pairs(
    codes: Ints, starts: Ints, ports: Ints, ranks: Ints, taken: npt.NDArray[np.bool_]
) -> tuple[Ints, Ints, Ints, Ints] | None:
    """Return the left, the right and the later row of each pair, in order, and its number among those of that row."""
    rows = np.flatnonzero(taken)
    windows = dense(starts[rows])[0]
    groups, _ = dense(codes[rows] * (int(windows.max(initial=0)) + 1) + windows)
    lefts, rights = rows[ports[rows] == 0], rows[ports[rows] == 1]
    group_of_left, group_of_right = groups[ports[rows] == 0], groups[ports[rows] == 1]
    order = np.argsort(group_of_right, kind="stable")
    sorted_groups = group_of_right[order]
    low = np.searchsorted(sorted_groups, group_of_left, "left")
    counts = np.searchsorted(sorted_groups, group_of_left, "right") - low
    if int(counts.sum()) > MOST_PAIRS:
        return None
    of_left, number = expansion(counts)
    left, right = lefts[of_left], rights[order[low[of_left] + number]]
    is_left = ranks[left] > ranks[right]
    later, earlier = np.where(is_left, left, right), np.where(is_left, right, left)
    sequence = np.lexsort((ranks[earlier], ranks[later]))
    left, right, later = left[sequence], right[sequence], later[sequence]
    begins = np.concatenate([[True], later[1:] != later[:-1]])[: len(later)]
    at = np.arange(len(later))
    return left, right, later, at - np.maximum.accumulate(np.where(begins, at, 0))


def _columns(combine: object, group: Group, left: Ints, right: Ints) -> list[pa.Array]:
    """Return the fields of both sides, side by side."""
    assert isinstance(combine, SideBySide)
    arrays: list[pa.Array] = []
    for side, names, rows in ((0, combine.left, left), (1, combine.right, right)):
        # Rows of one side keep their numbers among all: those of the other side are never asked for.
        sizes = [len(chunk) for _, chunk, _ in group]
        offsets = np.cumsum([0, *sizes[:-1]])
        mine = [number for number, (port, _, _) in enumerate(group) if port == side]
        own = np.cumsum([0, *(sizes[number] for number in mine)])
        shift = np.zeros(len(group), np.int64)
        shift[mine] = own[:-1] - offsets[mine]
        index = pa.array(rows + shift[np.searchsorted(offsets, rows, "right") - 1])
        for name in names:
            if side == 0 or name not in combine.shared:
                parts = [group[number][1].get_columns().column(name) for number in mine]
                arrays.append(pa.concat_arrays(parts).take(index))
    return arrays


def _rest(group: Group, taken: npt.NDArray[np.bool_]) -> Group:
    rest, at = [], 0
    for port, chunk, of in group:
        left = np.flatnonzero(~taken[at : at + len(chunk)])
        at += len(chunk)
        if len(left):
            rest.append((port, chunk if len(left) == len(chunk) else chunk.select(left), of[left]))
    return rest
