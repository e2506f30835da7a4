"""Repeat Rebinding's experiments: the latency of 150 queries over simulated vehicles, at the paper's utilization.

The paper's machine sustains 220,000 vehicles with its policy and not 300,000; how many vehicles use up this machine is
measured first, and 120,000, 220,000 and up to 300,000 are scaled to that. The paper has 25 ticks a second; here there
are fewer, because 300 operators in Python take longer for a tick than that, whatever the vehicles. A query's latency
at a tick is from when the tick is due until the query's answer for it is out; the paper's 10 ms are a quarter of its
tick, so the distribution is in quarters of a tick.
"""

import argparse
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench import local_side, measure
from penstock import lab
from penstock.elastic.rebinding import Binding, new_places
from penstock.errors import PenstockError
from penstock.lab.baselines import GreedyRebinding
from penstock.lab.workloads.traffic import car_following, queries, trace
from penstock.threads.models.scheduled import Scheduled
from penstock.threads.pilot import PilotThread
from penstock.threads.rebinding import BarrierBinding
from penstock.threads.rebinding import BindingTable as FreeBinding

DESCRIPTION = "Rebinding's traffic queries: latency distribution by binding policy, at loads scaled to the paper's"

EXPERIMENTS: dict[str, tuple[int, trace.Load]] = {
    "constant 120,000": (120_000, "constant"),
    "constant 220,000": (220_000, "constant"),
    "rush hour 300,000": (300_000, "rush-hour"),
}
SIDES: dict[str, dict[str, Any]] = {
    "static": {"model": "bound", "binding": lab.Static()},
    "single_queue": {"model": "dynamic", "policy": "virtual-time"},
    "greedy": {"model": "bound", "binding": lab.Greedy()},
    "barrier": {"model": "bound", "binding": lab.Barrier(GreedyRebinding())},
    "rebinding": {"model": "bound"},
    "dynamic": {"model": "dynamic"},
}
"""The paper's static binding, single virtual-time queue, greedy policy without and with a barrier; Penstock's own two.

Figure 2 compares `barrier` with `greedy`: the same policy, with and without everybody standing still.
"""
QUARTERS = range(9)
"""The paper's distribution has parts of 10 ms, a quarter of its tick, up to 90 ms, and one above."""


@dataclass
class Live:
    """A recorded trace that comes tick by tick, each when it is due, and the answers to it."""

    table: pa.Table
    batch: int
    hz: float | None
    """None gives ticks as fast as they are taken."""
    began: float | None = None
    answers: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)
    """For each query the tick of an answer, how many vehicles it is about, and when it came."""

    def __call__(self, start: int, stop: int) -> pa.Table:
        """Give a batch, which is a tick."""
        if self.began is None:
            self.began = time.monotonic()
        if self.hz is not None:
            wait = self.due(start // self.batch) - time.monotonic()
            if wait > 0:
                time.sleep(wait)
        return self.table.slice(start, stop - start)

    def due(self, tick: int) -> float:
        """Return when a tick is to come."""
        assert self.began is not None
        return self.began + (tick / self.hz if self.hz else 0.0)

    def sink(self, name: str) -> Any:
        """Return the sink of a query."""
        answers = self.answers.setdefault(name, [])
        count = COUNTS[name.partition("-")[0]]

        def take(rows: list[Any], _epoch: int) -> None:
            now = time.monotonic()
            answers.extend((row.time // trace.TICK_MS, count(row), now) for row in rows)

        return ps.write.callback(take)

    def latencies(self) -> dict[tuple[str, int], float]:
        """Return the seconds that each query took for each tick."""
        return {(name, tick): now - self.due(tick) for name, found in self.answers.items() for tick, _, now in found}


COUNTS: dict[str, Callable[[Any], int]] = {
    "agents": lambda row: sum(row.agents),
    "average": lambda row: int(row.agents),
    "top": lambda row: len(row.ids),
}
"""How many vehicles an answer is about."""


def recorded(vehicles: int, ticks: int, load: trace.Load, seed: int) -> tuple[pa.Table, int]:
    """Simulate; return the trace and the rows of a batch, so that each batch is one tick."""
    batch = vehicles + 1
    return trace.record(car_following.frames(vehicles, ticks, load, seed), batch), batch


def go(live: Live, side: dict[str, Any], args: argparse.Namespace, changes: int = 0) -> dict[str, Any]:
    """Run all queries over a trace on one side; return what the run was like."""
    flow = ps.Flow("traffic")
    asked = queries.trace_of(flow, ps.read.generate(live, schema=trace.SCHEMA, rows=len(live.table)))
    for number in range(args.replicas):
        for kind in queries.QUERIES:
            queries.add_query(asked, kind, number, live.sink(f"{kind}-{number}"))
    began = time.monotonic()
    run = ps.start(flow, on=ps.Threads(workers=args.workers, batch_rows=live.batch, **side))
    pilot = paced(run, args.period)
    check_side(run, side)
    changed = Changes(run, asked, live, args.replicas, changes)
    changed.start()
    run.await_end()
    changed.join()
    seconds = time.monotonic() - began
    operators = run.stats.operators.values()
    busy = sum(operator.wall for operator in operators)
    return {
        "seconds": seconds,
        # Sinks and chains are run with another operator; sources are nobody's work.
        "stations": sum(operator.queue_of == operator.name and bool(operator.queued) for operator in operators),
        "utilization": busy / seconds / args.workers,
        "rebound": sum(len(new_places(line.action())) for line in pilot.journal.decisions),
        "queries_changed": changed.made,
    }


def paced(run: ps.Run, period: float) -> PilotThread:
    """Have the run's own pilot step so often; return it."""
    engine: Any = run.engine
    pilot: PilotThread = engine.pilot
    pilot._period = period
    return pilot


def check_side(run: ps.Run, side: dict[str, Any]) -> None:
    """Fail if the run does not bind and rebind operators as its side says."""
    engine: Any = run.engine
    model = engine.element.model
    if side["model"] == "dynamic":
        local_side.check_part("dynamic", model, Scheduled)
        return
    binding = side.get("binding", Binding())
    local_side.check_part(repr(binding), model._binding, BarrierBinding if binding.barrier else FreeBinding)
    decides = [each.controller for each in engine.pilot.levers if each.name == "rebinding"]
    if decides != [each for each in [binding.controller] if each is not None]:
        raise AssertionError(f"{binding!r}: the run is rebound by {decides}")


class Changes(threading.Thread):
    """Cancel queries and add others while the flow runs, evenly over its time."""

    def __init__(self, run: ps.Run, asked: queries.Trace, live: Live, replicas: int, count: int) -> None:
        super().__init__(daemon=True)
        self._run, self._asked, self._live, self._replicas, self._count = run, asked, live, replicas, count
        self.made = 0

    def run(self) -> None:
        """Make the changes."""
        ticks = len(self._live.table) // self._live.batch
        kinds = list(queries.QUERIES)
        for number in range(self._count):
            due = ticks * (number + 1) // (self._count + 1)
            while self._run.running and (self._live.began is None or time.monotonic() < self._live.due(due)):
                self._run.await_end(0.01)
            if not self._run.running:
                return
            kind, new = kinds[number % len(kinds)], self._replicas + number
            queries.add_query(self._asked, kind, new, self._live.sink(f"{kind}-{new}"))
            try:
                self._run.add_query(f"{kind}-{new}")
                self._run.cancel_query(f"{kind}-{number // len(kinds)}")
            except PenstockError:
                if self._run.await_end(10):
                    return  # a slow machine came to the end before the change
                raise
            self.made += 1


def check(live: Live, vehicles: int, load: trace.Load, args: argparse.Namespace, changes: int) -> None:
    """Fail unless every query that ran throughout has answered every tick, about all vehicles."""
    ticks = len(live.table) // live.batch
    for number in range(-(-changes // len(queries.QUERIES)), args.replicas):
        for kind in queries.QUERIES:
            found = {tick: agents for tick, agents, _ in live.answers[f"{kind}-{number}"]}
            active = [trace.active(load, vehicles, tick, ticks) for tick in range(ticks)]
            expected = [min(10, each) for each in active] if kind == "top" else active
            if found != dict(enumerate(expected)):
                raise AssertionError(
                    f"{kind}-{number} answered {len(found)} of {ticks} ticks, or not about all vehicles"
                )


def capacity(args: argparse.Namespace) -> dict[str, float]:
    """Find how many vehicles use up this machine: a tick's time is a fixed part and one for each vehicle."""
    points = []
    for vehicles in args.probe:
        table, batch = recorded(vehicles, args.probe_ticks, "constant", args.seed)
        # The least of a few: the first one warms, and others on the machine only add to it.
        turns = [go(Live(table, batch, None), SIDES["dynamic"], args)["seconds"] for _ in range(3)]
        points.append((vehicles, min(turns) / args.probe_ticks))
        local_side.say(f"{vehicles:,} vehicles: {1000 * points[-1][1]:.1f} ms a tick")
    slope, fixed = np.polyfit(*zip(*points, strict=True), 1).tolist()
    if slope <= 0:
        raise SystemExit("more vehicles took less time: the machine is too noisy now; try again, or with wider --probe")
    if fixed >= 1 / args.hz:
        raise SystemExit(
            f"a tick takes {1000 * fixed:.1f} ms without any vehicle: too long for {args.hz:g} ticks a second; give "
            f"fewer --replicas or a lower --hz"
        )
    return {"vehicles": (1 / args.hz - fixed) / slope, "fixed_ms": 1000 * fixed, "us_a_vehicle": 1e6 * slope}


def distribution(late: dict[tuple[str, int], float], hz: float) -> dict[str, Any]:
    """Describe query latencies as the paper does: parts by quarters of a tick, and the average second by second."""
    values = np.array(list(late.values()))
    seconds = np.array([tick / hz for _, tick in late]).astype(np.int64)
    parts = np.bincount(np.minimum(values * hz * 4, len(QUARTERS)).astype(np.int64), minlength=len(QUARTERS) + 1)
    names = [*(f"{quarter / 4:g}-{(quarter + 1) / 4:g}" for quarter in QUARTERS), f"{len(QUARTERS) / 4:g}-"]
    return {
        "answers": len(values),
        "mean_ms": float(1000 * values.mean()),
        "p50_ms": float(1000 * np.quantile(values, 0.5)),
        "p99_ms": float(1000 * np.quantile(values, 0.99)),
        "within_half_a_tick": float((values * hz < 0.5).mean()),
        "parts_by_ticks": dict(zip(names, (parts / len(values)).round(4).tolist(), strict=True)),
        "mean_ms_by_second": [round(1000 * float(values[seconds == s].mean()), 2) for s in np.unique(seconds)],
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--replicas", type=int, default=50, help="replicas of each of the three queries")
    parser.add_argument("--hz", type=float, default=4.0, help="ticks a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a run")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--period", type=float, default=2.0, help="seconds between steps of a binding policy")
    parser.add_argument("--changes", type=int, default=6, help="queries cancelled and added in each run")
    parser.add_argument(
        "--paper-capacity",
        type=int,
        default=250_000,
        help="vehicles that use up the paper's machine: it sustains 220,000, and not 300,000",
    )
    parser.add_argument(
        "--probe", type=int, nargs=2, default=[2_000, 40_000], help="vehicles that measure the capacity"
    )
    parser.add_argument("--probe-ticks", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5, help="runs of every side, in turns")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--experiments", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))


def experiment(
    name: str, most: float, args: argparse.Namespace, results: list[dict[str, Any]]
) -> dict[str, dict[str, float | int]]:
    """Run one experiment on all sides in turns; return each side's mean latency, and its ratio to the greedy one's."""
    agents, load = EXPERIMENTS[name]
    vehicles = max(10, round(most * agents / args.paper_capacity))
    ticks = max(2, round(args.seconds * args.hz))
    table, batch = recorded(vehicles, ticks, load, args.seed)

    def turn(side: str) -> float:
        live = Live(table, batch, args.hz)
        figures = go(live, SIDES[side], args, args.changes)
        check(live, vehicles, load, args, args.changes)
        late = distribution(live.latencies(), args.hz)
        local_side.say(f"{name}, {side}: {late['mean_ms']:.1f} ms, utilization {figures['utilization']:.2f}")
        results.append({"experiment": name, "vehicles": vehicles, "side": side, **figures, **late})
        return float(late["mean_ms"])

    found = measure.interleave({side: partial(turn, side) for side in args.sides}, args.rounds)
    summary = {f"{side}_ms": measure.median(each, seed=args.seed).as_dict() for side, each in found.items()}
    if "greedy" in found:
        for side in found.keys() - {"greedy"}:
            summary[f"{side}_greedy"] = measure.ratio(found[side], found["greedy"], seed=args.seed).as_dict()
    return summary


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the capacity, then run every experiment on every side."""
    found = capacity(args)
    results: list[dict[str, Any]] = []
    summaries = {name: experiment(name, found["vehicles"], args, results) for name in args.experiments}
    settings = {name: getattr(args, name) for name in ("replicas", "hz", "seconds", "workers", "paper_capacity")}
    return {
        **settings,
        "queries": 3 * args.replicas,
        "operators": 6 * args.replicas,
        "capacity": found,
        "experiments": summaries,
        "runs": results,
    }
