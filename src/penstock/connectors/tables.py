"""Tables for lookups: what they can be, how they are read, what those of a plan have, and when they are read again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.clock import monotonic
from penstock.connectors.files import Files
from penstock.connectors.frame import Frame
from penstock.connectors.interfaces import read_split
from penstock.connectors.sources import Items
from penstock.errors import FlowError, PenstockError, RowTypeError
from penstock.operators.lookup import Lookup
from penstock.rows.records import RowType, record_type
from penstock.rows.row_types import infer_row_type, row_type
from penstock.rows.values import row_fields

if TYPE_CHECKING:
    from penstock.plan.graph import Node
    from penstock.plan.plan import Plan

_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_MANY = 1 << 40
"""More rows than a table has."""


@dataclass(frozen=True, eq=False)
class LookupTable:
    """A table that a user gave: a dict, rows, files, a DataFrame, or a function that returns one of them."""

    given: Any
    keys: tuple[str, ...]
    """What the keys of a dict are called."""
    type: RowType

    @property
    def at_hand(self) -> bool:
        """Whether all rows are in memory, so that they can be looked at before anything runs."""
        return isinstance(self.given, (Mapping, list, tuple, pa.Table, pa.RecordBatch))

    def read(self, name: str) -> pa.Table:
        return _read(_once(self.given, name), self.keys, self.type, name)


def make_table(given: Any, keys: tuple[str, ...], schema: Any, name: str) -> LookupTable:
    """Make a table of what a user gave, with the type of its rows, or refuse it."""
    if schema is not None and _reads(given):
        kind = row_type(schema, name)
    else:
        table = _once(given, name)
        kind = row_type(schema, name) if schema is not None else _type_of(table, keys, name)
    if kind is None:
        raise FlowError(
            f"operator {name!r}: the fields of the table are not known; give schema=, or rows that are dicts, "
            f"dataclasses or NamedTuples of one class"
        )
    return LookupTable(given, keys, record_type(kind.schema).lenient())


def _reads(given: Any) -> bool:
    return callable(given) and not isinstance(given, type) and not hasattr(given, "isStreaming")


def _once(given: Any, name: str) -> Any:
    """Return what a table is, calling a function that reads it."""
    if _reads(given):
        try:
            given = given()
        except PenstockError:
            raise
        except Exception as error:
            raise FlowError(
                f"operator {name!r}: the function that reads its table failed: {type(error).__name__}: {error}"
            ) from error
    if isinstance(given, (str, Path)):
        path = str(given)
        return Files(path, _FORMATS.get(Path(path).suffix.lower(), "parquet"))  # type: ignore[arg-type]
    if hasattr(given, "isStreaming"):
        given = Frame(given)
    if isinstance(given, Frame) and given.streaming:
        raise FlowError(
            f"operator {name!r}: its table is a streaming DataFrame; make it a source of the flow, and look rows up in "
            f"that stream"
        )
    if isinstance(given, Files) and given.follow:
        raise FlowError(
            f"operator {name!r}: its table is read with follow=True; leave that out and give refresh=, or make it a "
            f"source of the flow, and look rows up in that stream"
        )
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if type(given).__module__.partition(".")[0] == "pandas" and hasattr(given, "columns"):
        # A named index is a column for its author.
        named = any(name is not None for name in given.index.names)
        return pa.Table.from_pandas(given.reset_index() if named else given, preserve_index=False)
    if isinstance(given, Items):
        given = given.items
    good = isinstance(given, (Mapping, Files, Frame, pa.Table)) or (
        isinstance(given, Iterable) and not isinstance(given, (bytes, Iterator))
    )
    if not good:
        raise FlowError(
            f"operator {name!r}: {given!r} is no table; give a dict, a list of rows, the path of Parquet files, "
            f"ps.read.csv(...) or the like, a Spark, pandas or Arrow table, a function that returns one of these, or a "
            f"stream"
        )
    return given


def _type_of(table: Any, keys: tuple[str, ...], name: str) -> RowType | None:
    if isinstance(table, (Files, Frame)):
        return table.row_type(name)
    if isinstance(table, pa.Table):
        return record_type(table.schema)
    return infer_row_type(_rows(table, keys, name))


def _rows(table: Any, keys: tuple[str, ...], name: str) -> list[Any]:
    """List the rows of a dict, each with its key, or of a list; what is no row in a dict has the one field `value`."""
    if not isinstance(table, Mapping):
        return list(table)
    rows = []
    for key, value in table.items():
        values = key if len(keys) > 1 else (key,)
        if not isinstance(values, tuple) or len(values) != len(keys):
            raise FlowError(
                f"operator {name!r}: the key {key!r} of its table is no tuple of {len(keys)} values, one for each of "
                f"{', '.join(keys)}"
            )
        own, named = row_fields(value), dict(zip(keys, values, strict=True))
        fields = {"value": value} if own is None else own
        other = [each for each in keys if each in fields and fields[each] != named[each]]
        if other:
            raise FlowError(
                f"operator {name!r}: the table has {fields[other[0]]!r} in the field {other[0]!r} of the row whose key "
                f"is {key!r}, and on= calls the key so, too; give the key another name: on={{field of the row: name}}"
            )
        rows.append({**fields, **named})
    return rows


def _read(table: Any, keys: tuple[str, ...], kind: RowType, name: str) -> pa.Table:
    if isinstance(table, Files):
        batches = list(_batches(table, kind, name))
        return pa.Table.from_batches(batches, kind.schema)
    if isinstance(table, Frame):
        table = table.collect()
    if isinstance(table, pa.Table):
        missing = [field for field in kind.names if field not in table.schema.names]
        if missing:
            raise FlowError(f"operator {name!r}: its table has no field {missing[0]!r} any more; it had when it began")
        try:
            return table.select(kind.names).cast(kind.schema)
        except (pa.ArrowException, ValueError) as error:
            raise FlowError(f"operator {name!r}: its table does not fit its schema: {error}") from None
    try:
        return pa.Table.from_batches([kind.encode(_rows(table, keys, name))])
    except RowTypeError as error:
        raise FlowError(f"operator {name!r}: a row of its table does not fit: {error}; give schema=") from None


def _batches(reader: Files, kind: RowType, name: str) -> Iterator[pa.RecordBatch]:
    feed = reader.feed(name, monotonic)
    while (slice_ := feed.poll(_MANY)) is not None:
        for split in slice_.splits:
            for piece in read_split(reader, kind, split, name):
                yield kind.encode(piece.rows or []) if piece.columns is None else piece.columns
    feed.close()


def lookups(plan: Plan) -> dict[str, Lookup]:
    return {name: node.operator for name, node in plan.nodes.items() if isinstance(node.operator, Lookup)}


def read_table(lookup: Lookup, name: str) -> pa.Table:
    table: pa.Table = lookup.table.read(name).select(lookup.columns)
    return table


def with_content(plan: Plan, name: str, table: pa.Table) -> Plan:
    node = plan.nodes[name]
    assert isinstance(node.operator, Lookup)
    changed = dataclasses.replace(node, operator=node.operator.over(table, name))
    return dataclasses.replace(plan, graph=plan.graph.replaced({name: changed}))


def loaded(plan: Plan, known: Plan | None = None) -> Plan:
    """Return the plan with the content of all tables: as a known plan has them, else as they are now."""
    nodes: dict[str, Node] = {}
    for name, lookup in lookups(plan).items():
        node = plan.nodes[name]
        if lookup.content is None:
            operator = None if known is None or name not in known.nodes else known.nodes[name].operator
            with_table = operator if isinstance(operator, Lookup) else lookup.over(read_table(lookup, name), name)
            nodes[name] = dataclasses.replace(node, operator=with_table)
    return dataclasses.replace(plan, graph=plan.graph.replaced(nodes)) if nodes else plan


class Refreshing:
    """Says when tables are due to be read again."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        """Begin with tables that have just been read."""
        self._clock = clock
        self._read: dict[str, float] = {}
        self.change(plan)

    def change(self, plan: Plan) -> None:
        """Have the tables of another plan; those that are new have just been read."""
        self._lookups = {name: lookup for name, lookup in lookups(plan).items() if lookup.refresh is not None}
        now = self._clock() if self._lookups else 0.0
        self._read = {name: self._read.get(name, now) for name in self._lookups}

    def forget(self, names: Iterable[str]) -> None:
        """Have tables read as soon as they are asked for."""
        self._read.update({name: float("-inf") for name in names if name in self._lookups})

    def due(self) -> Iterator[tuple[str, Lookup]]:
        """Return the tables that are due; they count as read from now on."""
        if not self._lookups:
            return
        now = self._clock()
        for name, lookup in self._lookups.items():
            assert lookup.refresh is not None
            if now - self._read[name] >= lookup.refresh:
                self._read[name] = now
                yield name, lookup
