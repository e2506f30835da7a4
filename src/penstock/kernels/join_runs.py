"""Rows that a join without windows keeps: runs of one side's rows as columns, sorted by key and time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.row_keys import is_good_key
from penstock.operators.aggregate_columns import has_its_columns
from penstock.operators.base import Keyed
from penstock.operators.join import LEFT, RIGHT, Interval, Lifetime, Reach, SideBySide, TimedJoin
from penstock.plan.graph import KeyedNode
from penstock.rows.chunk import Ints
from penstock.rows.keys import hash_columns
from penstock.rows.records import RowType
from penstock.rows.timing import FOREVER

Bools = npt.NDArray[np.bool_]
_LINE = 1 << 62
FARTHEST = 1 << 60
"""Times as far away are taken one by one: sums of a few fit in 64 bits."""


@dataclass(frozen=True)
class JoinForm:
    """What is to be known of a join to keep its rows."""

    how: str
    reach: Reach
    fields: tuple[tuple[str, ...], tuple[str, ...]]
    """Of the key, on either side."""
    types: tuple[RowType, RowType]

    @property
    def once(self) -> bool:
        """Whether a left row leaves with its first partner."""
        return self.how in ("semi", "anti")

    def leaves_alone(self, port: int) -> bool:
        """Tell whether rows of a side without a partner come out when they are forgotten."""
        return self.how in (("left", "outer", "anti"), ("right", "outer"))[port]

    def forgets(self, port: int, times: Ints) -> Ints:
        """Return the watermark at which each row is forgotten."""
        made: Any = self.reach.forgets(port, times)  # type: ignore[arg-type]
        return np.asarray(made)

    @cached_property
    def is_exact(self) -> bool:
        """Whether the hash of a key stands for it: a whole number's is told from that of any other."""
        return len(self.fields[LEFT]) == 1 and pa.types.is_integer(
            self.types[LEFT].schema.field(self.fields[LEFT][0]).type
        )

    def key_columns(self, port: int, columns: pa.RecordBatch) -> list[pa.Array]:
        return [columns.column(name) for name in self.fields[port]]

    def codes(self, port: int, columns: pa.RecordBatch) -> tuple[Ints, Bools]:
        """Return the hash of each row's key, and which keys have a null."""
        keys = self.key_columns(port, columns)
        null = np.zeros(columns.num_rows, bool)
        for number, key in enumerate(keys):
            if key.null_count:
                null |= key.is_null().to_numpy(zero_copy_only=False)
                keys[number] = key.fill_null(0) if pa.types.is_integer(key.type) else key
        return hash_columns(keys).view(np.int64), null


def join_form(node: KeyedNode) -> JoinForm | None:
    """Return how the rows of a join are kept as columns; None where they are not, or it is no such join."""
    if not isinstance(node.operator, Keyed):
        return None
    logic, keys = node.operator.logic, node.operator.keys
    if not isinstance(logic, TimedJoin) or logic.sides is None or logic.returns is not None or keys is None:
        return None
    if not (logic.combine is None or isinstance(logic.combine, SideBySide)) or node.types[0] is None:
        return None
    reach = logic.reach
    reaches = (
        (reach.low, reach.high) if isinstance(reach, Interval) else (reach.ttl,) if isinstance(reach, Lifetime) else ()
    )
    if not reaches or max(map(abs, reaches)) >= FARTHEST or not all(map(has_its_columns, logic.sides)):
        return None
    if not (keys[LEFT].fields and keys[RIGHT].fields):
        return None
    kinds = [[row.schema.field(name).type for name in key.fields] for row, key in zip(logic.sides, keys, strict=True)]
    whole = all(len(some) == 1 and pa.types.is_integer(some[0]) and some[0] != pa.uint64() for some in kinds)
    if not whole and (kinds[LEFT] != kinds[RIGHT] or not all(map(is_good_key, kinds[LEFT]))):
        return None
    return JoinForm(logic.how, reach, (keys[LEFT].fields, keys[RIGHT].fields), logic.sides)


@dataclass(slots=True, kw_only=True)
class Run:
    """Rows of one side, by key and time; those whose key has a null are last."""

    codes: Ints
    keyed: int
    """How many keys have no null."""
    times: Ints
    serials: Ints
    alone: Bools
    """Which have no partner so far, where that is of interest."""
    places: Ints
    """Epoch and position: a row of numbers each."""
    columns: pa.RecordBatch

    def select(self, some: Ints, keyed: int | None = None) -> Run:
        """Return some rows; in the same order, unless it is said how many keys have no null."""
        return Run(
            codes=self.codes[some],
            keyed=int(np.searchsorted(some, self.keyed)) if keyed is None else keyed,
            times=self.times[some],
            serials=self.serials[some],
            alone=self.alone[some],
            places=self.places[some],
            columns=self.columns.take(pa.array(some)),
        )


class KeptRun:
    """A run that has rows, in its place, with what is asked of it again and again."""

    def __init__(self, run: Run, port: int, form: JoinForm) -> None:
        codes, times = run.codes[: run.keyed], run.times[: run.keyed]
        self.run, self.forgets = run, form.forgets(port, run.times)
        self.soonest = int(self.forgets[run.alone].min(initial=FOREVER)) if form.leaves_alone(port) else FOREVER + 1
        """When the first row without a partner is forgotten, or before that."""
        self.lasts = int(self.forgets.max())
        """When all of it is forgotten."""
        changes = np.flatnonzero(codes[1:] != codes[:-1]) + 1
        self.starts = np.concatenate([[0], changes, [run.keyed]])[0 if run.keyed else 1 :]
        """Where each key begins, and the end of the last one."""
        self.first = int(times.min()) if run.keyed else 0
        self.span = int(times.max()) - self.first + 1 if run.keyed else 1
        self.line: Ints | None = None
        """Key and time in one number, so that one search finds both; None where they are too far apart."""
        if self.span * len(self.starts) < _LINE:
            keys = np.repeat(np.arange(len(self.starts) - 1) * self.span, np.diff(self.starts))
            self.line = keys + (times - self.first)

    @property
    def bytes(self) -> int:
        run, line = self.run, self.starts if self.line is None else self.line
        arrays = [run.codes, run.times, run.serials, run.alone, run.places, self.forgets, self.starts, line]
        columns: int = run.columns.get_total_buffer_size()
        return sum(array.nbytes for array in arrays) + columns

    def partners(self, codes: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        """Return where the partners of each of some keys begin and end, by the first and last time of theirs."""
        own = self.run.codes[self.starts[:-1]]
        key = np.minimum(np.searchsorted(own, codes), len(own) - 1)
        if self.line is None:
            begin, end = self.starts[key], self.starts[key + 1]
        else:
            base = key * self.span
            begin = np.searchsorted(self.line, base + np.clip(first - self.first, 0, self.span))
            end = np.searchsorted(self.line, base + np.clip(last - self.first + 1, 0, self.span))
        return begin, np.where((own[key] == codes) & (end > begin), end, begin)


def arranged(
    *, codes: Ints, null: Bools, times: Ints, serials: Ints, alone: Bools, places: Ints, columns: pa.RecordBatch
) -> Run:
    """Make a run of rows in any order, of which some have a null in their key."""
    order = np.lexsort((serials, times, codes, null))
    run = Run(codes=codes, keyed=0, times=times, serials=serials, alone=alone, places=places, columns=columns)
    return run.select(order, keyed=len(codes) - int(np.count_nonzero(null)))


def merged_runs(runs: list[Run]) -> Run:
    width = max(run.places.shape[1] for run in runs)
    return arranged(
        codes=np.concatenate([run.codes for run in runs]),
        null=np.concatenate([np.arange(len(run.codes)) >= run.keyed for run in runs]),
        times=np.concatenate([run.times for run in runs]),
        serials=np.concatenate([run.serials for run in runs]),
        alone=np.concatenate([run.alone for run in runs]),
        places=np.concatenate([_widened(run.places, width) for run in runs]),
        columns=pa.concat_batches([run.columns for run in runs]),
    )


def _widened(places: Ints, width: int) -> Ints:
    missing = width - places.shape[1]
    return np.pad(places, ((0, 0), (0, missing))) if missing else places


def equal_keys(one: list[pa.Array], two: list[pa.Array]) -> Bools:
    """Tell which of two lists of keys are the same."""
    same = np.ones(len(one[0]), bool)
    for left, right in zip(one, two, strict=True):
        same &= pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    return same
