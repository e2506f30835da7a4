"""Rows of a sink by partition: each value of some fields has a directory of its own, as Hive and Spark have them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.write import NO_VALUE, Directory
from penstock.errors import FlowError

_NO_NAMES = (pa.types.is_floating, pa.types.is_binary, pa.types.is_duration, pa.types.is_time)
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")


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
    found: dict[str, list[pa.RecordBatch]] = {}
    for batch in batches:
        names = [_segments(name, batch.column(name)) for name in by]
        labels = names[0] if len(by) == 1 else pc.binary_join_element_wise(*names, "/")
        encoded = labels.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        rest = batch.drop_columns(list(by))
        for code, label in enumerate(encoded.dictionary.to_pylist()):
            some = rest if len(encoded.dictionary) == 1 else rest.take(pa.array(np.flatnonzero(codes == code)))
            found.setdefault(label, []).append(some)
    yield from found.items()


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
