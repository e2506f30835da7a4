"""Read files of JSON, CSV and plain lines in blocks of whole lines, and find the lines that cannot be read.

Every reader cuts a file into the same blocks, so a row has the same number in every process and every attempt. A block
is parsed at once; only one that fails is halved until the lines are found that are to blame.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from penstock.errors import FlowError

BLOCK_BYTES = 4 << 20
_LONGEST_QUOTED = 1 << 20
"""Bytes of CSV without a newline outside of quotes, after which a quote counts as a mistake."""
MOST_SHOWN = 2000
"""Characters of an unreadable line that are kept."""
# Arrow crashes on a null that stands where a record should, so no such line may reach it. Nearly all lines begin with
# a brace, which is seen much faster.
_NULL_AFTER_RECORD = re.compile(rb"}\s*null")
_HEADER = re.compile(rb"([^\r\n]*[^\s][^\r\n]*)(?:\r?\n|\r|\Z)")
"""The first line that is not blank, with its end, by whichever system: Arrow knows all three in the lines below."""
_NULL_AT_START = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|\n)\s*null")

Parse = Callable[[bytes], pa.Table]


class Unreadable(NamedTuple):
    """What stands where a row should, and cannot be read as one."""

    where: str
    reason: str
    text: str

    @property
    def told(self) -> bool:
        """Whether it is reported: of several rows that cannot be read for one reason, only the first is."""
        return bool(self.reason)


UNTOLD = Unreadable("", "", "")


@dataclass
class TextRows:
    """Rows of a file in order; those that cannot be read are null in all columns."""

    columns: pa.RecordBatch
    unreadable: dict[int, Unreadable] = field(default_factory=dict)
    """By the number of the row in `columns`."""


class _Line(NamedTuple):
    number: int
    """Counted from 1, as editors do."""
    content: bytes


def read_text(
    format: str, options: Mapping[str, Any], schema: pa.Schema, file: Any, fit: Callable[[pa.Table], pa.Table]
) -> Iterator[TextRows]:
    """Read a file from its start. `fit` brings a table to the schema, or raises `pa.ArrowInvalid`."""
    number, parse = 1, _parser(format, options, schema)
    split = partial(_split_csv, options.get("delimiter", ",")) if format == "csv" else _split
    for lines in _blocks(file, format):
        if format == "text":
            yield TextRows(_plain(lines, schema))
        elif parse is None:
            parse, skipped, rest = _after_header(options, schema, lines)
            if parse is not None and rest.strip():
                yield from _rows(rest, number + skipped, parse, schema, fit, split)
        elif lines.strip():
            yield from _rows(lines, number, parse, schema, fit, split)
        number += lines.count(b"\n") + 1


def _blocks(file: Any, format: str) -> Iterator[bytes]:
    """Return the lines of a file, many at once, without the newline after the last of them."""
    begun = b""
    while block := file.read(BLOCK_BYTES):
        if format == "csv" and b'"' in block + begun:
            begun += block
            ends = _ends_of_records(begun)
            if len(ends):
                yield begun[: ends[-1]]
                begun = begun[ends[-1] + 1 :]
            continue
        whole, newline, rest = block.rpartition(b"\n")
        if newline:
            yield begun + whole
            begun = rest
        else:
            begun += rest
    if begun:
        yield begun


def _ends_of_records(lines: bytes) -> Any:
    """Return the places of the newlines of CSV that are not in quotes; all if a quote seems to be left open."""
    content = np.frombuffer(lines, np.uint8)
    newlines = np.flatnonzero(content == ord("\n"))
    outside = newlines[np.searchsorted(np.flatnonzero(content == ord('"')), newlines) % 2 == 0]
    tail = len(lines) - (outside[-1] if len(outside) else 0)
    return newlines if tail > _LONGEST_QUOTED else outside


def first_schema(format: str, options: Mapping[str, Any], file: Any) -> pa.Schema:
    lines = next(_blocks(file, format), b"")
    _refuse_other_encodings(lines)
    return _parse_json(lines, None).schema if format == "json" else _parse_csv(lines, options, None, None).schema


def _rows(
    lines: bytes,
    first: int,
    parse: Parse,
    schema: pa.Schema,
    fit: Callable[[pa.Table], pa.Table],
    split: Callable[[bytes, int], list[_Line]],
) -> Iterator[TextRows]:
    try:
        table = fit(parse(lines))
    except pa.ArrowInvalid:
        yield from _one_by_one(split(lines, first), parse, schema, fit)
        return
    for batch in table.combine_chunks().to_batches():
        yield TextRows(batch)


def _split(lines: bytes, first: int) -> list[_Line]:
    numbered = (_Line(first + index, line) for index, line in enumerate(lines.split(b"\n")))
    return [line for line in numbered if line.content.strip()]


def _split_csv(delimiter: str, lines: bytes, first: int) -> list[_Line]:
    """Split CSV into records: a value in quotes may go over several lines."""
    if b'"' not in lines:
        return _split(lines, first)
    records, at = list[_Line](), 0
    for end in [*_ends_of_records(lines).tolist(), len(lines)]:
        record, at = lines[at:end], end + 1
        inside = record.count(b"\n")
        whole = inside and len(
            list(csv.reader(io.StringIO(record.decode("utf-8", "replace"), ""), delimiter=delimiter))
        )
        records += [_Line(first, record)] if whole == 1 else _split(record, first)
        first += inside + 1
    return records


def _one_by_one(
    lines: list[_Line], parse: Parse, schema: pa.Schema, fit: Callable[[pa.Table], pa.Table]
) -> Iterator[TextRows]:
    """Halve lines until those that cannot be read stand alone."""
    waiting = [lines]
    while waiting:
        some = waiting.pop()
        try:
            table = fit(parse(b"\n".join(line.content for line in some)))
        except pa.ArrowInvalid as error:
            if len(some) > 1:
                middle = len(some) // 2
                waiting += [some[middle:], some[:middle]]
                continue
            text = some[0].content.decode("utf-8", "replace").strip("\r")[:MOST_SHOWN]
            nothing = pa.RecordBatch.from_arrays([pa.nulls(1, kind) for kind in schema.types], schema=schema)
            yield TextRows(
                nothing, {0: Unreadable(f"line {some[0].number}", _reason(error, some[0].content, schema), text)}
            )
        else:
            for batch in table.combine_chunks().to_batches():
                yield TextRows(batch)


def _reason(error: pa.ArrowInvalid, line: bytes, schema: pa.Schema) -> str:
    """Return what is wrong with a line; the number of the row is that in what Arrow was given."""
    if "unexpected field" in str(error):
        try:
            refuse_others(list(json.loads(line)), schema.names, "field")
        except pa.ArrowInvalid as named:
            return str(named)
    text = re.sub(r"Row #\d+: ", "", str(error).splitlines()[0])
    return re.sub(r" in row \d+$", "", text)


def _parser(format: str, options: Mapping[str, Any], schema: pa.Schema) -> Parse | None:
    """Return what parses lines; None where the header of the file must be read first."""
    if format == "json":
        others = "error" if options.get("extra") == "refuse" else "ignore"
        return lambda lines: _parse_json(lines, schema, others)
    if options.get("header", True):
        return None
    return lambda lines: _parse_csv(lines, options, schema, schema.names)


def _after_header(options: Mapping[str, Any], schema: pa.Schema, lines: bytes) -> tuple[Parse | None, int, bytes]:
    """Read the header of CSV: return what parses the lines after it, how many are before those, and the lines."""
    found = _HEADER.search(lines)
    if found is None:
        return None, 0, b""
    names = _header_names(found[1], options)
    may_lack = options.get("may_lack", ())
    missing = [name for name in schema.names if name not in names and name not in may_lack]
    if missing:
        raise pa.ArrowInvalid(f"there is no column {missing[0]!r}; the columns are {', '.join(names)}")
    if options.get("extra") == "refuse":
        refuse_others(names, schema.names)
    skipped = lines.count(b"\n", 0, found.end())
    return lambda some: _parse_csv(some, options, schema, names), skipped, lines[found.end() :]


def _header_names(header: bytes, options: Mapping[str, Any]) -> list[str]:
    _refuse_other_encodings(header)
    names: list[str] = _parse_csv(header + b"\n", options, None, None).column_names
    return names


def refuse_others(names: Sequence[str], known: Sequence[str], what: str = "column") -> None:
    """Refuse columns of a file, or fields of a record, that the schema does not have."""
    others = [name for name in names if name not in known]
    if others:
        raise pa.ArrowInvalid(f"there is a {what} {others[0]!r}; the schema has {', '.join(known)}")


def _plain(lines: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Take lines as they are; bytes that are no UTF-8 are replaced, because a log may hold anything that was sent."""
    text = lines.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\r")
    return pa.RecordBatch.from_arrays([pa.array(text.split("\n"), pa.string())], schema=schema)


def _parse_json(lines: bytes, schema: pa.Schema | None, others: str = "ignore") -> pa.Table:
    _refuse_other_encodings(lines)
    if b"null" in lines and _may_have_bare_null(lines):
        _refuse_null(lines)
    read = pa.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    parse = None
    if schema is not None:
        asked = pa.schema([_field_in_json(each) for each in schema])
        parse = pa.json.ParseOptions(explicit_schema=asked, unexpected_field_behavior=others)
    return pa.json.read_json(io.BytesIO(lines), read_options=read, parse_options=parse)


def _refuse_other_encodings(lines: bytes) -> None:
    if not lines.isascii():
        try:
            lines.decode()
        except UnicodeDecodeError as error:
            raise pa.ArrowInvalid(f"not UTF-8: {error.reason}") from None


def _in_json(kind: pa.DataType) -> pa.DataType:
    """Return the type by which Arrow reads a value; of days it would take the number since 1970 alone."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_in_json(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([_field_in_json(each) for each in kind])
    return kind


def _field_in_json(field_: pa.Field) -> pa.Field:
    return field_.with_type(_in_json(field_.type)).with_nullable(True)  # what must have a value is looked at later


def refuse_types(format: str, schema: pa.Schema, source: str) -> None:
    """Refuse fields that no value in files of JSON or CSV can be read as."""
    for field_ in schema:
        try:
            only = pa.schema([field_])
            _parse_json(b"{}", only) if format == "json" else _parse_csv(b'""', {}, only, [field_.name])
        except pa.ArrowNotImplementedError:
            raise FlowError(
                f"source {source!r}: {format} has no form for the field {field_.name!r} ({field_.type}); declare it as "
                f"str, and convert it in a map, or read Parquet"
            ) from None


def _may_have_bare_null(lines: bytes) -> bool:
    content = np.frombuffer(lines, np.uint8)
    starts = np.flatnonzero(content[:-1] == ord("\n")) + 1
    braces = content[0] == ord("{") and bool((content[starts] == ord("{")).all())
    return bool(_NULL_AFTER_RECORD.search(lines) or (not braces and _NULL_AT_START.search(lines)))


def _refuse_null(lines: bytes) -> None:
    """Look closely at lines that may hold a bare null: it may also be in a text."""
    for line in lines.split(b"\n"):
        if _NULL_AFTER_RECORD.search(line) or _NULL_AT_START.search(line):
            try:
                record = json.loads(line)
            except ValueError as error:
                raise pa.ArrowInvalid(f"JSON parse error: {error}") from None
            if not isinstance(record, dict):
                raise pa.ArrowInvalid("JSON parse error: null is no record")


def _parse_csv(lines: bytes, options: Mapping[str, Any], schema: pa.Schema | None, names: list[str] | None) -> pa.Table:
    read = pa.csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=names)
    parse = pa.csv.ParseOptions(delimiter=options.get("delimiter", ","))
    # What Penstock wrote tells null (nothing) from an empty text (quotes), and NaN from both; in a file of one column
    # nulls have quotes as well.
    own: dict[str, Any] = {}
    if options.get("own"):
        several = schema is not None and len(schema) > 1
        own = {"null_values": [""], "strings_can_be_null": several, "quoted_strings_can_be_null": not several}
    convert = None
    if schema is not None:
        convert = pa.csv.ConvertOptions(
            column_types=schema, include_columns=schema.names, include_missing_columns=True, **own
        )
    return pa.csv.read_csv(io.BytesIO(lines), read, parse, convert)
