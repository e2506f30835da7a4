"""Directories of files that a commit makes visible: what they are, where they may be, and their partitions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.files import FileFormat
from penstock.connectors.interfaces import Writer
from penstock.connectors.paths import is_file, is_hidden
from penstock.connectors.retries import retried
from penstock.errors import FlowError

if TYPE_CHECKING:
    from penstock.plan.graph import SinkNode
    from penstock.plan.plan import Plan

FILE_SIZE = 128_000_000
"""Bytes of a file, where the user says nothing."""
LARGE_PART = 8_000_000
"""By default: bytes from which what a task wrote stays a file of its own, and is not copied."""
LAST_PART = 1_000_000
"""The same of an epoch whose rows are to appear with its commit, which would have to wait for the copy."""
ROLL_SECONDS = 10.0
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark call the partition of null."""
PartFile = tuple[str, int, int, int]
"""What was written of some rows: name, rows, bytes, and a number that tells which files have the same fields."""
_NO_NAMES = (pa.types.is_floating, pa.types.is_binary, pa.types.is_duration, pa.types.is_time)
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")


@dataclass(frozen=True)
class Retain:
    """How much of what was published is kept: files, bytes, or seconds; None where that does not matter."""

    files: int | None = None
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Directory(Writer):
    """A directory of files that appear whole: `epoch=N/part-00000.parquet`, or `k=1/part-N-00000.parquet`.

    Names tell the order, and N is the last epoch that a file has rows of.
    """

    path: str
    format: FileFormat
    header: bool = True
    file_size: int | None = None
    roll_every: float = ROLL_SECONDS
    retain: Retain | None = None
    _: KW_ONLY
    partition_by: tuple[str, ...] = ()

    @property
    def files(self) -> Directory:
        return self

    @property
    def directory(self) -> Directory:
        return self

    @property
    def full(self) -> int:
        """Bytes from which what waits becomes a file."""
        return FILE_SIZE if self.file_size is None else self.file_size

    @property
    def large(self) -> int:
        """Bytes from which the file of one task stays as it is."""
        return LARGE_PART if self.file_size is None else max(1, self.file_size // 2)

    @property
    def last(self) -> int | None:
        """The same for an epoch that appears with its commit; None where the user says how large files are."""
        return LAST_PART if self.file_size is None else None


def sink_directories(plan: Plan) -> list[tuple[SinkNode, Directory]]:
    """Return the sinks that write directories; refuse those whose rows another would replace, or take for its own."""
    by_place: dict[str, tuple[SinkNode, Directory]] = {}
    for node in plan.sinks:
        writer = node.operator.writer.directory
        if writer is None:
            continue
        row = plan.row_type(node.inputs[0])
        if row is not None:
            check_fields(node.name, writer, row.schema)
        place = _real(writer.path)
        for other, (one, _) in by_place.items():
            if other == place:
                raise FlowError(
                    f"the sinks {one.name!r} and {node.name!r} both write to {writer.path}; give each a directory of "
                    f"its own"
                )
            inner, outer = (node, one) if _is_inside(place, other) else (one, node)
            if _is_inside(place, other) or _is_inside(other, place):
                raise FlowError(
                    f"the directory of sink {inner.name!r} is inside that of sink {outer.name!r}, whose "
                    f"readers would take its files for rows; put them beside each other"
                )
        _refuse_source(plan, node.name, writer.path, place)
        by_place[place] = node, writer
    return list(by_place.values())


def _refuse_source(plan: Plan, sink: str, path: str, place: str) -> None:
    for source in plan.sources:
        where = source.operator.reader.directory
        if where is not None:
            read = _real(where)
            if place == read or (_is_inside(place, read) and not is_hidden(place[len(read) :])):
                raise FlowError(
                    f"sink {sink!r} writes to {path}, which source {source.name!r} reads with all that is below "
                    f"{where}: the flow would read its own rows; write elsewhere"
                )


def _real(path: str) -> str:
    """Return one name for a place, whatever dots and links are in the path."""
    return path.rstrip("/") if "://" in path else os.path.realpath(path)


def _is_inside(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def refuse_file(sink: str, writer: Directory) -> None:
    if retried(lambda: is_file(writer.path), f"sink {sink!r}: looking at", writer.path):
        raise FlowError(f"sink {sink!r}: {writer.path} is a file; give a directory")


def refuse_strangers(sink: str, writer: Directory, names: Iterable[str]) -> None:
    """Refuse a directory that holds files of others, by the names in it: readers could not tell them apart."""
    own = ("epoch=", ".", *(f"{name}=" for name in writer.partition_by[:1]))
    others = sorted(name for name in names if name != "_penstock" and not name.startswith(own))
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise FlowError(
            f"sink {sink!r}: {writer.path} holds files that no run of Penstock has written ({others[0]}{more}), which "
            f"readers of the directory would take for rows; write to a directory of its own, or move them away"
        )


def check_fields(sink: str, writer: Directory, schema: pa.Schema) -> None:
    """Refuse fields that a format cannot hold, and partitions by those that are not there or have no plain values."""
    for field in schema:
        nested = pa.types.is_nested(field.type) and writer.format == "csv"
        if writer.format != "parquet" and (nested or pa.types.is_binary(field.type)):
            raise FlowError(
                f"sink {sink!r}: {writer.format} has no form for the field {field.name!r} ({field.type}); write "
                f"Parquet, or make a text of it first"
            )
    by = writer.partition_by
    for name in by:
        if name not in schema.names:
            raise FlowError(
                f"sink {sink!r}: partition_by names {name!r}, and the rows have the fields {', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or any(unfit(kind) for unfit in _NO_NAMES):
            raise FlowError(
                f"sink {sink!r}: partition_by names {name!r}, whose values ({kind}) make no good names of directories; "
                f"add a field of text or whole numbers"
            )
    if set(schema.names) <= set(by):
        raise FlowError(f"sink {sink!r}: partition_by names all fields, so that files would have none; leave one out")


def partitions(batches: Iterable[pa.RecordBatch], by: tuple[str, ...]) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
    """Return the rows of each partition, in order and without its fields, after its directory: "day=1/kind=a"."""
    by_label: dict[str, list[pa.RecordBatch]] = {}
    for batch in batches:
        names = [_segments(name, batch.column(name)) for name in by]
        labels = names[0] if len(by) == 1 else pc.binary_join_element_wise(*names, "/")
        encoded = labels.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        rest = batch.drop_columns(list(by))
        for code, label in enumerate(encoded.dictionary.to_pylist()):
            some = rest if len(encoded.dictionary) == 1 else rest.take(pa.array(np.flatnonzero(codes == code)))
            by_label.setdefault(label, []).append(some)
    yield from by_label.items()


def _segments(name: str, column: pa.Array) -> pa.Array:
    """Return the directory of each value, with the signs escaped that Hive, Spark and Arrow escape."""
    encoded = column.dictionary_encode() if not pa.types.is_dictionary(column.type) else column
    values = [f"{_escaped(name)}={_escaped(value)}" for value in encoded.dictionary.to_pylist()]
    values.append(f"{_escaped(name)}={NO_VALUE}")
    return pa.array(values, pa.string()).take(pc.fill_null(encoded.indices, len(values) - 1))


def _escaped(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    # An empty name is none for Hive and Spark: it is where the nulls are.
    return _ESCAPED.sub(lambda sign: f"%{ord(sign[0]):02X}", text) or NO_VALUE
