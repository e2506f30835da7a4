"""What a join without windows keeps of its keys, as columns: runs of rows, sorted by key and time.

A run is added for each chunk, and runs of like sizes become one, so that there are few and a row is moved few times.
What is forgotten goes when its run is merged or written, or when all of the run is: it pairs with nothing before, too.
Rows have a serial number, by which they are told apart and ordered. Where rows must be taken one by one, and to whoever
looks at keys, this is a mapping of key to the state that `TimedJoin` has of it.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.join_runs import Bools, JoinForm, KeptRun, Run, arranged, merged_runs
from penstock.kernels.row_keys import RowKeys
from penstock.operators.base import Position
from penstock.operators.join import ALONE, LEFT, LOOK, RIGHT
from penstock.rows.chunk import Ints
from penstock.rows.records import RowType
from penstock.rows.timing import BEFORE, FOREVER, Ticks

_MARK = "join"


class JoinStates(MutableMapping[Any, Any]):
    """What a join keeps of some keys: a dict, and from the first large chunk on columns."""

    def __init__(self, form: JoinForm) -> None:
        self.form = form
        self.clear()

    def clear(self) -> None:
        self._rows: dict[Any, Any] | None = {}
        self.sides: tuple[list[KeptRun], list[KeptRun]] = ([], [])
        self.serial = 0
        """The number of the next row."""
        self.watermark: Ticks = BEFORE
        self._since = 0
        self._met: list[Ints] = []
        self._changes = 0
        self._only_whole = False
        """Set where columns were made since `settle`: what changed before that is not known."""
        self._has_rows = False
        """Whether what was last written, or read, has rows."""
        self._written: Ticks = BEFORE
        """The watermark of that."""

    @property
    def by_rows(self) -> bool:
        """Whether this is a dict now."""
        return self._rows is not None

    def runs(self) -> Iterator[tuple[int, KeptRun]]:
        return ((port, held) for port in (LEFT, RIGHT) for held in self.sides[port])

    def add(self, port: int, run: Run) -> None:
        if not len(run.codes):
            return
        side = self.sides[port]
        self._changes += len(run.codes)
        merged = [run]
        # As many or fewer than twice as many: each row is in at most so many runs as the rows can be doubled.
        while side and len(side[-1].run.codes) <= 2 * sum(len(each.codes) for each in merged):
            merged.append(self._alive(port, side.pop()))
        if len(merged) > 1:
            run = merged_runs(merged)
        if len(run.codes):
            side.append(KeptRun(run, port, self.form))

    def _alive(self, port: int, held: KeptRun) -> Run:
        """Return what is not forgotten of a run, or gone with a partner."""
        there = self._is_alive(port, held)
        return held.run if there.all() else held.run.select(np.flatnonzero(there))

    def _is_alive(self, port: int, held: KeptRun) -> Bools:
        there = held.forgets > self.watermark
        return there & held.run.alone if port == LEFT and self.form.once else there

    def meet(self, held: KeptRun, rows: Ints) -> None:
        """Note that some rows of a run have a partner, or came out without."""
        new = rows[held.run.alone[rows]]
        held.run.alone[new] = False
        self._changes += len(new)
        known = held.run.serials[new]
        known = known[known < self._since]
        if len(known):
            self._met.append(known)

    def forget(self, watermark: Ticks) -> None:
        """Drop the runs of which all is forgotten.

        Only if this shard is written then: an epoch that is run again must find all that is not as it left it.
        """
        self.watermark = watermark
        if self._changes or not self._count():
            for side in self.sides:
                side[:] = [held for held in side if held.lasts > watermark]

    @property
    def next_timer(self) -> Ticks | None:
        """When something comes out, or all is forgotten."""
        alone = min((held.soonest for _, held in self.runs()), default=FOREVER)
        return min(alone, self._lasts()) if any(self.sides) else None

    def _lasts(self) -> Ticks:
        return max((held.lasts for _, held in self.runs()), default=BEFORE)

    def to_columns(self) -> None:
        """Become columns."""
        if self._rows is None:
            return
        waiting: dict[Position, tuple[int, Ticks, Any, bool]] = {}
        for left, right, alone, _ in self._rows.values():
            for port, entries in enumerate((left, right)):
                once = self.form.once and port == LEFT
                waiting.update({place: (port, time, row, once) for time, place, row in entries})
            waiting.update({place: (*entry, True) for place, entry in (alone or {}).items()})
        places = sorted(waiting)
        width = max(map(len, places), default=1)
        runs = []
        for port in (LEFT, RIGHT):
            mine = [number for number, place in enumerate(places) if waiting[place][0] == port]
            entries = [waiting[places[number]] for number in mine]
            columns = self.form.types[port].encode([row for _, _, row, _ in entries])
            codes, null = self.form.codes(port, columns)
            padded = [(*places[number], *(0,) * (width - len(places[number]))) for number in mine]
            run = arranged(
                codes=codes,
                null=null,
                times=np.array([time for _, time, _, _ in entries], np.int64),
                serials=np.array(mine, np.int64) + self.serial,
                alone=np.array([alone for *_, alone in entries], bool),
                places=np.array(padded, np.int64).reshape(len(mine), width),
                columns=columns,
            )
            runs.append(run)
        self._rows, self._only_whole, self.serial = None, True, self.serial + len(places)
        for port, run in enumerate(runs):
            self.add(port, run)

    def to_rows(self) -> None:
        """Become a dict."""
        if self._rows is None:
            rows = self._listed()
            self.clear()
            self._rows = rows

    def _listed(self) -> dict[Any, Any]:
        if self._rows is not None:
            return self._rows
        form = self.form
        states: dict[Any, Any] = {}
        lasts = self._lasts()
        for port, held in self.runs():
            run = self._alive(port, held)
            keys = RowKeys(len(run.codes), tuple(form.key_columns(port, run.columns))).values()
            rows = form.types[port].decode(run.columns)
            places = map(tuple, run.places.tolist())
            alone = (run.alone if form.leaves_alone(port) else np.zeros(len(rows), bool)).tolist()
            for number, (key, time, place, row) in enumerate(zip(keys, run.times.tolist(), places, rows, strict=True)):
                state = states.setdefault(key, [[], [], None, None])
                if alone[number]:
                    state[ALONE] = {**(state[ALONE] or {}), place: (port, time, row)}
                if number < run.keyed:
                    state[port].append((time, place, row))
                    # Not before: who has not looked since is not due, and so this is after any watermark by now.
                    state[LOOK] = lasts
        for state in states.values():
            for port in (LEFT, RIGHT):
                state[port] = sorted(state[port], key=lambda entry: entry[:2]) or ()
        return states

    def __len__(self) -> int:
        if self._rows is not None:
            return len(self._rows)
        codes = [held.run.codes for _, held in self.runs()]
        every = np.sort(np.concatenate([np.empty(0, np.int64), *codes]), kind="stable")
        return int(np.count_nonzero(every[1:] != every[:-1])) + (len(every) > 0)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._listed())

    def items(self) -> Any:
        return self._listed().items()

    def get(self, key: Any, default: Any = None) -> Any:
        return self._listed().get(key, default)

    def __getitem__(self, key: Any) -> Any:
        return self._listed()[key]

    def __setitem__(self, key: Any, state: Any) -> None:
        self.to_rows()
        assert self._rows is not None
        self._rows[key] = state

    def __delitem__(self, key: Any) -> None:
        self.to_rows()
        assert self._rows is not None
        del self._rows[key]

    @property
    def touched(self) -> int:
        """How many rows have come or met since `settle`; one if the last is forgotten."""
        return self._changes or int(self._only_whole or (self._has_rows and not self._count()))

    def is_mostly_new(self) -> bool:
        """Tell whether all of it had better be written."""
        return self._only_whole or 2 * self._changes >= self._count()

    def _count(self) -> int:
        """Count the rows that are not forgotten; the same, whatever was merged when."""
        return sum(int(np.count_nonzero(self._is_alive(port, held))) for port, held in self.runs())

    @property
    def bytes(self) -> int:
        return sum(held.bytes for _, held in self.runs())

    def settle(self) -> None:
        """Note no change so far."""
        self._since, self._met, self._changes, self._only_whole = self.serial, [], 0, False
        self.watermark = self._written

    def saved(self, full: bool) -> Any:
        """Return all rows, or what has changed, for pickling: plain types, and Arrow's own format for columns."""
        sides = []
        for port in (LEFT, RIGHT):
            runs = [self._alive(port, held) for held in self.sides[port]]
            since = 0 if full else self._since
            runs = [
                run if full or (run.serials >= since).all() else run.select(np.flatnonzero(run.serials >= since))
                for run in runs
            ]
            runs = [run for run in runs if len(run.codes)]
            sides.append(_packed(merged_runs(runs)) if runs else None)
        self._has_rows, self._written = self._count() > 0, self.watermark
        met = np.concatenate([np.empty(0, np.int64), *([] if full else self._met)])
        form = self.form
        schemas = [row.schema.serialize().to_pybytes() for row in form.types]
        about = (form.how, form.reach, form.fields, schemas)
        return _MARK, about, self.serial, self.watermark, np.unique(met).tobytes(), sides

    def load(self, saved: Any) -> None:
        """Take what was saved, of all or of what changed after that which is here."""
        self.to_columns()
        _, about, self.serial, self.watermark, met, sides = saved
        gone = np.frombuffer(met, np.int64)
        if len(gone):
            for _, held in self.runs():
                held.run.alone[np.isin(held.run.serials, gone)] = False
        for port, packed in enumerate(sides):
            if packed is not None:
                columns = pa.ipc.read_record_batch(pa.py_buffer(packed[0]), _schema(about[3][port]))
                self.add(port, _unpacked(packed, port, self.form, columns))
        self._has_rows, self._written = any(map(bool, self.sides)), self.watermark
        self.settle()


def is_saved_join(changed: Any) -> bool:
    """Tell whether something that was read is of a join by columns."""
    return isinstance(changed, tuple) and changed[0] == _MARK


def saved_form(saved: Any) -> JoinForm:
    """Return what is to be known of the join that something was saved of, its rows as records."""
    how, reach, fields, schemas = saved[1]
    types = [RowType(_schema(schema), "record") for schema in schemas]
    return JoinForm(how, reach, fields, (types[LEFT], types[RIGHT]))


def _packed(run: Run) -> tuple[Any, ...]:
    # By their serial numbers, so that a retried task writes the same bytes, whatever was merged when.
    run = run.select(np.argsort(run.serials))
    arrays = (run.times, run.serials, run.alone, run.places)
    return run.columns.serialize().to_pybytes(), *(array.tobytes() for array in arrays), run.places.shape[1]


def _schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def _unpacked(packed: tuple[Any, ...], port: int, form: JoinForm, columns: pa.RecordBatch) -> Run:
    _, times, serials, alone, places, width = packed
    codes, null = form.codes(port, columns)
    return arranged(
        codes=codes,
        null=null,
        times=np.frombuffer(times, np.int64),
        serials=np.frombuffer(serials, np.int64),
        alone=np.frombuffer(alone, np.bool_),
        places=np.frombuffer(places, np.int64).reshape(-1, width),
        columns=columns,
    )
