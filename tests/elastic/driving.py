"""Drive a controller over a curve, and make the curves that the property tests draw."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from penstock.elastic.base import Action
from penstock.elastic.thread_level import ThreadLevel, ThreadState, ThreadStatistics

Curve = Callable[[int], float]


@dataclass
class Run:
    """Hold what a driven controller did."""

    state: ThreadState
    levels: list[int]
    actions: list[Action]

    @property
    def level(self) -> int:
        return self.state.levels.level


def drive(
    controller: ThreadLevel,
    curve: Curve,
    periods: int,
    *,
    state: ThreadState | None = None,
    noise: float = 0.0,
    seed: int = 0,
) -> Run:
    """Feed a controller the throughput of its own level, with Gaussian noise from a seed."""
    chance = random.Random(seed)
    run = Run(state or controller.start(), [], [])
    for _ in range(periods):
        throughput = max(0.0, curve(run.level) * (1 + noise * chance.gauss(0, 1)))
        run.state, actions = controller.step(run.state, ThreadStatistics(throughput))
        run.actions += actions
        run.levels.append(run.level)
    return run


def table(values: list[float]) -> Curve:
    """Return the curve with these throughputs at levels 1, 2, ..."""
    return lambda level: values[level - 1]


@st.composite
def unimodal(draw: st.DrawFn, smallest_step: float, highest: int = 200) -> list[float]:
    """Draw a curve that rises to a top and falls, each step by more than a fraction."""
    size = draw(st.integers(1, highest))
    top = draw(st.integers(1, size))
    # Steps of more than a factor 10 over 200 levels would leave the range of floats.
    step = st.floats(smallest_step, 0.5, exclude_min=True)
    ups = draw(st.lists(step, min_size=top - 1, max_size=top - 1))
    downs = draw(st.lists(step, min_size=size - top, max_size=size - top))
    values = [1.0]
    for up in ups:
        values.append(values[-1] * (1 + up))
    for down in downs:
        values.append(values[-1] / (1 + down))
    return values
