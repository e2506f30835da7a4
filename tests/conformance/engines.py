"""The engines that are held to the sequential one. To add one, write its function and put it in `ENGINES`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.connectors.sequence import InputSequence
from penstock.flow import Flow
from penstock.lab import Locked
from penstock.plan.plan import make_plan
from penstock.sequential import SequentialEngine
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.policies import POLICIES
from penstock.threads.settings import Settings

from ..quick_spark import suite_session
from .inline import CutFeed, Inline, cut_feeds, run_cut

Epochs = list[dict[str, list[Any]]]
"""For each epoch the new rows of each source; behind the last one all sources end."""
Results = dict[str, list[Any]]
"""The rows of each sink, in order."""


@dataclass(frozen=True)
class Engine:
    """An engine under test, and how much of the suite its speed allows."""

    name: str
    run: Callable[..., Results]
    """Runs a flow on epochs; with `alone=True`, each source ends behind its own last row."""
    every_cut: bool = True
    """Whether each named flow runs with other cuts than its own; `make chaos` has them all."""
    examples: int = 100
    """How many random flows to draw."""
    shrinks: bool = True
    """Whether a failing random flow is made smaller, which takes hundreds of runs."""
    most_epochs: int | None = None
    """How many epochs a named flow may have; the first are taken together where there are more."""
    marks: tuple[str, ...] = ()
    """Pytest marks of its tests."""


def sequential(flow: Flow, epochs: Epochs, alone: bool = False) -> Results:
    """Run the reference engine: what SEMANTICS.md calls the input sequence, one row after the other."""
    plan = make_plan(flow)
    engine = SequentialEngine(plan)
    sequence = InputSequence(plan, engine)
    epochs = [epoch for epoch in epochs if any(epoch.values())]
    ended: set[str] = set()
    for number, epoch in enumerate(epochs):
        for node in plan.sources:
            for row in epoch.get(node.name, []):
                sequence.give(node.name, row if node.types[0] is None else node.types[0].roundtrip(row))
        if plan.layout.sequence != "own":
            continue  # it matters not when rows come, so they may as well be there from the start
        sequence.run()
        for node in plan.sources if alone else ():
            if node.name not in ended and not any(later.get(node.name) for later in epochs[number:]):
                ended.add(node.name)
                engine.end(node.name)
    for node in plan.sources:
        sequence.end(node.name)
    sequence.run()
    return engine.results


def on_spark(flow: Flow, epochs: Epochs, alone: bool = False) -> Results:
    """Run the Spark engine on Spark, on two cores with three tasks a level; the session is that of the suite."""
    from penstock.spark.job import SparkBackend

    return run_cut(flow, epochs, SparkBackend(suite_session()), tasks=3, alone=alone)


class Threads:
    """Run flows on the threads engine: one model, policy and number of workers, batches of any size."""

    def __init__(self, batch_rows: int, **settings: Any) -> None:
        self._batch_rows, self._settings = batch_rows, settings

    def __call__(self, flow: Flow, epochs: Epochs, alone: bool = False) -> Results:
        plan = make_plan(flow)
        epochs = [epoch for epoch in epochs if any(epoch.values())]
        engine = _CutLocalEngine(plan, LocalOptions(self._batch_rows, settings=Settings(**self._settings)))
        engine.feeds = cut_feeds(plan, epochs, 2, alone)
        # Who comes first is what the epochs say: no source is held back for another.
        engine._brakes.active = False
        engine.run()
        return engine.results


class _CutLocalEngine(LocalEngine):
    feeds: dict[str, CutFeed]

    def _feeds(self) -> Any:
        return self.feeds or super()._feeds()


REFERENCE = Engine("sequential", sequential)

ENGINES = [
    Engine("inline-1", Inline(tasks=1), examples=60),
    Engine("inline-3", Inline(tasks=3, seed=1, threads=2), examples=120),
    Engine("threads-manual", Threads(3, model="manual"), examples=60),
    Engine("threads-dynamic-1", Threads(2, workers=1), every_cut=False, examples=30),
    Engine("threads-dynamic-3", Threads(1, workers=3, partitions=3, capacity=2, in_flight=8), examples=60),
    Engine("threads-dedicated", Threads(2, model="dedicated", capacity=2), every_cut=False, examples=30),
    Engine("threads-bound", Threads(2, model="bound", workers=3), every_cut=False, examples=30),
    Engine(
        "threads-replicas",
        Threads(2, workers=2, partitions=4, capacity=4, in_flight=16, replicas=3),
        every_cut=False,
        examples=15,
    ),
    Engine(
        "threads-executor",
        Threads(2, model="bound", workers=2, partitions=4, partitioned="executor", replicas=2),
        every_cut=False,
        examples=10,
    ),
    Engine(
        "threads-locked",
        Threads(2, workers=3, partitions=3, capacity=2, in_flight=8, reorder=Locked()),
        every_cut=False,
        examples=15,
    ),
    *(
        Engine(
            f"threads-{name}",
            Threads(2, workers=2, partitions=3, policy=make()),
            every_cut=False,
            examples=10,
        )
        for name, make in POLICIES.items()
    ),
    Engine("spark", on_spark, every_cut=False, examples=6, shrinks=False, most_epochs=4, marks=("spark",)),
]
"""All but the reference. `inline` is the Spark engine with its tasks run in this process, in any order."""


def cut(rows: dict[str, list[Any]], sizes: Iterable[dict[str, int]]) -> Epochs:
    """Cut the rows of each source in epochs of these sizes; what is left comes in one more."""
    taken = dict.fromkeys(rows, 0)
    epochs: Epochs = []
    for size in sizes:
        epochs.append({name: rows[name][taken[name] : taken[name] + count] for name, count in size.items()})
        for name, count in size.items():
            taken[name] += count
    rest = {name: rows[name][taken[name] :] for name in rows if taken[name] < len(rows[name])}
    return [*epochs, rest] if rest else epochs


def at_most(epochs: Epochs, count: int | None) -> Epochs:
    """Take the first epochs together, so that no more than `count` remain."""
    if count is None or len(epochs) <= count:
        return epochs
    first = epochs[: len(epochs) - count + 1]
    together = {name: [row for epoch in first for row in epoch.get(name, [])] for epoch in first for name in epoch}
    return [together, *epochs[len(first) :]]


def whole(rows: dict[str, list[Any]]) -> Epochs:
    """Take everything in one epoch."""
    return cut(rows, [])


def one_by_one(rows: dict[str, list[Any]]) -> Epochs:
    """Take one row of each source an epoch."""
    return cut(rows, [dict.fromkeys(rows, 1)] * max(map(len, rows.values()), default=0))
