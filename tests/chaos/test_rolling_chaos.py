"""Kill a run whose files roll, with SIGKILL, at random moments: rows are visible once, in order, and never change."""

from __future__ import annotations

import csv
import random
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

import penstock as ps

from ..spark.running import make_rows, read_back, write_files
from . import roller

ROOT = Path(__file__).parents[2]
KILLS = 30


def visible(work: Path) -> dict[Path, bytes]:
    """Return all visible files."""
    found = [path for sink in ("sized", "single", "parts") for path in (work / sink).rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in found if not any(part.startswith(("_", ".")) for part in path.parts)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_kill_after_kill(tmp_path, seed):
    rows = make_rows(roller.ROWS, keys=roller.KEYS)
    write_files(tmp_path / "data", rows, 25)
    draw = random.Random(seed)
    seen: dict[Path, bytes] = {}
    for life in range(10_000):
        arguments = [sys.executable, roller.__file__, str(Path(ps.__file__).parents[1]), str(ROOT), str(tmp_path)]
        with subprocess.Popen([*arguments, str(1000 * seed + life)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            last = process.stdout.readline()
            if life < KILLS and last:
                for _ in range(draw.randint(0, 3)):
                    process.stdout.readline()
                time.sleep(draw.uniform(0, 0.3))  # a random part of an epoch: the moment itself is what is drawn
                process.kill()
            else:
                last = process.stdout.read()
        now = visible(tmp_path)
        assert all(now.get(path) == content for path, content in seen.items()), "visible files are never changed"
        seen = now
        if process.returncode == 0:
            break
        assert process.returncode < 0, "it was killed, and did not fail"
    expected = [tuple(row.values()) for row in rows]
    assert read_back(tmp_path / "sized") == expected
    lines = duckdb.sql(f"select n from read_json('{tmp_path}/single/epoch=*/*.json')").fetchall()
    assert sorted(lines) == [(row["n"],) for row in rows]
    for key in range(roller.KEYS):
        files = sorted((tmp_path / "parts" / f"k={key}").iterdir())
        numbers = [int(row["n"]) for path in files for row in csv.DictReader(path.open())]
        assert numbers == [row["n"] for row in rows if row["k"] == key]
    for sink in ("sized", "single", "parts"):
        assert sorted(row["n"] for row in ps.read.sink(str(tmp_path / sink))) == list(range(roller.ROWS))
