"""Join rows without windows by columns: new rows with those that are kept, and with each other.

Each shard finds its pairs by sorted keys and times; what comes out of all shards is then put in order at once: a pair
at its later row, those of one row in the order of the others. Rows without a partner come out at the mark that forgets
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import RowTypeError
from penstock.kernels.join_runs import FARTHEST, Bools, JoinForm, KeptRun, Run, arranged, equal_keys
from penstock.kernels.join_states import JoinStates
from penstock.kernels.marks import Steps
from penstock.kernels.row_keys import ByColumns, RowKeys
from penstock.kernels.shards import AtWork, Shard
from penstock.kernels.stateless import expansion
from penstock.kernels.timed_rows import Group, watermarks_at
from penstock.operators.join import LEFT, RIGHT, SideBySide, TimedJoin
from penstock.operators.windows import LATE
from penstock.plan.positions import timed_width
from penstock.rows.chunk import Chunk, Ints, concat
from penstock.rows.timing import FOREVER, Ticks

FEW_TO_JOIN = 32
"""As many rows are taken one by one, where none were taken otherwise before."""


@dataclass(slots=True, kw_only=True)
class NewRows:
    """The rows of a group, those of the left before those of the right."""

    columns: list[pa.RecordBatch]
    codes: Ints
    null: Bools
    ports: Ints
    times: Ints
    waters: Ints
    places: Ints
    """Epoch and position, as runs have it."""
    shards: Ints
    late: Bools

    def own(self, rows: Ints, port: int) -> Ints:
        """Return the numbers of rows among those of their side."""
        first: int = port * self.columns[LEFT].num_rows
        return rows - first


class _Here(NamedTuple):
    """The rows of one shard, in order."""

    rows: NewRows
    mine: Ints
    """Their numbers among those that arrived."""
    base: int
    """The serial number of the first."""

    def rows_of(self, serials: Ints) -> Ints:
        """Return the numbers of rows."""
        found: Ints = self.mine[serials - self.base]
        return found

    def waters(self, serials: Ints) -> Ints:
        """Return the watermark at rows."""
        found: Ints = self.rows.waters[self.rows_of(serials)]
        return found


@dataclass
class _Made:
    """What came out, piece by piece."""

    later: list[Ints] = field(default_factory=list)
    """The later row of each pair, by its number."""
    earlier: list[Ints] = field(default_factory=list)
    """The serial number of the other."""
    lefts: list[Ints] = field(default_factory=list)
    """The serial number of the left row."""
    times: list[Ints] = field(default_factory=list)
    sides: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = field(default_factory=lambda: ([], []))
    alone: list[Chunk] = field(default_factory=list)


class TimedJoining:
    """Join the rows of one group."""

    def __init__(self, at: AtWork, form: JoinForm) -> None:
        self._node, self._form, self._shards = at.node, form, at.shards
        self._width, self._suffix, self._epoch = at.width, timed_width(at.width), at.epoch
        self._reach: Any = form.reach
        self._made = _Made()

    def run(self, group: Group, marks: Steps, watermark: Ticks) -> ByColumns | None:
        """Join rows, and take the marks among them; None where rows must be taken one by one.

        The operator's watermark before the group is `watermark`. Few rows are taken one by one as long as they always
        were; where columns are kept, any number of rows is taken by them, and marks alone.
        """
        here = {number for _, _, of in group for number in np.unique(of).tolist()}
        if len(marks):
            here.update(self._shards.due(int(marks.values[-1])))
        opened = [self._shards.get(number) for number in here]
        if sum(len(chunk) for _, chunk, _ in group) <= FEW_TO_JOIN and all(map(_is_by_rows, opened)):
            return None
        rows = self._arrived(group, marks, watermark) if group else None
        if group and rows is None:
            for shard in opened:
                shard.take_apart(self._node.operator.logic)
            return None
        if rows is not None:
            self._take(rows)
        if len(marks):
            last = int(marks.values[-1])
            for shard in opened:
                states = as_columns(shard)
                self._fire(states, last, marks, watermark)
                states.forget(last)
        made = self._in_order(rows)
        out = {} if made is None else {0: made}
        if rows is None:
            return ByColumns(out, lambda: None, np.empty(0, np.int64))
        if rows.late.any():
            out[LATE] = self._late(rows)
        return ByColumns(out, partial(self._keys, rows), rows.shards)

    def _keys(self, rows: NewRows) -> RowKeys:
        sides = (self._form.key_columns(port, columns) for port, columns in enumerate(rows.columns))
        left, right = (RowKeys(len(columns[0]), tuple(columns)) for columns in sides)
        return left.then(right)

    def _arrived(self, group: Group, marks: Steps, watermark: Ticks) -> NewRows | None:
        """Return the rows of a group; None for odd ones."""
        types = self._form.types
        if any(chunk.times is None or chunk.type is None for _, chunk, _ in group):
            return None
        if any(chunk.type.schema != types[port].schema for port, chunk, _ in group if chunk.type is not None):
            return None
        ports = np.concatenate([np.full(len(chunk), port) for port, chunk, _ in group])
        order = np.argsort(ports, kind="stable")
        times = np.concatenate([np.asarray(chunk.times) for _, chunk, _ in group])[order]
        if times.min(initial=0) <= -FARTHEST or times.max(initial=0) >= FARTHEST:
            return None
        try:
            given = [(port, chunk.get_columns()) for port, chunk, _ in group]
        except RowTypeError:
            return None  # found again row by row
        columns = [
            pa.concat_batches([row.encode([]), *(batch for port, batch in given if port == side)])
            for side, row in enumerate(types)
        ]
        codes, null = zip(*(self._form.codes(side, some) for side, some in enumerate(columns)), strict=True)
        widened = [chunk.widened(self._width) for _, chunk, _ in group]
        positions = [np.concatenate([chunk.positions[i] for chunk in widened])[order] for i in range(self._width)]
        at_rows = watermarks_at(positions, marks, watermark)
        return NewRows(
            columns=columns,
            codes=np.concatenate(codes),
            null=np.concatenate(null),
            ports=ports[order],
            times=times,
            waters=at_rows,
            places=np.stack([np.full(len(order), self._epoch), *positions], axis=1),
            shards=np.concatenate([of for _, _, of in group])[order],
            late=np.broadcast_to(self._reach.is_late(times, at_rows), times.shape),
        )

    def _take(self, rows: NewRows) -> None:
        there = np.flatnonzero(~rows.late)
        components = [rows.places[there, i] for i in range(self._width, 0, -1)]
        by_place = there[np.lexsort((*components, rows.shards[there]))]
        numbers, starts = np.unique(rows.shards[by_place], return_index=True)
        parts = np.split(by_place, starts[1:]) if len(there) else []
        for number, mine in zip(numbers.tolist(), parts, strict=True):
            self._take_shard(as_columns(self._shards.get(number)), rows, mine)

    def _take_shard(self, states: JoinStates, rows: NewRows, mine: Ints) -> None:
        form, here = self._form, _Here(rows, mine, states.serial)
        states.serial += len(mine)
        new: dict[int, KeptRun] = {}
        for port in (LEFT, RIGHT):
            ranks = np.flatnonzero(rows.ports[mine] == port)
            if len(ranks):
                which = mine[ranks]
                run = arranged(
                    codes=rows.codes[which],
                    null=rows.null[which],
                    times=rows.times[which],
                    serials=here.base + ranks,
                    alone=np.full(len(which), form.leaves_alone(port) or (form.once and port == LEFT)),
                    places=rows.places[which],
                    columns=rows.columns[port].take(pa.array(rows.own(which, port))),
                )
                new[port] = KeptRun(run, port, form)
        met = self._meet(LEFT, new[LEFT], new[RIGHT], here) if len(new) == 2 else []
        for port, held in new.items():
            for kept in states.sides[1 - port]:
                met += self._meet(port, held, kept, here)
        if form.how != "inner":
            for held, some in met:
                if any(held is each for each in new.values()):
                    held.run.alone[some] = False
                else:
                    states.meet(held, some)
        for port, held in new.items():
            self._keep(states, port, held, here)

    def _meet(self, port: int, new: KeptRun, other: KeptRun, here: _Here) -> list[tuple[KeptRun, Ints]]:
        """Find the pairs of a run of new rows and one of the other side."""
        made, run, count = self._made, new.run, new.run.keyed
        if not count or not other.run.keyed:
            return []
        first, last = self._reach.partners(port, run.times[:count], here.waters(run.serials[:count]))
        begin, end = other.partners(run.codes[:count], first, last)
        which, number = expansion(end - begin)
        others = begin[which] + number
        (left, ones), (right, twos) = ((new, which), (other, others))[:: 1 if port == LEFT else -1]
        there = self._are_partners(left.run, ones, right.run, twos, here)
        ones, twos = ones[there], twos[there]
        if not len(ones):
            return []
        serials = left.run.serials[ones], right.run.serials[twos]
        made.later.append(here.rows_of(np.maximum(*serials)))
        made.earlier.append(np.minimum(*serials))
        made.lefts.append(serials[LEFT])
        made.times.append(np.maximum(left.run.times[ones], right.run.times[twos]))
        made.sides[LEFT].append(left.run.columns.take(pa.array(ones)))
        if not self._form.once:
            made.sides[RIGHT].append(right.run.columns.take(pa.array(twos)))
        return [(left, ones), (right, twos)]

    def _are_partners(self, left: Run, ones: Ints, right: Run, twos: Ints, here: _Here) -> Bools:
        """Tell which rows of equal hash are partners when the later one comes."""
        serials, times = (left.serials[ones], right.serials[twos]), (left.times[ones], right.times[twos])
        waters = here.waters(np.maximum(*serials))
        there = np.ones(len(ones), bool)
        for port in (LEFT, RIGHT):
            first, last = self._reach.partners(port, times[port], waters)
            earlier = times[1 - port]
            there &= (serials[port] < serials[1 - port]) | ((first <= earlier) & (earlier <= last))
        if self._form.once:
            there &= left.alone[ones]
        if not self._form.is_exact:
            there[there] = equal_keys(
                [column.take(pa.array(ones[there])) for column in self._form.key_columns(LEFT, left.columns)],
                [column.take(pa.array(twos[there])) for column in self._form.key_columns(RIGHT, right.columns)],
            )
        return there

    def _keep(self, states: JoinStates, port: int, held: KeptRun, here: _Here) -> None:
        """Keep the rows that wait for others; give out those that no other can meet any more."""
        run = held.run
        gone = held.forgets <= here.waters(run.serials)
        if self._form.leaves_alone(port) and (gone & run.alone).any():
            some = np.flatnonzero(gone & run.alone)
            zeros = np.zeros(len(some), np.int64)
            places = [*run.places[some, 1:].T, *[zeros] * self._suffix]
            self._give_alone(port, run, some, places)
        kept = ~gone
        kept[run.keyed :] &= run.alone[run.keyed :]
        if port == LEFT and self._form.once:
            kept &= run.alone
        states.add(port, run if kept.all() else run.select(np.flatnonzero(kept)))

    def _fire(self, states: JoinStates, last: Ticks, marks: Steps, before: Ticks) -> None:
        """Give out the rows without a partner that are forgotten at the marks."""
        for port, held in states.runs():
            if not self._form.leaves_alone(port) or held.soonest > last:
                continue
            run = held.run
            some = np.flatnonzero(run.alone & (held.forgets <= last) & (held.forgets > before))
            later = run.alone & (held.forgets > last)
            held.soonest = int(held.forgets[later].min(initial=FOREVER))
            if len(some):
                states.meet(held, some)
                at = np.searchsorted(marks.values, held.forgets[some])
                # The opening position may be of a plan with other widths: cut or padded, its order is kept.
                origin = np.zeros((len(some), self._width + 1), np.int64)
                width = min(origin.shape[1], run.places.shape[1])
                origin[:, :width] = run.places[some, :width]
                zeros = np.zeros(len(some), np.int64)
                self._give_alone(
                    port, run, some, [*(p[at] for p in marks.positions), held.forgets[some], *origin.T, zeros]
                )

    def _give_alone(self, port: int, run: Run, some: Ints, places: list[Ints]) -> None:
        columns = run.columns.take(pa.array(some))
        sides = (columns, None) if port == LEFT else (None, columns)
        places = [np.ascontiguousarray(place) for place in places]
        declared = self._node.types[0]
        self._made.alone.append(Chunk(places, run.times[some], declared, self._combined(*sides)))

    def _combined(self, left: pa.RecordBatch | None, right: pa.RecordBatch | None) -> pa.RecordBatch:
        """Put the fields of both sides in one batch; None is a side that is missing."""
        logic, declared = self._node.operator.logic, self._node.types[0]
        assert isinstance(logic, TimedJoin)
        assert declared is not None
        if logic.combine is None:
            assert left is not None
            return pa.RecordBatch.from_arrays(left.columns, schema=declared.schema)
        combine = logic.combine
        assert isinstance(combine, SideBySide)
        there = left if left is not None else right
        assert there is not None
        arrays: list[pa.Array | None] = []
        for name in combine.left:
            side = right if left is None and name in combine.shared else left
            arrays.append(None if side is None else side.column(name))
        arrays += [None if right is None else right.column(n) for n in combine.right if n not in combine.shared]
        filled = [
            pa.nulls(there.num_rows, field.type) if array is None else array
            for array, field in zip(arrays, declared.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(filled, schema=declared.schema)

    def _in_order(self, rows: NewRows | None) -> Chunk | None:
        made = self._made
        chunks = made.alone
        if made.later and self._form.how != "anti":
            assert rows is not None
            chunks = [self._pairs(rows), *chunks]
        return concat(chunks).sorted() if chunks else None

    def _pairs(self, rows: NewRows) -> Chunk:
        made = self._made
        later, earlier, lefts = (np.concatenate(some) for some in (made.later, made.earlier, made.lefts))
        places = rows.places[later, 1:]
        by_place = [*reversed(places.T)]
        order = np.lexsort((earlier, *by_place))
        if self._form.once:  # of each left row only its first pair
            of_left = np.lexsort((earlier, *by_place, lefts, rows.shards[later]))
            shard, left = rows.shards[later[of_left]], lefts[of_left]
            first = np.append(True, (shard[1:] != shard[:-1]) | (left[1:] != left[:-1]))
            is_first = np.zeros(len(later), bool)
            is_first[of_left[first]] = True
            order = order[is_first[order]]
        of_row = later[order]
        begins = np.append(True, of_row[1:] != of_row[:-1])
        at = np.arange(len(order))
        number = at - np.maximum.accumulate(np.where(begins, at, 0))
        zeros = np.zeros(len(order), np.int64)
        index = pa.array(order)
        sides = [pa.concat_batches(some).take(index) if some else None for some in made.sides]
        positions = [*(np.ascontiguousarray(p) for p in places[order].T), *[zeros] * (self._suffix - 1), number]
        return Chunk(positions, np.concatenate(made.times)[order], self._node.types[0], self._combined(*sides))

    def _late(self, rows: NewRows) -> Chunk:
        declared, chunks = self._node.types[LATE], []
        for port in (LEFT, RIGHT):
            some = np.flatnonzero(rows.late & (rows.ports == port))
            if len(some):
                columns = rows.columns[port].take(pa.array(rows.own(some, port)))
                places = [np.ascontiguousarray(p) for p in rows.places[some, 1:].T]
                listed = self._form.types[port].decode(columns)
                chunks.append(Chunk(places, rows.times[some], declared, None, listed))
        return concat(chunks).widened(self._width + self._suffix).sorted()


def as_columns(shard: Shard) -> JoinStates:
    """Return what a shard of a join keeps, as columns."""
    assert isinstance(shard.states, JoinStates)
    if shard.states.by_rows:
        shard.states.to_columns()
        shard.timers = []
    return shard.states


def _is_by_rows(shard: Shard) -> bool:
    return isinstance(shard.states, JoinStates) and shard.states.by_rows
