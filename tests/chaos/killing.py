"""Run a driver, kill it or a part of it at random moments, start it again, and so on until it is done."""

from __future__ import annotations

import os
import queue
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import penstock as ps

from . import driver, processes

Victim = Literal["driver", "worker", "executor"]
SOURCES = Path(ps.__file__).parents[1]
PATIENCE = 900.0
"""Seconds without a line after which a driver counts as hung."""

FAULTY = r"/data/|/ck/state/[0-9a-f.]|/staging/epoch.*part"
"""What tasks read and write."""


class Hung(Exception):
    """A driver did not go on."""


@dataclass
class Kill:
    """What was killed, and when."""

    life: int
    epoch: int
    what: str


class Life:
    """One process of the driver."""

    def __init__(self, work: Path, command: list[str]) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_WORKER_DIR": str(work / "workers")}
        self._errors = open(work / "errors.txt", "a")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, *command],
            env=environment,
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._family: dict[int, str] = {}
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())
        self._lines.put(None)

    def line(self, seconds: float = PATIENCE) -> str | None:
        """Wait for the next line; None at the end of the process. Raises `queue.Empty` where none comes in time."""
        return self._lines.get(timeout=seconds)

    def note_family(self) -> None:
        """Take note of the processes of this life: once their parent is gone, nobody can tell."""
        self._family |= {pid: processes.born(pid) for pid in processes.below(self.process.pid)}

    def end(self) -> None:
        """End the driver, if it has not ended yet. What it has started may outlive it for a while."""
        self.note_family()
        self.process.kill()
        self.process.wait()
        self._errors.close()

    def clean_up(self) -> None:
        """Make sure that nothing of this life is left."""
        for pid in processes.await_end(self._family, 20):
            processes.kill(pid)


@dataclass
class Chaos:
    """A run with kills, all drawn from one seed: behind which epochs, how long behind, and whom."""

    work: Path
    victim: Victim
    seed: int
    kills: int
    rate: float = 0.0
    """Which share of the reads and writes of tasks fails, of sources, state and part files."""
    killed: list[Kill] = field(default_factory=list)
    lives: int = 0
    epochs: int = 0
    """How many the run has, at least."""
    _epoch: int = 0
    _pace: float = 0.3
    """Seconds from epoch to epoch, at the best."""

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._master = "local-cluster[2,1,1024]" if self.victim == "executor" else "local[*,4]"
        self._faults = f"{self.seed} {self.rate} {self.work / 'faults.txt'} {FAULTY}" if self.rate else ""
        self.epochs = self.epochs or 4 * self.kills + 10
        # The last epochs are left alone, so that nobody is killed who has come to the end.
        self._due = sorted(self._draw.choices(range(self.epochs - 8), k=self.kills))

    def _command(self) -> list[str]:
        """Return the driver of the next life, and its arguments."""
        tasks = self._draw.choice([0, 1, 2, 3])
        faults = [self._faults] if self._faults else []
        return [driver.__file__, str(SOURCES), str(self.work), self._master, str(tasks), *faults]

    def run(self) -> None:
        """Run to the end."""
        lives: list[Life] = []
        done = False
        try:
            while not done:
                lives.append(Life(self.work, self._command()))
                try:
                    done = self._live(lives[-1])
                finally:
                    lives[-1].end()
                self.lives = len(lives)
        finally:
            for life in lives:
                life.clean_up()

    def _live(self, life: Life) -> bool:
        """Follow one life; tell whether it came to its end by itself."""
        killed: list[int] = []
        while (line := self._next(life)) is not None:
            if line == "done":
                return True
            while self._is_due() and not killed:
                self._wait_a_moment(line)
                found = self._kill(life)
                if not found:
                    break  # nobody is there yet: after the next epoch, then
                killed = found if self.victim == "driver" else []
            if life.process.pid in killed:
                return False
        if not killed:
            raise AssertionError(f"the driver ended by itself; {self._last_words()}")
        return False

    def _is_due(self) -> bool:
        return len(self.killed) < self.kills and self._due[len(self.killed)] <= self._epoch

    def _next(self, life: Life) -> str | None:
        began = time.monotonic()
        try:
            line = life.line()
        except queue.Empty:
            raise Hung(f"no line for {PATIENCE:.0f} s behind epoch {self._epoch}; {self._last_words()}") from None
        if line is not None and line.startswith("epoch"):
            self._epoch, self._pace = int(line.split()[1]), max(0.05, min(self._pace, time.monotonic() - began))
        return line

    def _wait_a_moment(self, line: str) -> None:
        """Let a random part of an epoch pass: the moment itself is what is drawn. The first epoch takes long."""
        time.sleep(self._draw.uniform(0, 3.0 if line == "ready" else 1.5 * self._pace))

    def _kill(self, life: Life) -> list[int]:
        life.note_family()
        done = [pid for pid in self._victims(life.process.pid) if processes.kill(pid)]
        if done:
            self.killed.append(Kill(self.lives + 1, self._epoch, f"{self.victim} {done}"))
        return done

    def _victims(self, pid: int) -> list[int]:
        if self.victim == "driver":
            jvm = processes.gateways(pid)
            # Either half of a driver may die first, or alone: the other must then come to its end by itself.
            return self._draw.choice([[pid], [pid, *jvm], [*jvm, pid], jvm])
        found = processes.workers(pid) if self.victim == "worker" else processes.executors(pid)
        return [self._draw.choice(sorted(found))] if found else []

    def _last_words(self) -> str:
        return f"the last lines on stderr: {(self.work / 'errors.txt').read_text()[-2000:]}"
