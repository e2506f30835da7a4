"""Check the order: compare what was written with the one-row-at-a-time run over the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock.lab.demo.flow import readings
from penstock.plan.plan import make_plan
from penstock.rows.records import Row
from penstock.sequential import SequentialEngine

Tell = Callable[[str], None]

_AT_ONCE = 10_000
_LINES = 5
"""How often the progress of the run is told, at most."""


@dataclass(frozen=True)
class Verdict:
    """What comparing one sink gave."""

    sink: str
    rows: int
    difference: str | None
    """The first difference; None where every row is the same, in the same place."""


def expected_rows(flow: ps.Flow, rows: int, tell: Tell) -> dict[str, list[Row]]:
    """Run the first `rows` readings through the sequential engine, one at a time; tell how far it is."""
    engine = SequentialEngine(make_plan(flow))
    declared = engine.plan.nodes["readings"].types[0]
    assert declared is not None
    told = 0
    for start in range(0, rows, _AT_ONCE):
        stop = min(start + _AT_ONCE, rows)
        for row in declared.decode(readings(start, stop).cast(declared.schema)):
            engine.row("readings", row)
        if (stop - told) * _LINES >= rows:
            tell(f"ran {stop:,} of {rows:,} readings again, one at a time")
            told = stop
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
    for number, (got, wanted) in enumerate(zip(written, expected, strict=False)):
        if tuple(got) != tuple(wanted):
            return Verdict(sink, len(written), f"row {number:,} is {tuple(got)}, and should be {tuple(wanted)}")
    if len(written) != len(expected):
        return Verdict(sink, len(written), f"{len(written):,} rows were written, and {len(expected):,} should be")
    return Verdict(sink, len(written), None)


def check_order(flow: ps.Flow, rows: int, out: Path, tell: Tell) -> list[Verdict]:
    """Compare every sink, and tell what is being done: it takes as long as the run."""
    verdicts = []
    for sink, wanted in expected_rows(flow, rows, tell).items():
        tell(f"comparing {out / sink} with the {len(wanted):,} rows that this gave, row by row")
        verdicts.append(compare(sink, written_rows(out / sink), wanted))
    return verdicts
