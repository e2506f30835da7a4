"""What the rows of a stream are: as a user declares it, as a function is annotated, as sample rows show it."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import pyarrow as pa

from penstock.errors import FlowError, RowTypeError
from penstock.rows.records import Form, Record, Row, RowType, arrow_type, record_type
from penstock.rows.values import MISFITS, column_of

if typing.TYPE_CHECKING:
    from typing_extensions import TypeVar

    # What a checker cannot know is Any: `ps.Stream` alone is a stream of any rows.
    RowT_co = TypeVar("RowT_co", covariant=True, default=Any)
    OutT = TypeVar("OutT", default=Any)
    StateT = TypeVar("StateT", default=Any)
else:
    RowT_co = typing.TypeVar("RowT_co", covariant=True)
    OutT, StateT = typing.TypeVar("OutT"), typing.TypeVar("StateT")


RowT_contra = typing.TypeVar("RowT_contra", contravariant=True)
ResultT_co = typing.TypeVar("ResultT_co", covariant=True)


class WithClient(typing.Protocol[RowT_contra, ResultT_co]):
    """A function of a row and of what `setup=` made.

    No `Callable`: of two in a union, a checker would not know what the arguments of a lambda are.
    """

    def __call__(self, row: RowT_contra, client: Any, /) -> ResultT_co:
        """Return what the row becomes."""


class ArrowSchema(typing.Protocol):
    """A `pyarrow.Schema`, of which a checker knows nothing."""

    @property
    def names(self) -> list[str]:
        """The fields."""

    @property
    def metadata(self) -> Any:
        """What else Arrow keeps of them."""


Schema: typing.TypeAlias = type[OutT] | Mapping[str, Any] | ArrowSchema | RowType
"""What may be declared of rows: their class, fields with their types, or an Arrow schema."""
Returned: typing.TypeAlias = typing.Union[Mapping[str, Any], OutT]  # noqa: UP007
"""What functions return for a row: the row, or a dict of its fields, which does not tell a checker what the row is."""
Several: typing.TypeAlias = Iterable[OutT] | AsyncIterable[OutT] | Awaitable[Iterable[OutT]]
"""What functions return that give any number of rows for one."""
UNSET: Any = None
"""The default of an argument whose type other arguments tell."""


def row_type(declared: Any, operator: str) -> RowType | None:
    """Make the row type of what a user declared: a schema, a dict of types, a class, or a plain type."""
    if declared is None or isinstance(declared, RowType):
        return declared
    if isinstance(declared, pa.Schema):
        required = frozenset(field.name for field in declared if not field.nullable)
        return dataclasses.replace(record_type(declared), required=required)
    if isinstance(declared, dict):
        fields = {name: kind if isinstance(kind, pa.DataType) else arrow_type(kind) for name, kind in declared.items()}
        for name, kind in fields.items():
            _refuse_field(name, kind, declared[name], operator)
        may_lack = frozenset(name for name, kind in declared.items() if _allows_none(kind))
        made = record_type(pa.schema(list(fields.items())))
        return dataclasses.replace(made, may_lack=may_lack, required=frozenset(fields) - may_lack)
    if isinstance(declared, type) or typing.get_origin(declared) is not None:
        _refuse_fields(declared, operator)
        return type_from_annotation(declared)
    raise FlowError(
        f"operator {operator!r}: schema={declared!r} is not a schema; give a dataclass, NamedTuple, "
        f"TypedDict, a dict of field to type, or a pyarrow.Schema"
    )


def _refuse_fields(declared: Any, operator: str) -> None:
    """Refuse a class as a schema where one of its fields has no Arrow type; an annotation may have such fields."""
    if dataclasses.is_dataclass(declared) or hasattr(declared, "_fields") or typing.is_typeddict(declared):
        try:
            hints = typing.get_type_hints(declared, include_extras=True)
        except (NameError, TypeError) as error:
            raise FlowError(f"operator {operator!r}: schema={declared!r} cannot be read: {error}") from None
        for name, hint in hints.items():
            _refuse_field(name, arrow_type(hint), hint, operator)


def _refuse_field(name: str, kind: pa.DataType | None, declared: Any, operator: str) -> None:
    if kind is None:
        raise FlowError(
            f"operator {operator!r}: the field {name!r} is declared as {declared!r}, which has no Arrow type; use int, "
            f"float, str, bool, bytes, datetime, date, timedelta, list[...], one of these or None, or a pyarrow type: "
            f"Annotated[Decimal, pa.decimal128(12, 2)] in a class"
        )


def type_from_annotation(annotation: Any) -> RowType | None:
    """Make the row type of an annotation, or None where the rows are arbitrary objects."""
    if isinstance(annotation, type) and (
        dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields") or typing.is_typeddict(annotation)
    ):
        return _class_type(annotation)
    kind = arrow_type(annotation)
    if kind is None:
        return None
    required = frozenset[str]() if _allows_none(annotation) else frozenset(["value"])
    return RowType(pa.schema([pa.field("value", kind)]), "scalar", required=required)


def _class_type(cls: type) -> RowType | None:
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError):
        return None  # annotations that cannot be resolved: the rows cross a shuffle pickled
    if dataclasses.is_dataclass(cls):
        names, form = [f.name for f in dataclasses.fields(cls)], "dataclass"
    elif typing.is_typeddict(cls):
        names, form = list(hints), "dict"
    else:
        names, form = list(cls._fields), "tuple"  # type: ignore[attr-defined]
    kinds = [arrow_type(hints.get(name)) for name in names]
    if any(kind is None for kind in kinds):
        return None
    schema = pa.schema([pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)])
    optional = _optional(cls) if form == "dict" else frozenset[str]()
    may_lack = frozenset(
        name for name in names if name in optional | _makers(cls).keys() or _allows_none(hints.get(name))
    )
    return RowType(
        schema,
        typing.cast(Form, form),
        cls,
        optional,
        may_lack=may_lack,
        required=frozenset(names) - may_lack,
    )


def _makers(cls: Any) -> dict[str, Callable[[], Any]]:
    """Return what makes the defaults of a class's fields; a TypedDict has none."""
    if not dataclasses.is_dataclass(cls):
        return {name: repeat(value).__next__ for name, value in getattr(cls, "_field_defaults", {}).items()}
    return {
        field.name: repeat(field.default).__next__
        if field.default_factory is dataclasses.MISSING
        else field.default_factory
        for field in dataclasses.fields(cls)
        if not (field.default is dataclasses.MISSING is field.default_factory)
    }


def source_type(row: RowType, source: str, *, strict: bool) -> RowType:
    """Return the type of a source's rows: what they may leave out, and what they get instead."""
    if row.form == "dataclass" and row.cls is not None:
        computed = [field.name for field in dataclasses.fields(row.cls) if not field.init]
        if computed:
            raise FlowError(
                f"source {source!r}: the field {computed[0]!r} of {row.cls.__name__} cannot be given (init=False), so "
                f"no row could be made of what is read; make it a property"
            )
    fields = []
    for name, make in _makers(row.cls).items():
        value, kind = None, row.schema.field(name).type
        try:
            value, again = make(), make()
            column_of([value], kind)
        except Exception as error:
            raise FlowError(
                f"source {source!r}: the default of the field {name!r} does not fit its type, {kind}: "
                f"{str(error).splitlines()[0]}"
            ) from None
        # What is another one each time would differ when a run is repeated: the field is null then.
        if value is not None and (again is value or again == value):
            fields.append((name, value))
    return dataclasses.replace(row.lenient(strict=strict), defaults=tuple(fields))


def _allows_none(annotation: Any) -> bool:
    if typing.get_origin(annotation) in (typing.Annotated, typing.NotRequired, typing.Required):
        return _allows_none(typing.get_args(annotation)[0])
    return type(None) in typing.get_args(annotation)


def _optional(cls: Any) -> frozenset[str]:
    """Return the keys that a TypedDict may leave out; annotations that are text do not tell the class itself."""
    marks = {name: typing.get_origin(hint) for name, hint in typing.get_type_hints(cls, include_extras=True).items()}
    marked = {name for name, mark in marks.items() if mark is typing.NotRequired}
    return frozenset(marked | {name for name in cls.__optional_keys__ if marks[name] is not typing.Required})


def return_annotation(function: Callable[..., Any]) -> Any:
    target: Any = function if not isinstance(function, partial) else function.func
    if not isinstance(target, (types.FunctionType, types.MethodType, type)):
        target = type(target).__call__  # an object that can be called
    try:
        return typing.get_type_hints(target).get("return")
    except (NameError, TypeError, AttributeError):
        return None


def infer_row_type(rows: Sequence[Row]) -> RowType | None:
    """Guess the row type of sample rows: their own class, or the fields of dicts."""
    if not rows:
        return None
    first = rows[0]
    if all(isinstance(row, dict) for row in rows):
        return _infer_fields(rows)
    if all(isinstance(row, Record) for row in rows):
        return _infer_fields([row.asdict() for row in rows])
    if all(type(row) is type(first) for row in rows):
        declared = type_from_annotation(type(first))
        return declared if declared is None or declared.form != "scalar" or _fits(declared, rows) else None
    return None


def _fits(row: RowType, values: Sequence[Row]) -> bool:
    """Tell whether bare values fit their type: a Python integer may be too large for Arrow."""
    try:
        row.encode(values)
    except RowTypeError:
        return False
    return True


def _infer_fields(rows: Sequence[dict[str, Any]]) -> RowType | None:
    """Guess the fields of dicts; one that is missing here and there is null there."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        kinds = [(name, pa.array([row.get(name) for row in rows]).type) for name in names]
        return record_type(pa.schema(kinds)).lenient()
    except MISFITS:
        return None
