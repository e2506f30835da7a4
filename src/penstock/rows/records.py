"""Turn rows into Arrow columns and back: one `RowType` for each declared stream.

A row is whatever the user's functions see: a `Record` (named fields, made from a schema), an instance of the
user's own NamedTuple or dataclass, a dict (TypedDict), or a bare value. A stream without a declared type has
the type None, and its rows cross a shuffle pickled.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime as dt
import sys
import types
import typing
from collections import namedtuple
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain, repeat, starmap
from operator import attrgetter, itemgetter
from typing import Any, Literal

import pyarrow as pa

from penstock.errors import MissingFieldError, RowTypeError, UnknownFieldError
from penstock.rows.values import MISFITS, column_of, column_values, come_back, snapshot

Row = Any
Form = Literal["record", "tuple", "dataclass", "dict", "scalar"]

TIMESTAMP = pa.timestamp("us", "UTC")
_SCALARS: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    dt.datetime: TIMESTAMP,
    dt.date: pa.date32(),
    dt.timedelta: pa.duration("us"),
}
_BARE = (*_SCALARS, type(None))
_TAKING_TURNS = getattr(sys, "_is_gil_enabled", lambda: True)()
_SAME_BACK = {_SCALARS[kind]: kind for kind in (bool, int, float, str, dt.datetime)}


class Record(tuple[Any, ...]):
    """Hold one row's values; read them as `row.field`, `row["field"]` or by index, all of them by `dict(row)`."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            try:
                index = self._fields.index(index)
            except ValueError:
                raise KeyError(f"no field {index!r}; the fields are {', '.join(self._fields)}") from None
        return tuple.__getitem__(self, index)

    if typing.TYPE_CHECKING:  # a type checker cannot know the fields

        def __getattr__(self, name: str) -> Any: ...

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields: what `dict(row)` and `**row` go by."""
        return self._fields

    def asdict(self) -> dict[str, Any]:
        """Return the row as a dict of field to value."""
        return dict(zip(self._fields, self, strict=True))

    def replace(self, **changes: Any) -> Record:
        """Return a copy with some fields changed."""
        unknown = changes.keys() - set(self._fields)
        if unknown:
            raise KeyError(f"no field {sorted(unknown)[0]!r}; the fields are {', '.join(self._fields)}")
        values = [changes.get(name, value) for name, value in zip(self._fields, self, strict=True)]
        return make_record(self._fields, values)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={_value_text(value)}" for name, value in zip(self._fields, self, strict=True))
        return f"Row({inside})"

    def __reduce__(self) -> tuple[Any, ...]:
        return make_record, (self._fields, tuple(self))


def _value_text(value: Any) -> str:
    """Show a value; a time with a zone by its offset, since Arrow has another object for the zone than the user."""
    return str(value) if isinstance(value, dt.datetime) and value.tzinfo is not None else repr(value)


_classes: dict[tuple[str, ...], type[Record]] = {}


def record_class(names: tuple[str, ...]) -> type[Record]:
    """Return the record class of these field names; the same names always give the same class, in any thread."""
    found = _classes.get(names)
    # `setdefault` is one step: of two threads that make the class at once, both get the first one's.
    return _classes.setdefault(names, _make_class(names)) if found is None else found


def _make_class(names: tuple[str, ...]) -> type[Record]:
    # The getters of a named tuple run in C. Names that are no identifiers stay readable as row["a name"].
    base: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    slots: tuple[str, ...] = base._fields
    getters = {name: base.__dict__[slot] for name, slot in zip(names, slots, strict=True)}
    return type("Row", (Record,), {**getters, "__slots__": (), "_fields": names})


def make_record(names: Sequence[str], values: Iterable[Any]) -> Record:
    """Make one record; the inverse of pickling it."""
    return tuple.__new__(record_class(tuple(names)), values)


@dataclasses.dataclass(frozen=True)
class RowType:
    """Describe a declared stream: its Arrow schema, and the Python form that its rows take."""

    schema: pa.Schema
    form: Form
    cls: type | None = None
    optional: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    """Fields that a row may leave out, and that are null then: of sources, and where the type says so."""
    defaults: tuple[tuple[str, Any], ...] = dataclasses.field(default=(), compare=False, kw_only=True)
    """What a row of a source gets for a field without a value."""
    may_lack: frozenset[str] = dataclasses.field(default=frozenset(), compare=False, kw_only=True)
    """Fields that were declared to be optional, or with a default: a file need not have their columns."""
    required: frozenset[str] = dataclasses.field(default=frozenset(), compare=False, kw_only=True)
    """Fields that must have a value, where a source asks for that."""

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def decode(self, columns: pa.RecordBatch | pa.Table) -> list[Row]:
        return list(self.iterate(columns)[0])

    def iterate(
        self, columns: pa.RecordBatch | pa.Table, known: Mapping[str, list[Any]] | None = None
    ) -> tuple[Iterator[Row], Callable[[], int]]:
        """Make the rows of a record batch one by one: they need not all be there at once; of some fields the values
        may be known.

        Also return what tells how many are still to come, for callers that seldom ask: counting would cost every row.
        """
        known = known or {}
        lists = [
            known[name] if name in known else column_values(columns.column(i)) for i, name in enumerate(self._names)
        ]
        first: Any = iter(lists[0] if lists else [()] * columns.num_rows)
        rows = first if self.form == "scalar" else self._rows(zip(first, *lists[1:], strict=True) if lists else first)
        return rows, first.__length_hint__

    def _rows(self, values: Iterator[tuple[Any, ...]]) -> Iterator[Row]:
        if self.form == "dict":
            names = self.schema.names
            return (dict(zip(names, row, strict=True)) for row in values)
        if self.form == "dataclass":
            assert self.cls is not None
            if any(field.kw_only for field in dataclasses.fields(self.cls)):
                return (self.cls(**dict(zip(self.schema.names, row, strict=True))) for row in values)
            return starmap(self.cls, values)
        return self._as_tuples(values)

    def _as_tuples(self, values: Iterable[tuple[Any, ...]]) -> Iterator[Row]:
        """Make rows that are tuples as fast as their class allows; a named tuple's own `__new__` is in Python."""
        cls = self.row_class
        if cls.__new__ is tuple.__new__ and cls.__init__ is object.__init__:
            return map(cls, values)
        return map(tuple.__new__, repeat(cls), values)

    def encode(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Make a record batch of rows; raise `RowTypeError` naming the first value that does not fit."""
        columns = self._columns(rows)
        arrays = []
        for field, values in zip(self.schema, columns, strict=True):
            try:
                arrays.append(column_of(values, field.type))
            except MISFITS:
                raise self._misfit(rows, field, values) from None
        return self._batch(arrays, len(rows))

    def encode_columns(self, columns: Sequence[Sequence[Any]], rows: int) -> pa.RecordBatch:
        """Make a record batch of the values of each field; raises one of `MISFITS` where a value does not fit."""
        return self._batch([column_of(v, field.type) for field, v in zip(self.schema, columns, strict=True)], rows)

    def _batch(self, arrays: list[pa.Array], rows: int) -> pa.RecordBatch:
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def lenient(self, *, strict: bool = False) -> RowType:
        """Return the type with fields that may be left out: sources have rows as they come, unless asked for more."""
        required = self.required if strict else frozenset[str]()
        return dataclasses.replace(self, optional=frozenset(self.schema.names), required=required)

    def normalize(self, row: Row) -> Row:
        """Give a dict or dataclass that a function returned the record form that its schema declares."""
        cls = type(row)
        if self.form != "record" or cls is self.row_class:
            return row
        if cls is tuple and len(row) == len(self._names):
            return tuple.__new__(self.row_class, row)
        read = self.reader(cls)
        if read is not None and (cls is not dict or len(row) == len(self._names)):
            with contextlib.suppress(KeyError, AttributeError):  # said below
                return tuple.__new__(self.row_class, read(row))
        return tuple.__new__(self.row_class, self._values(row, 0))

    def detach(self, row: Row) -> Row:
        """Return a row as `normalize` does, with nothing in it that a function may still change."""
        made = self.normalize(row)
        if self.has_changeable:
            return snapshot(made)
        return copy.copy(made) if made is row and self.form in ("dict", "dataclass") else made

    @cached_property
    def has_changeable(self) -> bool:
        """Whether there are fields whose values can be changed in place: lists and the like, a bytearray."""
        return any(pa.types.is_nested(field.type) or "binary" in str(field.type) for field in self.schema)

    @property
    def can_change(self) -> bool:
        """Whether rows, or what is in them, can be changed in place."""
        return self.has_changeable or self.form in ("dict", "dataclass")

    def reader(self, cls: type) -> Callable[[Row], tuple[Any, ...]] | None:
        """Return what reads all values of a row of a class, in order of the fields; None where it takes a closer look.

        A dict must have been counted: it may have other keys, too.
        """
        if cls not in self._readers:
            self._readers[cls] = self._make_reader(cls)
        return self._readers[cls]

    @cached_property
    def _readers(self) -> dict[type, Callable[[Row], tuple[Any, ...]] | None]:
        return {}

    def _make_reader(self, cls: type) -> Callable[[Row], tuple[Any, ...]] | None:
        names = self._names
        if cls is dict and len(names) > 1:
            return itemgetter(*names)
        is_data = dataclasses.is_dataclass(cls) and {field.name for field in dataclasses.fields(cls)} == self._name_set
        return attrgetter(*names) if is_data and len(names) > 1 else None

    def is_values(self, cls: type) -> bool:
        """Tell whether each object of a class is a tuple of the values, in order; of bare tuples the length tells."""
        return cls is tuple or (issubclass(cls, tuple) and getattr(cls, "_fields", None) == self._names)

    def is_record(self, cls: type | None) -> bool:
        """Tell whether each object of a class stands for a record as it is, and can stay."""
        return cls is not None and cls is not tuple and self.is_values(cls)

    def records(self, rows: Iterable[tuple[Any, ...]]) -> list[Row]:
        """Make records of bare tuples that have a value for each field; records stay as they are."""
        return list(self._as_tuples(rows))

    def roundtrip(self, row: Row) -> Row:
        """Return the row as it arrives after a shuffle."""
        return row if self._arrives_as_is(row) else self.decode(self.encode([row]))[0]

    @cached_property
    def _python_types(self) -> tuple[type | None, ...]:
        """The Python type of each field whose values Arrow gives back as they were."""
        return tuple(_SAME_BACK.get(field.type) for field in self.schema)

    def _arrives_as_is(self, row: Any) -> bool:
        """Tell whether the columns would give back the same row: then the slow way can be skipped."""
        if self.form not in ("record", "tuple") or type(row) is not self.row_class:
            return False
        if tuple(map(type, row)) != self._python_types:
            return False
        for value, kind in zip(row, self._python_types, strict=True):
            if kind is int and not -(2**63) <= value < 2**63:
                return False
            if kind is str and not value.isascii():
                return False
            if kind is dt.datetime and (value.tzinfo is not dt.UTC or value.fold):
                return False
        return True

    def all_arrive_as_is(self, rows: list[Row]) -> bool:
        """Tell whether columns would give back the same rows, looking at them column by column."""
        kinds = self._python_types
        if self.form == "scalar":
            return come_back(rows, kinds)
        if self.form not in ("record", "tuple") or not kinds or not _all_of(self.row_class, rows):
            return False
        # Much faster than `zip(*rows)`; rows of other lengths are no rows of this class, or their types tell.
        flat = list(chain.from_iterable(rows))
        return len(flat) == len(kinds) * len(rows) and self.values_arrive_as_is(flat)

    def values_arrive_as_is(self, flat: list[Any]) -> bool:
        """Tell whether columns would give back the same values, which are those of one row after the other."""
        return come_back(flat, self._python_types)

    def getter(self, names: Sequence[str]) -> Callable[[Row], Any]:
        """Return a function that reads one field, or a tuple of several, from a row."""
        if self.form == "scalar" or any("." in name for name in names):
            return any_getter(names)  # `attrgetter` would take a dot for a path
        return itemgetter(*names) if self.form == "dict" else attrgetter(*names)

    def __reduce__(self) -> tuple[Any, ...]:
        # What is cached is made anew: classes must stay the same.
        return partial(RowType, **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)}), ()

    @cached_property
    def row_class(self) -> Any:
        """The class of the rows, for the forms that are tuples."""
        return self.cls if self.cls is not None else record_class(tuple(self.schema.names))

    def _columns(self, rows: Sequence[Row]) -> list[Sequence[Any]]:
        """Transpose rows into one sequence of values per field."""
        width = len(self.schema)
        if self.form == "scalar":
            return [rows]
        if not rows:
            return [()] * width
        kinds = set(map(type, rows))
        if width and all(map(self.is_values, kinds)) and (tuple not in kinds or set(map(len, rows)) == {width}):
            flat = list(chain.from_iterable(rows))  # much faster than `zip(*rows)`
            return [flat[number::width] for number in range(width)]
        (cls,) = kinds if len(kinds) == 1 else (None,)
        if cls is not None and self.reader(cls) is not None and (cls is not dict or set(map(len, rows)) == {width}):
            read = itemgetter if cls is dict else attrgetter
            with contextlib.suppress(KeyError, AttributeError):  # found below, row by row
                return [list(map(read(name), rows)) for name in self._names]
        values = [self._values(row, index) for index, row in enumerate(rows)]
        return list(zip(*values, strict=True)) if width else []

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    @cached_property
    def _name_set(self) -> frozenset[str]:
        return frozenset(self.schema.names)

    def _values(self, row: Row, index: int) -> tuple[Any, ...]:
        """Read one row's values in schema order, whatever its form, or say what is missing."""
        names = self._names
        if isinstance(row, dict):
            if row.keys() == self._name_set:
                return tuple([row[name] for name in names])
            extra = row.keys() - self._name_set
            if extra:
                name = sorted(map(str, extra))[0]
                raise UnknownFieldError(index, name, row.get(name), ", ".join(names))
            missing = [name for name in names if name not in row and name not in self.optional]
            if missing:
                raise MissingFieldError(index, missing[0], None, ", ".join(names))
            return tuple(row.get(name) for name in names)
        if isinstance(row, tuple):
            fields = getattr(row, "_fields", None)
            if fields == names:
                return tuple(row)
            if fields is not None and set(fields) == self._name_set:
                return tuple(row[fields.index(name)] for name in names)
            if fields is None and len(row) == len(names):
                return row
            for name, value in zip(fields or (), row, strict=False):
                if name not in self._name_set:
                    raise UnknownFieldError(index, name, value, ", ".join(names))
        elif dataclasses.is_dataclass(row) and {f.name for f in dataclasses.fields(row)} == self._name_set:
            return tuple(getattr(row, name) for name in names)
        raise RowTypeError(index, "(row)", row, f"row with the fields {', '.join(names)}")

    def _misfit(self, rows: Sequence[Row], field: pa.Field, values: Sequence[Any]) -> RowTypeError:
        """Find the first value of a column that Arrow refuses."""
        for number, value in enumerate(values):
            try:
                column_of([value], field.type)
            except MISFITS:
                return RowTypeError(number, field.name, value, str(field.type))
        return RowTypeError(0, field.name, rows[0], str(field.type))


def _all_of(kind: type, rows: Sequence[Row]) -> bool:
    if _TAKING_TURNS:
        return list(map(type, rows)).count(kind) == len(rows)
    # In bytecode, not by `map`: threads that run at once would all count references to the class.
    return not [None for row in rows if type(row) is not kind]


def normalize_schema(schema: pa.Schema) -> pa.Schema:
    """Bring a source's schema to the types that rows use: microsecond timestamps, no dictionaries."""

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind):
            return plain(kind.value_type)
        if pa.types.is_timestamp(kind):
            return pa.timestamp("us", "UTC") if kind.tz else pa.timestamp("us")
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return pa.string()
        if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
            return pa.binary()
        return kind

    return pa.schema([pa.field(f.name, plain(f.type), f.nullable) for f in schema])


def record_type(schema: pa.Schema) -> RowType:
    return RowType(normalize_schema(schema), "record")


def arrow_type(annotation: Any) -> pa.DataType | None:
    """Return the Arrow type of a Python annotation, or None where it has none."""
    if isinstance(annotation, pa.DataType):
        return annotation
    if isinstance(annotation, Hashable) and annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        rest = [part for part in inside if part is not type(None)]
        return arrow_type(rest[0]) if len(rest) == 1 else None
    if origin is list and inside:
        item = arrow_type(inside[0])
        return None if item is None else pa.list_(item)
    if origin in (typing.Annotated, typing.NotRequired, typing.Required):
        return next((part for part in inside[1:] if isinstance(part, pa.DataType)), arrow_type(inside[0]))
    return None


def read_field(row: Row, name: str) -> Any:
    """Read a field of a row of any form; a bare value is its own and only field."""
    if isinstance(row, dict):
        return row[name]
    return row if isinstance(row, _BARE) else getattr(row, name)


def any_getter(names: Sequence[str]) -> Callable[[Row], Any]:
    """Return a function that reads fields from rows of any form; a bare value is its own and only field."""

    if len(names) == 1:
        name = names[0]
        # Records first: they are what most streams consist of.
        return lambda row: getattr(row, name) if isinstance(row, tuple) else read_field(row, name)
    return lambda row: tuple(read_field(row, name) for name in names)
