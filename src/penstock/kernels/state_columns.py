"""The states of running aggregates as columns: a few bytes per number, and no Python object per key.

A key has a *slot*: its place in the columns. Whole numbers find theirs by binary search, all other keys by a dict. To
everything that takes keys one by one this is a mapping of key to state, as a dict would be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.operators.state_forms import FORMS, OBJECTS, Form, Parts, value_list
from penstock.rows.keys import hash_value

Ints = npt.NDArray[np.int64]
Keys = Ints | Sequence[Any]
_FEW = 1024
"""So many new keys wait before they are merged with the others."""
_LATELY = 4096
"""So many states that came in small numbers are kept as they are; a shard has fewer where many are held."""
_BY_ONE = 128
"""The states of as many keys are kept as they are, until columns are asked for: to write them one by one costs more."""
Saved = tuple[str, Any, list[tuple[str, list[tuple[str, Any]]]]]
"""A mark, the keys, and for each aggregate the name of its form and its arrays; of plain types, for it is pickled."""
_MARK = "columns"


class WholeNumbers:
    """Find slots of whole numbers: sorted, what came lately by itself, since merging moves all."""

    def __init__(self) -> None:
        self._levels = [_nothing(), _nothing()]
        self._single: dict[Any, int] = {}
        """Keys that came one by one."""
        self.null = -1
        """The slot of null."""

    def find(self, keys: Keys) -> Ints:
        """Return the slot of each key, -1 where it has none."""
        self._merge()
        if not isinstance(keys, list):
            return self._sought(np.asarray(keys))
        slots = self._sought(np.array([0 if key is None else key for key in keys], np.int64))
        if None in keys:
            slots[keys.index(None)] = self.null
        return slots

    def _merge(self) -> None:
        """Put keys that came one by one to the others."""
        if self._single:
            self._add(np.fromiter(self._single, np.int64), np.fromiter(self._single.values(), np.int64))
            self._single = {}

    def _sought(self, keys: Ints) -> Ints:
        found = np.full(len(keys), -1, np.int64)
        for known, slots in self._levels:
            if len(known):
                at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
                hit = known[at] == keys
                found[hit] = slots[at[hit]]
        return found

    def get(self, key: Any) -> int:
        """Return the slot of one key, -1 where it has none."""
        if key is None:
            return self.null
        slot = self._single.get(key, -1)
        if slot < 0:
            for known, slots in self._levels:
                at = int(np.searchsorted(known, key))
                if at < len(known) and known[at] == key:
                    return int(slots[at])
        return slot

    def add(self, keys: Keys, first: int) -> None:
        """Give new keys the slots from `first` on."""
        if isinstance(keys, list):
            new = dict(zip(keys, range(first, first + len(keys)), strict=True))
            self.null = new.pop(None, self.null)
            self._single.update(new)
            if len(self._single) > _FEW:
                self._merge()
        else:
            self._add(np.asarray(keys), np.arange(first, first + len(keys)))

    def _add(self, keys: Ints, slots: Ints) -> None:
        main, recent = self._levels
        recent = _merged(recent, (keys, slots.astype(np.int32)))
        if len(recent[0]) > max(_FEW, len(main[0]) // 4):
            main, recent = _merged(main, recent), _nothing()
        self._levels = [main, recent]

    def listed(self, size: int) -> list[Any]:
        """Return the keys of the first slots, as Python has them."""
        # In this order: keys that another thread puts to the others meanwhile are seen here or there.
        null, single, levels = self.null, dict(self._single), self._levels
        placed = np.zeros(size, np.int64)
        for known, slots in levels:
            there = slots < size
            placed[slots[there]] = known[there]
        keys: list[Any] = placed.tolist()
        for key, slot in [*single.items(), (None, null)]:
            if 0 <= slot < size:
                keys[slot] = key
        return keys

    def ascending(self, wanted: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """Return the keys of the slots that are wanted, ascending, and the slots; not null."""
        self._merge()
        some = [(known[there], slots[there]) for known, slots in self._levels if (there := wanted[slots]).any()]
        keys, slots = some[0] if len(some) == 1 else _merged(*some) if some else _nothing()
        return keys, slots.astype(np.int64)

    @property
    def bytes(self) -> int:
        return sum(part.nbytes for level in self._levels for part in level) + _ENTRY * len(self._single)


Level = tuple[Ints, npt.NDArray[np.int32]]
_ENTRY = 100
"""The bytes of an entry of a dict with its key, a small object, and a number, about."""


def _nothing() -> Level:
    return np.empty(0, np.int64), np.empty(0, np.int32)


def _merged(one: Level, other: Level) -> Level:
    keys, slots = np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])
    order = np.argsort(keys, kind="stable")  # runs that are sorted are merged
    return keys[order], slots[order]


class AnyKeys:
    """Find slots of keys of any kind."""

    def __init__(self) -> None:
        self._slots: dict[Any, int] = {}
        """In the order of the slots: they are given one after the other, and none is taken back."""

    def find(self, keys: Keys) -> Ints:
        get = self._slots.get
        return np.fromiter((get(key, -1) for key in keys), np.int64, len(keys))

    def get(self, key: Any) -> int:
        return self._slots.get(key, -1)

    def add(self, keys: Keys, first: int) -> None:
        self._slots.update(zip(keys, range(first, first + len(keys)), strict=True))

    def listed(self, size: int) -> list[Any]:
        return list(self._slots)[:size]

    @property
    def bytes(self) -> int:
        return _ENTRY * len(self._slots)


class ColumnStates(MutableMapping[Any, Any]):
    """The states of some keys, which are lists of one state per aggregate; none is ever forgotten."""

    def __init__(self, forms: Sequence[Form], whole: bool) -> None:
        """With `whole`, keys are whole numbers of int64, or null."""
        self._first, self._whole = tuple(forms), whole
        self.clear()

    def clear(self) -> None:
        self.forms = list(self._first)
        """How the states of each aggregate are kept by now."""
        self._index: WholeNumbers | AnyKeys = WholeNumbers() if self._whole else AnyKeys()
        self._size = 0
        self._columns: list[Parts] = [form.blanks(0) for form in self.forms]
        self._touched = np.empty(0, bool)
        self._lately: dict[Any, Any] = {}
        """The newest states of a few keys, which the columns do not have yet."""

    def _flush(self) -> None:
        """Write all states to the columns; for the one that changes them: others look while it does."""
        if self._lately:
            self._write(self._lately)
            self._lately = {}  # after they are there

    def _write(self, states: Mapping[Any, Any]) -> None:
        keys = list(states)
        values = zip(*states.values(), strict=True)
        packed = [form.packed(list(some)) for form, some in zip(self.forms, values, strict=True)]
        self.scatter(keys, self._index.find(keys), [form for form, _ in packed], [parts for _, parts in packed])

    def find(self, keys: Keys) -> Ints:
        """Return the slot of each key, -1 where it is new."""
        self._flush()
        return self._index.find(keys)

    def gather(self, slots: Ints) -> list[Parts]:
        """Return what some slots that were found have; -1 is a new key."""
        new = slots < 0
        if not new.any():
            return [tuple(part[slots] for part in parts) for parts in self._columns]
        found = []
        for form, parts in zip(self.forms, self._columns, strict=True):
            made = form.blanks(len(slots))
            for one, part in zip(made, parts, strict=True):
                one[~new] = part[slots[~new]]
            found.append(made)
        return found

    def scatter(self, keys: Keys, slots: Ints, forms: Sequence[Form], columns: Sequence[Parts]) -> None:
        """Take the states of keys, all different, that were looked for; those whose slot is -1 get one."""
        new = np.flatnonzero(slots < 0)
        if len(new):
            slots = slots.copy()
            slots[new] = np.arange(self._size, self._size + len(new))
            self._grow(self._size + len(new))
        self._touched[slots] = True
        for number, (form, parts) in enumerate(zip(forms, columns, strict=True)):
            if form is not self.forms[number]:
                self._loosen(number)
            same = parts if form is self.forms[number] else (value_list(form.unpack(parts)),)
            for one, part in zip(self._columns[number], same, strict=True):
                one[slots] = part
        if len(new):  # last: until then, another thread that looks sees the keys that were there
            self._add([keys[i] for i in new.tolist()] if isinstance(keys, list) else np.asarray(keys)[new])

    def _loosen(self, number: int) -> None:
        """Keep the states of an aggregate as objects from now on: one does not fit."""
        form = self.forms[number]
        if form is not OBJECTS:
            self._columns[number] = (value_list(form.unpack(self._columns[number])),)
            self.forms[number] = OBJECTS

    def _grow(self, size: int) -> None:
        if size > len(self._touched):
            room = size + size // 8 + 16
            self._columns = [tuple(_grown(part, room) for part in parts) for parts in self._columns]
            self._touched = _grown(self._touched, room)

    def _add(self, keys: Keys) -> None:
        self._index.add(keys, self._size)
        self._size += len(keys)

    def __len__(self) -> int:
        return self._size + sum(self._index.get(key) < 0 for key in list(self._lately))

    def __iter__(self) -> Iterator[Any]:
        lately = list(self._lately)
        return iter(dict.fromkeys([*self._written(), *lately]))

    def _written(self) -> list[Any]:
        """Return the keys that the columns have."""
        return self._index.listed(self._size)

    def __contains__(self, key: Any) -> bool:
        return key in self._lately or self._index.get(key) >= 0

    def get(self, key: Any, default: Any = None) -> Any:
        state = self._lately.get(key)
        if state is not None:
            return state
        slot = self._index.get(key)
        return default if slot < 0 else self._state(slot)

    def __getitem__(self, key: Any) -> list[Any]:
        state: list[Any] | None = self.get(key)
        if state is None:
            raise KeyError(key)
        return state

    def _state(self, slot: int) -> list[Any]:
        here = slice(slot, slot + 1)  # a view: far less than to gather
        columns = zip(self.forms, self._columns, strict=True)
        return [form.unpack(tuple(part[here] for part in parts))[0] for form, parts in columns]

    def items(self) -> Any:
        lately, keys = dict(self._lately), self._written()
        columns = [
            form.unpack(parts) for form, parts in zip(self.forms, self.gather(np.arange(len(keys))), strict=True)
        ]
        states = dict(zip(keys, map(list, zip(*columns, strict=True)), strict=True))
        return (states | lately).items()

    def __setitem__(self, key: Any, state: Any) -> None:
        self._lately[key] = state
        if len(self._lately) > _LATELY:
            self._flush()

    def update(self, states: Any = (), /, **_: Any) -> None:
        if len(states) > _BY_ONE:
            self._flush()
            self._write(states)
        else:
            self._lately.update(states)
            if len(self._lately) > _LATELY:
                self._flush()

    def __delitem__(self, key: Any) -> None:
        rest = dict(self.items())
        del rest[key]
        self.clear()
        self.update(rest)

    @property
    def touched(self) -> int:
        """How many keys have changed since `settle`."""
        self._flush()
        return int(np.count_nonzero(self._touched[: self._size]))

    def settle(self) -> None:
        """Note no change so far."""
        self._flush()
        self._touched[:] = False

    def saved(self, full: bool) -> Saved:
        """Return the states of all keys, or of those that have changed, for pickling; the same bytes for the same."""
        self._flush()
        wanted = np.ones(self._size, bool) if full else self._touched[: self._size]
        keys: Any
        if isinstance(self._index, WholeNumbers) and not (self._index.null >= 0 and wanted[self._index.null]):
            ascending, slots = self._index.ascending(wanted)
            keys = ascending.tobytes()
        else:
            every = self._written()
            chosen = sorted(np.flatnonzero(wanted).tolist(), key=lambda slot: hash_value(every[slot]))
            slots, keys = np.array(chosen, np.int64), [every[slot] for slot in chosen]
        columns = zip(self.forms, self.gather(slots), strict=True)
        return _MARK, keys, [(form.name, [_plain(part) for part in parts]) for form, parts in columns]

    @property
    def bytes(self) -> int:
        numbers = sum(part.nbytes for parts in self._columns for part in parts) + self._touched.nbytes
        objects = sum(form is OBJECTS for form in self.forms) * self._size
        return numbers + self._index.bytes + _ENTRY * (objects + len(self._lately))

    def load(self, saved: Saved) -> None:
        keys, forms, columns = _read(saved)
        if not self._whole:
            keys = listed_keys(keys)
        self.scatter(keys, self.find(keys), forms, columns)


def is_saved(changed: Any) -> bool:
    """Tell whether something that was read is saved columns; it is a dict otherwise."""
    return isinstance(changed, tuple) and changed[0] == _MARK


def saved_states(saved: Saved) -> Mapping[Any, Any]:
    keys, forms, columns = _read(saved)
    values = [form.unpack(parts) for form, parts in zip(forms, columns, strict=True)]
    return dict(zip(listed_keys(keys), map(list, zip(*values, strict=True)), strict=True))


def _read(saved: Saved) -> tuple[Keys, list[Form], list[Parts]]:
    _, keys, columns = saved
    found = keys if isinstance(keys, list) else np.frombuffer(keys, np.int64)
    return found, [FORMS[name] for name, _ in columns], [tuple(map(_array, parts)) for _, parts in columns]


def listed_keys(keys: Keys) -> list[Any]:
    return keys if isinstance(keys, list) else np.asarray(keys).tolist()


def _plain(part: npt.NDArray[Any]) -> tuple[str, Any]:
    return ("O", part.tolist()) if part.dtype == object else (part.dtype.str, part.tobytes())


def _array(plain: tuple[str, Any]) -> npt.NDArray[Any]:
    return value_list(plain[1]) if plain[0] == "O" else np.frombuffer(plain[1], np.dtype(plain[0]))


def _grown(part: npt.NDArray[Any], room: int) -> npt.NDArray[Any]:
    grown = np.zeros(room, part.dtype)
    grown[: len(part)] = part
    return grown
