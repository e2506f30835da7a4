"""Keep a flow running while its workers and replicas are changed, by controllers or by hand, in turns."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import penstock as ps
from penstock import lab
from penstock.elastic.pilot import Lever
from penstock.plan.plan import make_plan
from penstock.statistics import FlowStats
from penstock.threads.engine import LeverName, LocalEngine, LocalOptions
from penstock.threads.levers import pool_lever, workers_lever
from penstock.threads.pilot import PilotThread
from penstock.threads.settings import Settings

BY_HAND = 3600.0
"""Seconds in which a pilot does not step by itself: the bench does."""
PAUSE = 0.25
"""Seconds before a spell is measured: what is under way is of another setting."""
OWN = "penstock"
BASELINES: dict[str, Callable[[LocalEngine, float], Lever]] = {
    "streams_rules": lambda engine, period: workers_lever(engine.element, controller=lab.StreamsRules()),
    "utilization": lambda engine, period: pool_lever(engine.element, period=0.9 * period),
}
"""The papers' ways to find the number of workers: Streams' published rules, C-Stream's pool by utilization.

The pool's periods are the bench's, as everybody's are; a little less, so that none is missed.
"""


class Setting(NamedTuple):
    """Workers, and the replicas of each operator that has some; None where there are none at all."""

    workers: int
    replicas: int | None = None

    def __str__(self) -> str:
        return str(self.workers) if self.replicas is None else f"{self.workers}x{self.replicas}"


@dataclass
class Flown:
    """A flow that runs, and what steers it: each side has a pilot of its own, and goes on from where it was."""

    engine: LocalEngine
    pilots: Mapping[str, PilotThread]
    period: float
    found: dict[str, tuple[int, dict[str, int]]] = field(default_factory=dict)
    """What each side had found at the end of its last spell: workers, and replicas by operator."""

    @property
    def replicas(self) -> dict[str, int]:
        """The replicas of each operator that can have some."""
        return {name: len(each.replicas) for name, each in self.engine.statistics().operators.items() if each.replicas}

    def settle(self, side: str, most: int) -> int:
        """Let a side decide, from one worker on, until it says that it has settled; return how often it did."""
        self._set(1, dict.fromkeys(self.replicas, 1))
        pilot = self.pilots[side]
        pilot.begin_period()
        steps = 0
        while steps < most and not self._settled(side):
            steps += 1
            time.sleep(self.period)
            pilot.step()
        self._keep(side)
        return steps

    def _settled(self, side: str) -> bool:
        """Tell whether the workers have settled, and their replicas after them; the baselines never say."""
        if side != OWN:
            return False
        journal = self.pilots[side].journal
        if not journal.state("threads").levels.settled:
            return False
        if not journal.has("replicas"):
            return True
        known = journal.state("replicas").operators
        return bool(known) and all(each.slow is not None or each.idle is not None for each in known)

    def elastic(self, side: str, steps: int) -> float:
        """Let a side decide so many times; return the rows a second meanwhile."""
        self._set(*self.found[side])
        time.sleep(PAUSE)
        pilot = self.pilots[side]
        pilot.begin_period()  # what others did is none of its business
        with self._clocked() as rates:
            for _ in range(steps):
                time.sleep(self.period)
                pilot.step()
        self._keep(side)
        return rates[0]

    def fixed(self, setting: Setting, seconds: float) -> float:
        """Run with a setting; return the rows a second."""
        self._set(setting.workers, dict.fromkeys(self.replicas, setting.replicas or 1))
        time.sleep(PAUSE)
        with self._clocked() as rates:
            time.sleep(seconds)
        return rates[0]

    def _set(self, workers: int, replicas: Mapping[str, int]) -> None:
        self.engine.element.set_workers(workers)
        now, element = self.replicas, self.engine.element
        for name, count in replicas.items():
            if now[name] != count:
                self.engine.between_batches(lambda name=name, count=count: element.set_replicas(name, count)).result()  # type: ignore[misc]

    def _keep(self, side: str) -> None:
        self.found[side] = int(self.engine.element.model.active), self.replicas

    @contextmanager
    def _clocked(self) -> Iterator[list[float]]:
        rates: list[float] = []
        before = self.engine.statistics()
        yield rates
        after = self.engine.statistics()
        rates.append((handled(after) - handled(before)) / (after.at - before.at))

    def said(self, side: str) -> str:
        """Return what a side has found, for a reader."""
        workers, replicas = self.found[side]
        return str(Setting(workers, round(statistics.fmean(replicas.values())) if replicas else None))


def handled(stats: FlowStats) -> int:
    """Return the rows that all operators took in."""
    return sum(each.rows_in for each in stats.operators.values())


@contextmanager
def flying(
    flow: ps.Flow, batch: int, period: float, *, replicas: bool = False, baselines: tuple[str, ...] = ()
) -> Iterator[Flown]:
    """Run a flow without end until the block is left: elastic workers, with elastic replicas where asked for."""
    steer: frozenset[LeverName] = frozenset({"waits", "replicas", "shards"} if replicas else {"waits"})
    settings = Settings(replicas=1) if replicas else Settings()
    engine = LocalEngine(
        make_plan(flow), LocalOptions(batch, settings=settings, elastic=True, steer=steer, period=BY_HAND)
    )
    pilots = {OWN: engine.pilot}
    for name in baselines:
        pilots[name] = PilotThread(engine.statistics, [BASELINES[name](engine, period)], period=BY_HAND)
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    try:
        yield Flown(engine, pilots, period)
    finally:
        engine.stop_now()
        thread.join()
