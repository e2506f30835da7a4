"""A checkpoint goes on that was written when the time of day was the watermark of sources that go by it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.plan.plan import make_plan
from penstock.sequential import SequentialEngine

from ..spark.running import make_engine, read_back
from .old_arrivals import BEGAN, ROWS, clock, flow_of
from .old_flow import opened


def expected(work: Path, moments: list[int], counts: list[int]) -> dict[str, list[Any]]:
    """Run row by row: so many rows at each moment."""
    engine = SequentialEngine(make_plan(flow_of(work / "data", work / "out")))
    kind, left = engine.plan.nodes["rows"].types[0], iter(ROWS)
    assert kind is not None
    for now, count in zip(moments, counts, strict=True):
        engine.clock(now)
        for _ in range(count):
            engine.row("rows", kind.roundtrip(next(left)))
    engine.end("rows")
    return engine.results


@pytest.mark.parametrize("damaged", [0, 2], ids=["whole", "its last epoch was not committed"])
@pytest.mark.parametrize("later", [-100, 7, 1000])
def test_it_goes_on_with_the_moments_that_were_logged(tmp_path, later, damaged):
    checkpoint = opened(tmp_path, "old_arrivals", b"/tmp/oldarr")
    moments, _ = json.loads((tmp_path / "moments.json").read_text())
    entries = sorted((checkpoint / "epochs").iterdir())
    for path in entries[len(entries) - damaged :]:
        path.write_bytes(path.read_bytes()[:-20])
    engine = make_engine(flow_of(tmp_path / "data", tmp_path / "out"), checkpoint, epoch_rows=20)
    engine._time_of_day, run, read = clock(BEGAN + later), engine._backend.run, [0]
    began = 5 if damaged else 6
    seen = moments[:began]

    def running(spec: Any, frames: Any) -> Any:
        seen.append(spec.now)
        return run(spec, frames)

    engine._backend.run = running  # type: ignore[method-assign]
    engine._listener = lambda stats: read.append(engine._position.rows_in)
    engine.run()
    assert seen[:6] == moments, "what was begun has its moment"
    assert seen == sorted(seen), "the time of day never goes back"
    done = [10 * began, *read[1:]]
    counts = [10] * began + [after - before for before, after in itertools.pairwise(done)]
    for sink, rows in expected(tmp_path, seen, counts).items():
        assert read_back(tmp_path / "out" / sink) == [tuple(row) for row in rows], sink
        assert rows
