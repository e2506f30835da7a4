"""Let controllers steer a simulated PE: read it once a period, decide, act, and keep the log."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.elastic.base import Action, Controller
from penstock.elastic.decisions import Decision, Recorded
from penstock.lab.sim.pe import PE
from penstock.lab.sim.readings import Meter


@dataclass(frozen=True, slots=True)
class Wheel:
    """Tie a controller to what it reads and what it turns."""

    name: str
    controller: Controller[Any, Any]
    read: Callable[[Meter], Any]
    turn: Callable[[PE, Action], None]


@dataclass
class Journey:
    """Hold what happened: the decisions; and level, rows of a batch and throughput of each period."""

    log: list[Decision] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    """Rows of a batch, in each period."""
    throughputs: list[float] = field(default_factory=list)
    """As measured, with the noise that the controllers saw."""


def steer(pe: PE, wheels: list[Wheel], *, period: float, periods: int, noise: float = 0.0, seed: int = 0) -> Journey:
    """Run a PE for so many periods under these controllers; each sees the same readings."""
    journey = Journey()
    meter = Meter(pe, noise, seed)
    pilots = []
    for wheel in wheels:
        pilot, line = Recorded.begin(wheel.name, wheel.controller, time=pe.events.now)
        pilots.append(pilot)
        journey.log.append(line)
    for _ in range(periods):
        pe.run(period)
        meter.read()
        journey.levels.append(pe.level)
        journey.rows.append(pe.rows)
        journey.throughputs.append(meter.throughput)
        for i, wheel in enumerate(wheels):
            pilots[i], actions, lines = pilots[i].step(wheel.read(meter), time=pe.events.now)
            journey.log += lines
            for action in actions:
                wheel.turn(pe, action)
    return journey


def _number(action: Action) -> int:
    assert isinstance(action.after, int)
    return action.after


def thread_wheel(controller: Controller[Any, Any]) -> Wheel:
    """Steer the number of workers by throughput."""
    return Wheel("pe/threads", controller, Meter.threads, lambda pe, action: pe.set_level(_number(action)))


def pool_wheel(controller: Controller[Any, Any]) -> Wheel:
    """Steer the number of workers by their utilization."""
    return Wheel("pe/pool", controller, Meter.pool, lambda pe, action: pe.set_level(_number(action)))


def replica_wheel(controller: Controller[Any, Any]) -> Wheel:
    """Steer how many workers may run each operator at once."""

    def turn(pe: PE, action: Action) -> None:
        pe.set_permits(int(action.target), _number(action))

    return Wheel("pe/replicas", controller, Meter.replicas, turn)


def binding_wheel(controller: Controller[Any, Any]) -> Wheel:
    """Steer which worker runs each operator."""

    def turn(pe: PE, action: Action) -> None:
        pe.bind(int(action.target), _number(action))

    return Wheel("pe/binding", controller, Meter.binding, turn)


def waiting_wheel(controller: Controller[Any, Any], operator: int) -> Wheel:
    """Steer how many rows of one operator wait at once."""
    return Wheel(
        f"pe/waiting/{operator}",
        controller,
        lambda meter: meter.waiting(operator),
        lambda pe, action: pe.set_in_flight(operator, _number(action)),
    )


def batch_wheel(controller: Controller[Any, Any]) -> Wheel:
    """Steer how many rows a batch takes."""
    return Wheel("pe/batches", controller, Meter.batches, lambda pe, action: pe.set_rows(_number(action)))


def static_throughput(pe: PE, *, period: float, warmup: int, periods: int) -> float:
    """Return the throughput of a PE that nobody steers, after a warm-up."""
    pe.run(warmup * period)
    before = sum(pe.processed)
    pe.run(periods * period)
    return (sum(pe.processed) - before) / (periods * period)
