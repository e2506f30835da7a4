"""Streaming DataFrames with `order_by`: one sequence, whatever is in a batch, with restarts and sources added later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps

from ..conformance.inline import Arriving
from .framing import FIELDS, SCHEMA, Legs, Rows, meant, ordered, taken_of, write_file

pytestmark = pytest.mark.spark


def rising(count: int, step: int, first: int = 0) -> Rows:
    """Make rows whose times never go back, with ties."""
    return [{"t": first + n // 3 * step, "k": n * 5 % 3, "v": n * step} for n in range(count)]


def frame_of(spark: Any, directory: Path, form: str, rows: Rows, size: int) -> Any:
    for number, start in enumerate(range(0, len(rows), size)):
        write_file(directory, form, f"{number:03d}", rows[start : start + size], 1000 + number)
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).format(form).load(str(directory))


def test_several_kinds_of_other_lengths(spark: Any, tmp_path: Path) -> None:
    """A rate goes on for ever, one source is much longer than the other, and epochs get larger and smaller."""
    given: dict[str, Rows] = {"parquet": rising(70, 3), "csv": rising(25, 4), "json": rising(40, 3, 2)}
    frames = {form: frame_of(spark, tmp_path / form, form, rows, 9) for form, rows in given.items()}
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=20, numPartitions=3).load()
    frames["rate"] = rate.selectExpr("value as t", "value % 3 as k", "value as v")
    given["rate"] = [{"t": n, "k": n % 3, "v": n} for n in range(300)]
    parts = {name: [(0, row) for row in rows] for name, rows in given.items()}
    empty = {name: Arriving([], schema=FIELDS) for name in frames}
    expected = meant(ordered(empty), parts, dict.fromkeys(frames, 1))
    legs = Legs(spark, tmp_path / "ck")
    for until, epoch_rows, tasks in [(30, 7, 1), (60, 50, 2), (taken_of(expected), 5, 3)]:
        legs.run(ordered(frames), until=until, epoch_rows=epoch_rows, tasks=tasks)
    assert legs.results == expected
    assert len(expected["windows out"]) > 3


def test_lateness_does_not_depend_on_the_batch(spark: Any, tmp_path: Path) -> None:
    """A row is late where it is below an earlier one of its own, in the same batch or not."""
    times = [0, 4, 2, 5, 5, 9, 8, 9, 12, 3, 12, 20]
    rows = [{"t": t, "k": 0, "v": n} for n, t in enumerate(times)]
    for number, size in enumerate((2, 5, 12)):
        frame = frame_of(spark, tmp_path / f"d{number}", "parquet", rows, size)
        flow = ps.Flow("late")
        events = flow.source("events", frame, order_by="t", on_late="divert")
        events.map(lambda r: r.v).sink("out")
        events.late.map(lambda r: r.v).sink("late")
        legs = Legs(spark, tmp_path / f"ck{number}")
        legs.run(flow, until=12, epoch_rows=4)
        assert legs.results == {"out": [0, 1, 3, 4, 5, 7, 8, 10, 11], "late": [2, 6, 9]}


def test_a_source_that_is_added_later(spark: Any, tmp_path: Path) -> None:
    """It is merged from then on; what it has below rows that were taken without it is late."""
    frames = {"first": frame_of(spark, tmp_path / "first", "json", rising(12, 10), 4)}

    def flow() -> ps.Flow:
        made = ps.Flow("added")
        streams = [made.source(name, frame, order_by="t", on_late="divert") for name, frame in frames.items()]
        for port, several in (("out", streams), ("late", [stream.late for stream in streams])):
            named = [each.map(lambda r, name=name: (name, r.t)) for name, each in zip(frames, several, strict=True)]
            (named[0].union(*named[1:]) if named[1:] else named[0]).sink(port)
        return made

    legs = Legs(spark, tmp_path / "ck")
    legs.run(flow(), until=12)
    frames["added"] = frame_of(spark, tmp_path / "added", "csv", rising(15, 10, 5), 6)
    write_file(tmp_path / "first", "json", "later", rising(6, 10, 32), 2000)
    legs.run(flow(), until=12 + 6 + 12)
    merged = [("first", 32)] * 3 + [("added", 35)] * 3 + [("first", 42)] * 3
    assert legs.results["late"] == [("added", 5)] * 3 + [("added", 15)] * 3 + [("added", 25)] * 3
    assert legs.results["out"] == [("first", t) for t in (0, 10, 20, 30) for _ in range(3)] + merged
