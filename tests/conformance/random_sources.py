"""Sources of random flows: rows, the kind of reader that gives them, and how they lie in files."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from penstock import read
from penstock.connectors.interfaces import Feed, Slice, Split

from .kinds import Wide
from .strategies import FIELDS

SCHEMA = pa.schema([(name, pa.int64()) for name in FIELDS])

Value = tuple[int, int, int | None]

FILES = ("parquet", "json", "csv")
BOUNDED = (*FILES, "items", "wide", "generated", "iterator")
GOING_ON = (*(f"followed {form}" for form in FILES), "rate")
ON_SPARK = ("streaming parquet", "streaming json", "batch frame")


@dataclass(frozen=True)
class Origin:
    """One source as it was drawn."""

    kind: str
    slack: int
    rows: tuple[Value, ...]
    file_rows: int = 3
    """Rows of a file."""
    tie: int = 1
    """How many files have the same time of change, and go by name."""
    parts: tuple[tuple[tuple[int, int], ...], ...] = ()
    """Of a kind with parts: for each time that it is asked, the parts that give rows then, and how many."""

    @property
    def form(self) -> str | None:
        """Return the format of its files, None where it has none."""
        last = self.kind.split()[-1]
        return last if last in FILES else None

    @property
    def follows(self) -> bool:
        """Tell whether it never ends."""
        return self.kind.startswith(("followed", "streaming", "open"))

    @property
    def goes_on(self) -> bool:
        """Tell whether its rows come with time."""
        return self.follows or self.kind in ("rate", "parts")

    @property
    def dicts(self) -> list[dict[str, int | None]]:
        """Return its rows, in their order."""
        return [dict(zip(FIELDS, row, strict=True)) for row in self.rows]

    @property
    def with_parts(self) -> list[tuple[int, dict[str, int | None]]]:
        """Return its rows in their order, each with its part."""
        if not self.parts:
            return [(0, row) for row in self.dicts]
        rows = iter(self.dicts)
        return [(part, next(rows)) for asked in self.parts for part, count in asked for _ in range(count)]

    @property
    def part_names(self) -> tuple[int, ...]:
        """Return all its parts."""
        return tuple(sorted({part for asked in self.parts for part, _ in asked})) or (0,)

    def files(self, directory: Path) -> list[tuple[Path, list[dict[str, int | None]]]]:
        """Return the files that it has, in the order of its rows: by time, and of one time by name."""
        starts = range(0, len(self.rows), self.file_rows)
        groups = len(starts) // self.tie + 1
        return [
            (
                # Times rise and names fall, but for files of one time.
                directory / f"{groups - number // self.tie:03d}-{number % self.tie:02d}",
                self.dicts[start : start + self.file_rows],
            )
            for number, start in enumerate(starts)
        ]

    def write(self, directory: Path, number: int) -> None:
        """Write the file of a number."""
        path, rows = self.files(directory)[number]
        table = pa.Table.from_pylist(rows, SCHEMA)
        whole = path.with_name(f"_{path.name}")  # a reader sees whole files alone
        if self.form == "parquet":
            pq.write_table(table, whole, row_group_size=2)
        elif self.form == "csv":
            pa.csv.write_csv(table, whole)
        else:
            whole.write_text("".join(json.dumps(row) + "\n" for row in rows))
        time = 1_000_000_000 + number // self.tie
        os.utime(whole, (time, time))
        whole.rename(path)

    def reader(self, directory: Path, session: Any) -> Any:
        """Return what reads it."""
        rows = self.dicts
        match self.kind.split():
            case ["items"]:
                return read.items(rows, schema=FIELDS)
            case ["iterator"]:
                return read.items(iter(rows), schema=FIELDS)
            case ["wide"]:
                return Wide(rows, schema=FIELDS)
            case [*how, "parts"]:
                return Parted(rows, schema=FIELDS, asked=self.asked(), ends=not how)
            case ["generated" | "rate"]:
                table = pa.Table.from_pylist(rows, SCHEMA)
                rate = 1e6 if self.kind == "rate" else None
                return read.generate(
                    lambda start, stop: table.slice(start, stop - start),
                    schema=FIELDS,
                    rows=len(rows),
                    rows_per_second=rate,
                )
            case ["streaming", form]:
                reading = session.readStream.schema("t long, k long, v long")
                return reading.option("maxFilesPerTrigger", self.tie).format(form).load(str(directory))
            case ["batch", "frame"]:
                data = [tuple(row.values()) for row in rows]
                frame = session.createDataFrame(data, "t long, k long, v long")
                return frame.coalesce(1) if self.tie == 1 else frame
            case [*how, form]:
                return getattr(read, form)(str(directory), schema=FIELDS, follow=how == ["followed"])

    def asked(self) -> tuple[dict[int, list[Any]], ...]:
        """Return, for each time that it is asked, the rows of each part."""
        rows = iter(self.dicts)
        return tuple({part: [next(rows) for _ in range(count)] for part, count in asked} for asked in self.parts)


@dataclass(frozen=True)
class Parted(read.Items):
    """Rows of several parts, as of a topic with partitions."""

    asked: Any = ()
    ends: bool = True
    has_parts = True  # type: ignore[misc]
    goes_on = True  # type: ignore[assignment]

    def feed(self, source: str, clock: Any, **_: Any) -> Feed:
        return DrawnFeed(self)


class DrawnFeed(Feed):
    """Gives what comes of each part, as it was drawn: all that is asked for at once, or part by part."""

    parted = True

    def __init__(self, reader: Parted) -> None:
        self._asked, self._next, self._ends = reader.asked, 0, reader.ends
        names = sorted({part for asked in self._asked for part in asked}) or [0]
        rows = {part: [row for asked in self._asked for row in asked.get(part, ())] for part in names}
        self._parts = {part: OnePart(self, mine) for part, mine in rows.items()}

    def parts(self) -> dict[int, Any]:
        return self._parts

    def more(self) -> None:
        """Have more come, as drawn, of some parts."""
        if self._next < len(self._asked):
            for part, rows in self._asked[self._next].items():
                mine = self._parts[part]
                mine.come = min(mine.come + len(rows), len(mine.rows))
            self._next += 1

    def whole(self, slices: Any) -> Slice:
        splits = [replace(split, part=part) for part, each in slices.items() for split in each.splits]
        logged = {part: each.logged for part, each in slices.items()}
        taken = {part: each.taken for part, each in self._parts.items()}
        return Slice(tuple(splits), {"taken": taken}, {"parts": logged}, sum(each.rows for each in slices.values()))

    def poll(self, limit: int) -> Slice | None:
        if self._next == len(self._asked):
            return None
        self._next += 1
        return self._slice(self._next - 1)

    def _slice(self, number: int) -> Slice:
        splits = []
        for part, rows in self._asked[number].items():
            start = sum(len(asked.get(part, ())) for asked in self._asked[:number])
            splits.append(Split(part, start, start + len(rows), payload=pickle.dumps(rows), part=part))
        count = sum(map(len, self._asked[number].values()))
        return Slice(tuple(splits), {"next": number + 1}, {"number": number}, count, parts=tuple(self._parts))

    def replay(self, logged: Any, offset: Any) -> Slice:
        if "number" in logged:
            return self._slice(logged["number"])
        slices = {int(part): self._parts[int(part)].slice(*span) for part, span in logged["parts"].items()}
        return replace(self.whole(slices), offset=offset)

    def restore(self, offset: Any) -> None:
        self._next = offset.get("next", 0)
        for part, taken in offset.get("taken", {}).items():
            mine = self._parts[int(part)]
            mine.taken, mine.come = taken, max(taken, mine.come)

    def undo(self) -> None:
        self._next -= 1

    def exhausted(self) -> bool:
        return self._ends and self._next == len(self._asked)

    def close(self) -> None:
        pass


class OnePart(Feed):
    """The rows of one part; more come when all that came were taken."""

    def __init__(self, feed: DrawnFeed, rows: list[Any]) -> None:
        self._feed, self.rows, self.come, self.taken, self._before = feed, rows, 0, 0, 0

    def slice(self, start: int, stop: int) -> Slice:
        split = Split(0, start, stop, payload=pickle.dumps(self.rows[start:stop]))
        return Slice((split,), {}, [start, stop], stop - start)  # type: ignore[arg-type]

    def poll(self, limit: int) -> Slice | None:
        if self.taken >= self.come:
            self._feed.more()
        self._before, self.taken = self.taken, min(self.taken + limit, self.come)
        return self.slice(self._before, self.taken) if self.taken > self._before else None

    def replay(self, logged: Any, offset: Any) -> Slice:
        raise AssertionError("the whole is replayed")

    def restore(self, offset: Any) -> None:
        raise AssertionError("the whole is restored")

    def undo(self) -> None:
        self.taken = self._before

    def exhausted(self) -> bool:
        return self._feed.exhausted() and self.come >= len(self.rows)
