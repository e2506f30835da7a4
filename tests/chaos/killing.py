"""Run a driver, kill it or a part of it at random moments, start it again, and so on until it is done."""

from __future__ import annotations

import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import penstock as ps

from . import driver, processes

Victim = Literal["driver", "worker", "executor"]
SOURCES = Path(ps.__file__).parents[1]
PATIENCE = 300.0
"""Seconds without a line after which a driver counts as hung."""


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

    def __init__(self, work: Path, master: str, tasks: int) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_WORKER_DIR": str(work / "workers")}
        self._errors = open(work / "errors.txt", "a")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, driver.__file__, str(SOURCES), str(work), master, str(tasks)],
            env=environment,
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
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

    def end(self) -> None:
        """Make sure that nothing of this life is left."""
        left = processes.below(self.process.pid)
        self.process.kill()
        self.process.wait()
        for pid in processes.await_end(left, 20):
            processes.kill(pid)
        self._errors.close()


@dataclass
class Chaos:
    """A run with kills, all drawn from one seed."""

    work: Path
    victim: Victim
    seed: int
    kills: int
    killed: list[Kill] = field(default_factory=list)
    lives: int = 0
    _epoch: int = 0
    _pace: float = 1.0
    """Seconds from epoch to epoch, as it was seen last."""

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self._master = "local-cluster[2,1,1024]" if self.victim == "executor" else "local[*,4]"

    def run(self) -> None:
        """Run to the end."""
        done = False
        while not done:
            self.lives += 1
            life = Life(self.work, self._master, self._draw.choice([0, 1, 2, 3]))
            try:
                done = self._live(life)
            finally:
                life.end()

    def _live(self, life: Life) -> bool:
        """Follow one life; tell whether it came to its end by itself."""
        while (line := self._next(life)) is not None:
            if line == "done":
                return True
            if len(self.killed) < self.kills and self._draw.random() < (0.25 if line == "ready" else 0.4):
                self._wait_a_moment(life)
                if self._kill(life) and self.victim == "driver":
                    return False
        if self.victim != "driver":
            raise AssertionError(f"the driver ended by itself; {self._last_words()}")
        return False

    def _next(self, life: Life) -> str | None:
        began = time.monotonic()
        try:
            line = life.line()
        except queue.Empty:
            raise Hung(f"no line for {PATIENCE:.0f} s behind epoch {self._epoch}; {self._last_words()}") from None
        if line is not None and line.startswith("epoch"):
            self._epoch, self._pace = int(line.split()[1]), min(time.monotonic() - began + 0.02, 10.0)
        return line

    def _wait_a_moment(self, life: Life) -> None:
        """Let a random part of an epoch pass: the moment is what is drawn."""
        until = time.monotonic() + self._draw.uniform(0, 1.5 * self._pace)
        threading.Event().wait(max(0.0, until - time.monotonic()))

    def _kill(self, life: Life) -> bool:
        victims = self._victims(life.process.pid)
        done = [pid for pid in victims if processes.kill(pid)]
        if done:
            self.killed.append(Kill(self.lives, self._epoch, f"{self.victim} {done}"))
        return bool(done)

    def _victims(self, pid: int) -> list[int]:
        if self.victim == "driver":
            jvm = processes.gateways(pid)
            orders: list[Callable[[], list[int]]] = [lambda: [pid], lambda: [pid, *jvm], lambda: [*jvm, pid]]
            return self._draw.choice(orders)()
        found = processes.workers(pid) if self.victim == "worker" else processes.executors(pid)
        return [self._draw.choice(sorted(found))] if found else []

    def _last_words(self) -> str:
        return f"the last lines on stderr: {(self.work / 'errors.txt').read_text()[-2000:]}"
