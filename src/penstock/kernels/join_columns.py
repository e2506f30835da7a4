"""Join rows by columns: all pairs of the windows of a chunk at once, each at its later row, in the order of the others.

Rows whose windows are still open after the chunk wait *aside*, as columns, and the next chunk begins with them; they
are written to the state of their keys before rows or timers are taken one by one. Rows of windows that a key's state
has already, and those that are late, are left to the loop over rows: windows have nothing in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import RowTypeError
from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import ByColumns, KeptAside, RowKeys, grouped, key_columns
from penstock.kernels.shards import AtWork, Shards, settle
from penstock.kernels.stateless import expansion
from penstock.kernels.timed_rows import Group, watermarks_at
from penstock.operators.base import Logic
from penstock.operators.join import Join, SideBySide
from penstock.operators.running_columns import sorting
from penstock.plan.graph import KeyedNode
from penstock.plan.positions import timed_width
from penstock.rows.chunk import Chunk, Ints, concat
from penstock.rows.timing import BEFORE, Ticks

MOST_PAIRS = 1 << 22
"""More pairs at once would take too much memory."""
FAR = 1 << 61
AS_MANY = 4
"""So many times as many rows may wait aside as come: all of them are looked at with each chunk."""


class _Side(NamedTuple):
    """Rows of one side, those that waited first."""

    rows: Chunk
    epochs: Ints
    shards: Ints

    def select(self, index: Ints) -> _Side:
        return _Side(self.rows.select(index), self.epochs[index], self.shards[index])


@dataclass(frozen=True)
class OpenRows:
    """Rows of windows that are still open, as columns."""

    node: KeyedNode
    sides: tuple[_Side, _Side]

    def __len__(self) -> int:
        return sum(len(side.rows) for side in self.sides)

    def _listing(self) -> Iterator[tuple[int, Any, int, tuple[int, ...], Any, int]]:
        """Yield (shard, key, start of the window, position, row, side) in the order in which rows came."""
        logic, keys = self.node.operator.logic, self.node.operator.keys
        assert isinstance(logic, Join)
        assert keys is not None
        listing: list[tuple[int, Any, int, tuple[int, ...], Any, int]] = []
        for number, side in enumerate(self.sides):
            if not len(side.rows):
                continue
            columns = key_columns(keys[number], side.rows)
            assert columns is not None
            assert side.rows.times is not None
            listing += zip(
                side.shards.tolist(),
                RowKeys(len(side.rows), tuple(columns)).values(),
                _starts(logic, side.rows.times).tolist(),
                zip(side.epochs.tolist(), *(p.tolist() for p in side.rows.positions), strict=True),
                side.rows.get_rows(),
                [number] * len(side.rows),
                strict=True,
            )
        yield from sorted(listing, key=lambda row: row[3])

    def settle(self, shards: Shards) -> None:
        size = self.node.operator.logic.windows.size  # type: ignore[attr-defined]
        for number, key, start, place, row, side in self._listing():
            shard = shards.get(number)
            state = shard.states.setdefault(key, {})
            if start not in state:
                shard.register(start + size, place, key)
            _put(state, start, place, row, side)
            if not shard.all_touched:
                shard.touched.add(key)

    def states(self) -> Mapping[Any, Any]:
        keys = _keys(self.node, [side.rows if len(side.rows) else None for side in self.sides])
        assert keys is not None  # they were columns when they came
        return KeptAside(keys, self._states)

    def _states(self) -> dict[Any, Any]:
        states: dict[Any, Any] = {}
        for _, key, start, place, row, side in self._listing():
            _put(states.setdefault(key, {}), start, place, row, side)
        return states


def _put(state: dict[Any, Any], start: int, place: tuple[int, ...], row: Any, side: int) -> None:
    """Put a row to a key's state, as if it had come by itself; its pairs were made."""
    held = state.setdefault(start, ([], [], place))
    partners = held[1 - side]
    held[side].append([place, row, bool(partners)])
    for entry in partners:
        entry[2] = True


def can_join(logic: Logic) -> bool:
    return (
        isinstance(logic, Join)
        and logic.how == "inner"
        and logic.returns is None
        and isinstance(logic.combine, SideBySide)
        and logic.windows.size == logic.windows.every
        and max(logic.windows.size, abs(logic.windows.offset)) < FAR
    )


def _starts(logic: Join, times: Ints) -> Ints:
    return times - (times - logic.windows.offset) % logic.windows.size


def join_columns(at: AtWork, group: Group, marks: Steps, watermark: Ticks) -> ByColumns | None:
    """Join the rows of a group but for those of windows that rows have begun one by one; None where it cannot be."""
    node, shards = at.node, at.shards
    logic, declared = node.operator.logic, node.types[0]
    assert isinstance(logic, Join)
    if declared is None or any(chunk.type is None or chunk.times is None for _, chunk, _ in group):
        return None
    try:
        given = [(port, chunk.widened(at.width).only_columns(), of) for port, chunk, of in group]
    except RowTypeError:
        return None
    count = sum(len(chunk) for _, chunk, _ in group)
    if shards.aside is not None and len(shards.aside) > AS_MANY * count:
        settle(shards)
    aside = shards.aside
    both = [_side(given, number, at.epoch, None if aside is None else aside.sides[number]) for number in (0, 1)]
    sides = [side for side in both if side is not None]
    keys = _keys(node, [side.rows if side is not None else None for side in both])
    if keys is None:
        return None
    codes, _ = keys.codes()
    for field in keys.fields:
        if field.null_count:
            codes = np.where(field.is_null().to_numpy(zero_copy_only=False), -1, codes)
    times = np.concatenate([np.asarray(side.rows.times) for side in sides])
    if times.min(initial=0) < -FAR or times.max(initial=0) > FAR:
        return None
    starts = _starts(logic, times)
    ends = starts + logic.windows.size
    positions = [np.concatenate(columns) for columns in zip(*(side.rows.positions for side in sides), strict=True)]
    epochs, shard_of = (np.concatenate([side[i] for side in sides]) for i in (1, 2))
    first_right = 0 if both[0] is None else len(both[0].rows)
    waited = [0, 0] if aside is None else [len(side.rows) for side in aside.sides]
    is_new = np.ones(len(times), bool)
    is_new[: waited[0]] = is_new[first_right : first_right + waited[1]] = False
    taken = ~is_new
    new = np.flatnonzero(is_new)
    waters = watermarks_at([component[new] for component in positions], marks, watermark)
    taken[new] = (codes[new] >= 0) & (ends[new] > waters)
    taken[new] &= ~_held(shards, keys, codes, shard_of, starts, new)
    sequence = np.lexsort((*reversed(positions), epochs))
    sequence = sequence[taken[sequence]]
    pairs = _pairs(codes[sequence], starts[sequence], sequence < first_right, is_new[sequence])
    if pairs is None:
        return None
    later, other, number = pairs
    left, right = np.where(sequence[later] < first_right, (later, other), (other, later))
    left, right, later = sequence[left], sequence[right] - first_right, sequence[later]
    arrays = _columns(logic.combine, both, left, right, declared.schema)
    zeros = np.zeros(len(later), np.int64)
    rows = Chunk(
        [*(p[later] for p in positions), *[zeros] * (timed_width(at.width) - 1), number],
        times[later],
        declared,
        pa.RecordBatch.from_arrays(arrays, schema=declared.schema),
    )
    stays = taken & (ends > (marks.values[-1] if len(marks) else BEFORE))
    parts = [slice(0, first_right), slice(first_right, len(times))]
    shards.aside = _aside(node, both, [stays[part] for part in parts])
    rest = [
        (number, side.rows.select(some), side.shards[some])
        for number, (side, part) in enumerate(zip(both, parts, strict=True))
        if side is not None and len(some := np.flatnonzero((~taken)[part]))
    ]
    mine = np.flatnonzero(taken & is_new)
    return ByColumns({0: rows} if len(rows) else {}, partial(keys.take, mine), shard_of[mine], rest)


def _side(group: Group, number: int, epoch: int, before: _Side | None) -> _Side | None:
    """Put the rows of one side together; None for none."""
    some = [(chunk, of) for port, chunk, of in group if port == number]
    chunks = [chunk for chunk, _ in some]
    epochs = [np.full(len(chunk), epoch, np.int64) for chunk in chunks]
    shards = [of for _, of in some]
    if before is not None and len(before.rows):
        chunks, epochs, shards = [before.rows, *chunks], [before.epochs, *epochs], [before.shards, *shards]
    return _Side(concat(chunks), np.concatenate(epochs), np.concatenate(shards)) if chunks else None


def _aside(node: KeyedNode, both: list[_Side | None], stays: list[npt.NDArray[np.bool_]]) -> OpenRows | None:
    found = [
        side if side is None else side.select(np.flatnonzero(some)) for side, some in zip(both, stays, strict=True)
    ]
    there = next(side for side in found if side is not None)
    nothing = np.empty(0, np.int64)
    blank = _Side(Chunk([nothing] * len(there.rows.positions), nothing, None, None, []), nothing, nothing)
    left, right = (blank if side is None else side for side in found)
    return OpenRows(node, (left, right)) if len(left.rows) + len(right.rows) else None


def _keys(node: KeyedNode, chunks: list[Chunk | None]) -> RowKeys | None:
    """Return the keys of both sides; None where they are no columns, or differ in type."""
    assert node.operator.keys is not None
    found = []
    for key, chunk in zip(node.operator.keys, chunks, strict=True):
        columns = [] if chunk is None else key_columns(key, chunk)
        if columns is None:
            return None
        if chunk is not None:
            found.append(RowKeys(len(chunk), tuple(columns)))
    keys = reduce(RowKeys.then, found)
    return keys if keys.listed is None else None


def _held(shards: Shards, keys: RowKeys, codes: Ints, shard_of: Ints, starts: Ints, new: Ints) -> npt.NDArray[np.bool_]:
    """Tell which new rows are of a window that the state of their key has already."""
    held = np.zeros(len(new), bool)
    loaded = {number: shards.get(number) for number in np.flatnonzero(np.bincount(shard_of[new])).tolist()}
    if not any(shard.states for shard in loaded.values()):
        return held
    of, first = grouped(codes[new])
    rows = new[first]
    states = [
        loaded[number].states.get(key) or ()
        for number, key in zip(shard_of[rows].tolist(), keys.take(rows).values(), strict=True)
    ]
    some = np.flatnonzero(np.fromiter(map(bool, states), bool, len(states))[of])
    pairs = zip(of[some].tolist(), starts[new[some]].tolist(), strict=True)
    held[some] = [start in states[number] for number, start in pairs]
    return held


def _pairs(
    codes: Ints, starts: Ints, is_left: npt.NDArray[np.bool_], is_new: npt.NDArray[np.bool_]
) -> tuple[Ints, Ints, Ints] | None:
    """Return the later and the earlier row of each pair, in order, and its number among those of the later row.

    Rows are in order. Two rows that are not new have met before.
    """
    windows, first = grouped(starts)
    groups, first = grouped(codes * max(1, len(first)) + windows)
    by_group = sorting(groups, len(first) - 1)
    left = is_left[by_group]
    lefts: Ints = np.cumsum(left) - left  # how many are before
    rights: Ints = np.cumsum(~left) - ~left
    sizes = np.bincount(groups, minlength=len(first))
    begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
    # The partners of a row are those of the other side that are before it in its group: they stand together.
    pool = np.concatenate([by_group[left], by_group[~left]])
    start, count = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
    start[by_group] = np.where(left, int(left.sum()) + rights[begins], lefts[begins])
    count[by_group] = np.where(left, rights - rights[begins], lefts - lefts[begins])
    count[~is_new] = 0
    if int(count.sum()) > MOST_PAIRS:
        return None
    later, number = expansion(count)
    return later, pool[start[later] + number], number


def _columns(combine: object, both: list[_Side | None], left: Ints, right: Ints, schema: pa.Schema) -> list[pa.Array]:
    """Return the fields of both sides, side by side."""
    assert isinstance(combine, SideBySide)
    arrays: list[pa.Array] = []
    for number, (names, rows) in enumerate(((combine.left, left), (combine.right, right))):
        side, index = both[number], pa.array(rows)
        for name in names:
            if number == 0 or name not in combine.shared:
                if side is None:
                    arrays.append(pa.nulls(0, schema.field(len(arrays)).type))
                else:
                    arrays.append(side.rows.get_columns().column(name).take(index))
    return arrays
