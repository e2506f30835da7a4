"""Spark DataFrames as sources. What reads them is in `spark/`; this says what flows must know of them before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.connectors.interfaces import Feed, Piece, Reader, Split
from penstock.rows.records import RowType
from penstock.rows.row_types import row_type


@dataclass(frozen=True)
class Frame(Reader):
    """A Spark DataFrame: a streaming one is followed, a batch one is read once, in epochs."""

    frame: Any
    needs_spark = True

    @property
    def streaming(self) -> bool:
        return bool(self.frame.isStreaming)

    @property
    def goes_on(self) -> bool:  # type: ignore[override]
        return self.streaming

    @cached_property
    def places(self) -> Any:
        """How the rows of a streaming DataFrame are ordered."""
        from penstock.spark.places import find_places

        return find_places(self.frame)

    @property
    def has_parts(self) -> bool:  # type: ignore[override]
        return self.streaming and self.places.kind == "kafka"

    @property
    def own_width(self) -> int:  # type: ignore[override]
        # A batch DataFrame is read from files, where one number is enough.
        return int(self.places.width) if self.streaming else 1

    @property
    def corrupt(self) -> str | None:  # type: ignore[override]
        name = str(self.frame.sparkSession.conf.get("spark.sql.columnNameOfCorruptRecord"))
        return name if name in self.frame.columns else None

    def row_type(self, source: str) -> RowType | None:
        from penstock.spark.frames import frame_schema

        return row_type(frame_schema(self.frame), source)

    def collect(self) -> pa.Table:
        return self.frame.toArrow()

    def feed(self, source: str, clock: Callable[[], float], **_: Any) -> Feed:
        raise TypeError(f"source {source!r}: {self!r} is fed by Spark")

    def read(self, row: RowType | None, split: Split, source: str) -> Iterator[Piece]:
        raise TypeError(f"{self!r} is not read by splits")

    def for_workers(self) -> Reader:
        return Framed(own_width=self.own_width, goes_on=self.goes_on, has_parts=self.has_parts)


@dataclass(frozen=True)
class Framed(Frame):
    """Stands for a DataFrame in workers, which never need it."""

    frame: Any = None
    own_width: int = 1
    goes_on: bool = True
    has_parts: bool = False
    corrupt: str | None = None
