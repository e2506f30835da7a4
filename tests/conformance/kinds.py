"""Kinds of sources: each writes the rows of a case somewhere, and reads them from there."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from penstock import read
from penstock.connectors.interfaces import Feed, Slice, Split
from penstock.rows.row_types import infer_row_type

from .flows import CASES

FILE_ROWS = 4
"""Rows of a file: few, so that a case has several."""


@dataclasses.dataclass(frozen=True)
class Wide(read.Items):
    """Rows whose place takes several numbers, as in a streaming DataFrame: topic, partition and offset."""

    own_width = 3


def of_columns(rows: list[Any]) -> bool:
    """Tell whether rows can be written to a file: records of one type, without nulls, which text does not have."""
    if not rows or not all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows):
        return False
    return all(type(value) in (int, float, str) and value != "" for row in rows for value in row.values())


WRITABLE = [name for name, case in CASES.items() if all(map(of_columns, case.rows.values()))]
"""Cases whose rows can be written to files of any kind."""


def _files(directory: Path, rows: list[Any], write: Callable[[pa.Table, Path], None]) -> tuple[str, pa.Schema]:
    """Write a directory of small files; the order is that of their times of change, not of their names."""
    schema = infer_row_type(rows).schema  # type: ignore[union-attr]
    directory.mkdir(parents=True)
    starts = range(0, len(rows), FILE_ROWS)
    for number, start in enumerate(starts):
        path = directory / f"{len(starts) - number:03d}"
        write(pa.Table.from_pylist(rows[start : start + FILE_ROWS], schema), path)
        os.utime(path, (number + 1, number + 1))
    return str(directory), schema


def _parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=3)


def _json(table: pa.Table, path: Path) -> None:
    import json

    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


class Kinds:
    """Makes sources of every kind, in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._numbers = directory, itertools.count()

    def _new(self) -> Path:
        return self._directory / f"source{next(self._numbers)}"

    def items(self, rows: list[Any]) -> Any:
        return read.items(rows)

    def iterator(self, rows: list[Any]) -> Any:
        return read.items(iter(list(rows)), schema=infer_row_type(rows).schema)  # type: ignore[union-attr]

    def wide(self, rows: list[Any]) -> Any:
        return Wide(rows)

    def generated(self, rows: list[Any]) -> Any:
        schema = infer_row_type(rows).schema  # type: ignore[union-attr]
        table = pa.Table.from_pylist(rows, schema)
        return read.generate(lambda start, stop: table.slice(start, stop - start), schema=schema, rows=len(rows))

    def parquet(self, rows: list[Any]) -> Any:
        return read.parquet(_files(self._new(), rows, _parquet)[0])

    def json(self, rows: list[Any]) -> Any:
        path, schema = _files(self._new(), rows, _json)
        return read.json(path, schema=schema)

    def csv(self, rows: list[Any]) -> Any:
        path, schema = _files(self._new(), rows, pa.csv.write_csv)
        return read.csv(path, schema=schema)


IN_PROCESS = ["items", "iterator", "wide", "generated", "parquet", "json", "csv"]


class SparkKinds(Kinds):
    """Makes DataFrames, too."""

    def __init__(self, directory: Path, session: Any) -> None:
        super().__init__(directory)
        self._session = session

    def batch_frame(self, rows: list[Any]) -> Any:
        path, _ = _files(self._new(), rows, _parquet)
        # In one partition by time of change: Spark packs files by size, and has no order of its own for them.
        files = sorted(Path(path).iterdir(), key=lambda file: file.stat().st_mtime)
        tables = pa.concat_tables([pq.read_table(file) for file in files])
        names = tables.column_names
        data = list(zip(*(column.to_pylist() for column in tables.columns), strict=True))
        return self._session.createDataFrame(data, names).coalesce(1)

    def streaming_frame(self, rows: list[Any]) -> Any:
        path, _ = _files(self._new(), rows, _parquet)
        schema = self._session.read.parquet(path).schema
        return self._session.readStream.schema(schema).parquet(path)


ON_SPARK = [*IN_PROCESS, "batch_frame", "streaming_frame"]


class PartFeed(Feed):
    """Gives rows of several parts, epoch by epoch: for each epoch the rows of each part."""

    def __init__(self, epochs: list[dict[int, list[Any]]], parts: tuple[int, ...]) -> None:
        self._epochs, self._parts, self._next = epochs, parts, 0
        self._taken = dict.fromkeys(parts, 0)

    def poll(self, limit: int) -> Slice | None:
        import pickle

        given = self._epochs[self._next] if self._next < len(self._epochs) else {}
        self._next += 1
        splits = []
        for part, rows in given.items():
            start = self._taken[part]
            self._taken[part] += len(rows)
            splits.append(Split(part, start, start + len(rows), payload=pickle.dumps(rows), part=part))
        count = sum(map(len, given.values()))
        return Slice(tuple(splits), {}, {}, count, parts=self._parts) if splits else None

    def undo(self) -> None:
        raise AssertionError("nothing is looked at before it is taken")

    def replay(self, logged: Any, offset: Any) -> Slice:
        raise AssertionError("nothing is replayed here")

    def restore(self, offset: Any) -> None:
        raise AssertionError("nothing is restored here")

    def exhausted(self) -> bool:
        return self._next > len(self._epochs)

    def close(self) -> None:
        pass
