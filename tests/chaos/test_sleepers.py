"""Pause a real driver for longer than its lease, in the middle of an operation; wake it while its heir is at work."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import penstock as ps

from ..spark.running import make_rows, read_back, sequential, write_files
from . import driver, processes, sleeper

ROOT = Path(__file__).parents[2]
ROWS = 160
LEASE_SECONDS = "1"
PATIENCE = 900.0

ORDINARY = [(1, "commit"), (2, "publish"), (3, "clean")]
"""(seed, operation) of the ordinary suite."""
ALL = [(100 + seed, operation) for seed in range(6) for operation in sleeper.OPERATIONS]
"""Those of `make chaos`."""
ON_SPARK = [(500, "commit"), (501, "publish")]


class Sleeper:
    """One process of the driver."""

    def __init__(self, work: Path, life: int, master: str, seed: int, operation: str, number: int, moment: str) -> None:
        environment = {
            **os.environ,
            "PENSTOCK_LEASE_SECONDS": LEASE_SECONDS,
            "PENSTOCK_MACHINE": f"machine {life}",  # else a process that is stopped counts as one that lives
            "PYSPARK_PYTHON": sys.executable,
        }
        self._errors = open(work / f"errors-{life}.txt", "w")  # noqa: SIM115
        self.process = subprocess.Popen(
            [
                sys.executable,
                sleeper.__file__,
                str(Path(ps.__file__).parents[1]),
                str(ROOT),
                str(work),
                master,
                str(seed),
                operation,
                str(number),
                moment,
            ],
            env=environment,
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def line(self) -> str:
        """Wait for the next line; nothing at the end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def await_stop(self) -> None:
        """Wait until the process is stopped."""
        until = time.monotonic() + PATIENCE
        while processes.state(self.process.pid) != "T":
            assert time.monotonic() < until, "it said that it would stop, and did not"
            time.sleep(0.01)

    def rest(self) -> list[str]:
        """Wait for the end; return the lines until then."""
        lines = []
        while line := self.line():
            lines.append(line)
        self.process.wait(PATIENCE)
        return lines

    def end(self) -> None:
        """End the process, if it has not ended yet."""
        family = [*processes.below(self.process.pid), self.process.pid]
        for pid in family:
            processes.kill(pid)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


@dataclass
class Round:
    """One run with a driver that sleeps, all drawn from a seed."""

    work: Path
    seed: int
    operation: str
    master: str = "inline"
    lives: list[Sleeper] = field(default_factory=list)

    def run(self) -> None:
        draw = random.Random(self.seed)
        moment, number = draw.choice(["before", "after"]), draw.randint(1, 1 if self.operation == "lease" else 4)
        wake_after = draw.randint(0, 4)
        write_files(self.work / "data", make_rows(ROWS, keys=driver.KEYS), driver.FILE_ROWS)
        asleep = self._start(draw.random(), number, moment)
        held = False
        while (line := asleep.line()) != "asleep":
            assert line.startswith(("epoch", "mine")), f"the driver did not come to its pause: {line!r}"
            held = held or line == "mine"
        asleep.await_stop()
        heir = self._start(draw.random(), 0, "never")
        assert heir.line() == "mine"  # once the lease has run out
        for _ in range(wake_after):
            assert heir.line().startswith("epoch")
        processes.wake(asleep.process.pid)
        ends = heir.rest()[-1], asleep.rest()[-1]
        # One that had no lease yet waits for its turn: it finds everything done, or, on a machine that is so busy that
        # the heir does not come to renew its lease, takes over in turn.
        assert ends in ([("done", "lost")] if held else [("done", "lost"), ("done", "done"), ("lost", "done")])
        self._check()

    def _start(self, seed: float, number: int, moment: str) -> Sleeper:
        self.lives.append(
            Sleeper(self.work, len(self.lives), self.master, int(seed * 2**31), self.operation, number, moment)
        )
        return self.lives[-1]

    def _check(self) -> None:
        flow = driver.flow(self.work)
        expected = sequential(flow)
        for sink, rows in expected.results.items():
            assert read_back(self.work / sink) == [tuple(row) for row in rows], sink
        assert ps.state.values(str(self.work / "ck"), "running") == expected.state("running")


def run(work: Path, seed: int, operation: str, master: str = "inline") -> None:
    played = Round(work, seed, operation, master)
    try:
        played.run()
    except BaseException as error:
        errors = "".join(path.read_text()[-1500:] for path in sorted(work.glob("errors-*.txt")))
        error.add_note(f"seed {seed}, {operation}; kept in {work}; {errors}")
        raise
    finally:
        for life in played.lives:
            life.end()


@pytest.mark.parametrize(("seed", "operation"), ORDINARY)
def test_one_seed_of_each(tmp_path, seed, operation):
    run(tmp_path, seed, operation)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "operation"), ALL)
def test_all_seeds(tmp_path, seed, operation):
    run(tmp_path, seed, operation)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("seed", "operation"), ON_SPARK)
def test_on_spark(tmp_path, seed, operation):
    run(tmp_path, seed, operation, "local[2]")
