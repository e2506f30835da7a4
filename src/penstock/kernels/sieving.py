"""Leave out rows, by columns, that surely change and emit nothing: most rows of a running top, or of `distinct`.

What is left is taken row by row. A row that enters makes it harder for those behind it, so a chunk is looked at in
pieces that grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.column_kernels import ByColumns
from penstock.kernels.row_keys import grouped, keys_of
from penstock.kernels.shards import Shards
from penstock.operators.aggregate_columns import has_its_columns
from penstock.operators.base import Logic
from penstock.operators.ranking import Ranking, RunningTop
from penstock.operators.scan import FlatScan, keep_first
from penstock.plan.graph import KeyedNode
from penstock.rows.chunk import Chunk, Ints

FIRST_ROWS = 512
"""Rows of the first piece; each one after it has twice as many."""


def can_sieve(logic: Logic) -> bool:
    """Tell whether some rows of an operator may be left out."""
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
