"""Bad lines, a service that fails, files that roll, and a kill every minute: all of it at once, for ten minutes.

`PENSTOCK_SOAK_SECONDS` makes the long one shorter. What comes out is compared with the lines that went in, in plain
Python.
"""

from __future__ import annotations

import json
import os
import queue
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock as ps

from . import processes, soaker
from .killing import SOURCES, Life

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0
"""Seconds without a line after which a run counts as hung."""
LONG = float(os.environ.get("PENSTOCK_SOAK_SECONDS", "600"))


@dataclass
class Soak:
    """Lines that come in for so many seconds, and a run that is killed so many times meanwhile."""

    work: Path
    seconds: float
    kills: int
    seed: int
    master: str = ""
    file_rows: int = 100
    every: float = 0.02
    """Seconds from file to file."""
    size: int = 12_000
    lines: int = 0
    killed: int = 0
    memory: list[float] = field(default_factory=list)
    """Megabytes of a life's Python processes, at its end."""

    def run(self) -> None:
        """Run until all lines that came in have come out."""
        (self.work / "data").mkdir()
        (self.work / "new").mkdir()
        draw, lives, self._began, done = random.Random(self.seed), list[Life](), time.monotonic(), False
        try:
            while not done:
                arguments = [soaker.__file__, str(SOURCES), str(ROOT), str(self.work), self.master, str(self.size)]
                lives.append(Life(self.work, arguments))
                try:
                    done = self._live(lives[-1], draw)
                finally:
                    lives[-1].end()
        finally:
            for life in lives:
                life.clean_up()

    def _live(self, life: Life, draw: random.Random) -> bool:
        """Follow a life, bringing lines in; tell whether it came to its end by itself."""
        epochs, heard = 0, time.monotonic()
        while True:
            self._bring_lines()
            try:
                told = life.line(self.every)
                heard = time.monotonic()
            except queue.Empty:
                assert time.monotonic() - heard < PATIENCE, f"nothing for {PATIENCE} s; {self._last_words()}"
                told = ""
            if told is None:
                raise AssertionError(f"the run ended by itself; {self._last_words()}")
            if told == "done":
                return True
            epochs += told.startswith("epoch")
            passed = time.monotonic() - self._began
            if epochs and self.killed < self.kills and passed > (self.killed + 1) * self.seconds / (self.kills + 1):
                time.sleep(draw.uniform(0, 0.3))  # some part of an epoch: the moment itself is what is drawn
                self.memory.append(megabytes(life.process.pid))
                self._kill(life, draw)
                return False
            stop = self.work / "stop"
            if self.killed == self.kills and self._all_in() and not stop.exists() and self._all_out():
                self.memory.append(megabytes(life.process.pid))
                stop.touch()

    def _kill(self, life: Life, draw: random.Random) -> None:
        life.note_family()
        jvm = processes.gateways(life.process.pid)
        for pid in draw.choice([[life.process.pid], [*jvm, life.process.pid]]):
            processes.kill(pid)
        self.killed += 1

    def _bring_lines(self) -> None:
        """Write the files that are due by now, each in one step."""
        passed = min(time.monotonic() - self._began, self.seconds)
        while self.lines < self._due(passed):
            some = range(self.lines, self.lines + self.file_rows)
            path = self.work / "new" / f"{self.lines:09d}.json"
            path.write_text("".join(f"{soaker.line(n)}\n" for n in some))
            path.rename(self.work / "data" / path.name)
            self.lines += self.file_rows

    def _all_in(self) -> bool:
        """Tell whether the last line has come in: the clock alone may pass between a look at it and the next file."""
        return self.lines >= self._due(self.seconds)

    def _due(self, passed: float) -> int:
        return self.file_rows * (1 + int(passed / self.every))

    def _all_out(self) -> bool:
        """Tell whether every line has been committed."""
        try:
            counts = ps.state.values(str(self.work / "ck"), "count")
        except ps.PenstockError:
            return False  # it changes while it is read
        return sum(counts.values()) == len(self.good)

    @cached_property
    def good(self) -> list[int]:
        """Return the numbers of the lines that can be read and are found, once all have come in."""
        return [n for n in range(self.lines) if not soaker.malformed(n) and not soaker.unknown(n)]

    def _last_words(self) -> str:
        return f"the last lines on stderr: {(self.work / 'errors.txt').read_text()[-2000:]}"


def megabytes(driver: int) -> float:
    """Return what the Python processes of a run hold in memory."""
    pids = [driver, *processes.workers(driver)]
    return sum(processes.resident(pid) for pid in pids) / 2**20


def check(soak: Soak) -> None:
    """Compare what came out with the lines that went in."""
    counts: Counter[int] = Counter()
    expected = []
    for n in soak.good:
        key = n * 31 % soaker.KEYS
        counts[key] += 1
        expected.append((n, key, counts[key], f"name {key}"))
    assert list(read(soak.work / "counted")) == expected
    bad = [n for n in range(soak.lines) if soaker.malformed(n) or soaker.unknown(n)]
    letters = list(read(soak.work / "errors"))
    assert [number_of(letter) for letter in letters] == bad, "each dead letter once, in its place"
    assert {(each["operator"], each["attempts"]) for each in letters} <= {("lines", 1), ("lookup", 9)}
    assert list(read(soak.work / "windows")) == closed_windows(soak)


def closed_windows(soak: Soak) -> list[dict[str, int]]:
    """Return what the windows give that the last line's time has closed, in order."""
    groups: dict[int, dict[int, list[int]]] = {}
    for n in soak.good:
        groups.setdefault(n // 100 // soaker.WINDOW, {}).setdefault(n * 31 % soaker.KEYS, []).append(n)
    water = max(n for n in range(soak.lines) if not soaker.malformed(n)) // 100
    size = soaker.WINDOW
    return [
        {
            "k": key,
            "window_start": window * size,
            "window_end": (window + 1) * size,
            "rows": len(rows),
            "last": rows[-1],
        }
        for window, keys in sorted(groups.items())
        if (window + 1) * size <= water
        for key, rows in keys.items()
    ]


def number_of(letter: dict[str, Any]) -> int:
    found = re.search(r"\bn\W+(\d+)", letter["row"])
    assert found is not None, letter
    return int(found[1])


def files(sink: Path) -> list[Path]:
    """Return the files of a sink that anyone sees, in order."""
    return sorted(path for path in sink.glob("epoch=*/*") if path.is_file())


def read(sink: Path) -> Iterator[Any]:
    for path in files(sink):
        if path.suffix == ".parquet":
            yield from zip(*(column.to_pylist() for column in pq.ParquetFile(path).read().columns), strict=True)
        else:
            yield from map(json.loads, path.read_text().splitlines())


def check_sizes(soak: Soak) -> None:
    """See that files are about as large as they should be.

    What waits appears as it is when a run begins and when it is stopped. The first file tells how rows compress.
    """
    for sink in ("counted", "windows", "errors"):
        sizes = [path.stat().st_size for path in files(soak.work / sink)]
        print(f"{sink}: {len(sizes)} files of {sizes} bytes")
        small = sum(size < soak.size / 2 for size in sizes)
        assert small <= soak.killed + 2, (sink, sizes)
        assert max(sizes) <= 2 * soak.size, (sink, sizes)
        assert max(sizes) >= soak.size / 2 or sink != "counted", "some were rolled because they were full"


def test_for_some_seconds(tmp_path, count_kills):
    """Without Spark, which takes longer to start than all of this."""
    soak = Soak(tmp_path, seconds=3.0, kills=2, seed=1)
    soak.run()
    check(soak)
    check_sizes(soak)
    count_kills("driver", soak.killed)


@pytest.mark.slow
def test_for_ten_minutes(tmp_path, count_kills):
    kills = max(1, round(LONG / 60) - 1)
    soak = Soak(tmp_path, LONG, kills, seed=2, master="local[2]", file_rows=500, every=0.25, size=200_000)
    soak.run()
    print(f"\n{soak.lines:,} lines, {soak.killed} kills, megabytes at the end of each life: {soak.memory}")
    count_kills("driver", soak.killed)
    check(soak)
    check_sizes(soak)
    half = len(soak.memory) // 2
    assert max(soak.memory[half:]) < 1.2 * max(soak.memory[: half or 1]) + 50
