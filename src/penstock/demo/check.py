"""Check the order: compare what was written with the one-row-at-a-time run over the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.demo.flow import Readings
from penstock.plan import make_plan
from penstock.rows import Row
from penstock.sequential import SequentialEngine

_AT_ONCE = 10_000


@dataclass(frozen=True)
class Verdict:
    """What comparing one sink gave."""

    sink: str
    rows: int
    difference: str | None
    """The first difference; None where every row is the same, in the same place."""


def expected_rows(flow: ps.Flow, readings: Readings, rows: int, ended: bool) -> dict[str, list[Row]]:
    """Run the first `rows` readings through the sequential engine, one at a time."""
    engine = SequentialEngine(make_plan(flow))
    declared = engine.plan.nodes["readings"].types[0]
    assert declared is not None
    for start in range(0, rows, _AT_ONCE):
        table = readings(start, min(start + _AT_ONCE, rows)).cast(declared.schema)
        for row in declared.decode(table):
            engine.row("readings", row)
    if ended:
        engine.end("readings")
    return engine.results


def written_rows(directory: Path) -> list[Row]:
    """Read a Parquet sink back: epochs in order, in each the part files by name."""
    rows: list[Row] = []
    for file in sorted(directory.glob("epoch=*/part-*.parquet")):
        rows += [tuple(row.values()) for row in _plain(pq.ParquetFile(file).read())]
    return rows


def _plain(table: pa.Table) -> list[dict[str, object]]:
    found: list[dict[str, object]] = table.to_pylist()
    return found


def compare(sink: str, written: list[Row], expected: list[Row]) -> Verdict:
    """Compare two sequences row by row."""
    for number, (got, wanted) in enumerate(zip(written, expected, strict=False)):
        if tuple(got) != tuple(wanted):
            return Verdict(sink, len(written), f"row {number:,} is {tuple(got)}, and should be {tuple(wanted)}")
    if len(written) != len(expected):
        return Verdict(sink, len(written), f"{len(written):,} rows were written, and {len(expected):,} should be")
    return Verdict(sink, len(written), None)


def check_order(flow: ps.Flow, readings: Readings, rows: int, ended: bool, out: Path) -> list[Verdict]:
    """Compare every sink."""
    expected = expected_rows(flow, readings, rows, ended)
    return [compare(sink, written_rows(out / sink), wanted) for sink, wanted in expected.items()]
