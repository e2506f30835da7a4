"""Set up Streams' experiments (section 5): a thousand operators on 176 and 184 logical cores.

A period of the controller is 10 s there. Here it is as long as it takes each worker to run a given number of
batches: the controller has no clock, and the simulated throughput needs no longer to be steady.

The sink of the mixed graph, which joins its rows, is slower than cheap tuples need it: queues fill up from there,
and after some ninety periods with a hundred workers all are full, and the sink alone is the limit at a quarter of
the throughput. That is another load, which a controller notices; the experiments end before it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.elastic.base import Controller
from penstock.lab.sim.graphs import Graph, data_parallel, mixed, pipeline
from penstock.lab.sim.machine import POWER8, XEON, Machine
from penstock.lab.sim.pe import PE
from penstock.lab.sim.steering import Journey, static_throughput, steer, thread_lever

# Tuples a batch: fewer where each costs much, so that an event stays short against a period.
_ROWS, _ROWS_OF_EXPENSIVE = 64, 16
_EXPENSIVE = 10_000


@dataclass(frozen=True, slots=True)
class Shape:
    """Name a graph, the tuple costs it is measured at, and the state that it begins in."""

    name: str
    make: Callable[[int, float], Graph]
    costs: tuple[int, ...]
    filled: float
    """Of a split's queues each holds one batch, as the source goes round them; a pipeline's are half full."""
    batches: tuple[int, ...]
    """For each cost, the batches that a worker has time for in a period, so that periods are alike."""


SHAPES = (
    # Figure 8, upper rows: a pipeline at 1, 100 and 1,000 floating-point operations a tuple.
    Shape("pipeline", pipeline, (1, 100, 1_000), 0.5, (96, 96, 96)),
    # Figure 8, lower rows: data parallel at 1, 10,000 and 100,000.
    Shape("data_parallel", data_parallel, (1, 10_000, 100_000), 1 / 16, (1200, 240, 120)),
    # Figure 9: ten rows; the text names only the cost of 1,000, the others are the pipeline's.
    Shape("mixed", lambda operators, cost: mixed(10, operators // 10, cost), (1, 100, 1_000), 0.5, (96, 96, 96)),
)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Hold one graph at one cost on one machine."""

    shape: Shape
    machine: Machine
    flops: int
    operators: int = 1_000

    @property
    def name(self) -> str:
        return f"{self.machine.name}/{self.shape.name}/{self.flops}"

    @property
    def rows(self) -> int:
        return _ROWS if self.flops < _EXPENSIVE else _ROWS_OF_EXPENSIVE

    @property
    def period(self) -> float:
        each = self.flops / self.machine.flops + self.machine.synchronization.tuple_passing
        return each * self.rows * self.shape.batches[self.shape.costs.index(self.flops)]

    def pe(self, level: int) -> PE:
        """Return a PE whose queues are filled as they are while it runs."""
        graph = self.shape.make(self.operators, self.flops / self.machine.flops)
        return PE(graph, self.machine, level=level, rows=self.rows, filled=self.shape.filled)

    def static(self, level: int, periods: int = 6) -> float:
        return static_throughput(self.pe(level), period=self.period, warmup=3, periods=periods)

    def elastic(
        self, controller: Controller[Any, Any], *, periods: int, noise: float, seed: int
    ) -> tuple[Journey, float]:
        """Let a controller find the level; return what it did, and the throughput where it ended."""
        pe = self.pe(1)
        journey = steer(pe, [thread_lever(pe, controller)], period=self.period, periods=periods, noise=noise, seed=seed)
        return journey, static_throughput(pe, period=self.period, warmup=1, periods=6)


def experiments(operators: int = 1_000) -> tuple[Experiment, ...]:
    return tuple(
        Experiment(shape, machine, flops, operators)
        for machine in (XEON, POWER8)
        for shape in SHAPES
        for flops in shape.costs
    )


def static_levels(machine: Machine) -> tuple[int, ...]:
    """Return the fixed levels that are compared: each at most a third above the one before."""
    levels = [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 52, 64, 80, 96, 112, 128, 144, 160]
    return (*(level for level in levels if level < machine.cores), machine.cores)
