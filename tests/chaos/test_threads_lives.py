"""Many short lives of flows in threads: every model, binding and policy; queries, workers and replicas come and go.

Each life draws how the flow runs, changes it while it runs, and ends it: at its end, by a stop, or at once. What came
out is exact, or a prefix where it was stopped; no thread is left; and no controller has given up.
"""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import FlowError, PenstockError
from penstock.plan.plan import make_plan
from penstock.run import SetPlan, SetReplicas
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.policies import POLICIES, by_name
from penstock.threads.settings import Settings
from tests.patience import PATIENCE

KEYS = 7


def rows(start: int, stop: int) -> pa.Table:
    numbers = np.arange(start, stop)
    return pa.table({"n": numbers, "k": numbers % KEYS})


class Pairs(ps.Coroutine):
    """Pair rows in a local variable across two waits, as an ordinary function would."""

    async def process(self, ctx: Any) -> None:
        pairs = 0
        while await ctx.wait_for_all({0: 1}):
            first = ctx.pop()
            if not await ctx.wait_for_all({0: 1}):
                break
            pairs += 1
            await ctx.emit((pairs, first[0], ctx.pop()[0]))


class Taken:
    """A sink that knows what must come."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def __call__(self, some: list[Any], number: int) -> None:
        self.got += some


def slowly(row: Any) -> Any:
    """Let go of the interpreter now and then, so that others get in between."""
    if row.n % 50 == 0:
        time.sleep(0.0005)
    return row


class Meddler:
    """Somebody who asks for bindings, and changes them, as long as a flow lives: also while it stops."""

    def __init__(self, model: Any, draw: random.Random) -> None:
        self._model, self._draw, self._end = model, draw, threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        if hasattr(model, "rebind"):
            self._thread.start()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                for name in [*self._model.bindings(), "gone"]:
                    self._model.rebind(name, self._draw.randrange(self._model.active))
                self._end.wait(0.001)  # workers do what they are asked for before anything else
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()
        assert self.error is None, repr(self.error)


def counted(total: int) -> list[Any]:
    return [(n, n % KEYS, n // KEYS + 1) for n in range(total)]


def paired(total: int) -> list[Any]:
    return [(pair + 1, 2 * pair, 2 * pair + 1) for pair in range(total // 2)]


def drawn_settings(draw: random.Random) -> Settings:
    model = draw.choice(["manual", "dedicated", "dynamic", "dynamic", "bound", "bound"])
    return Settings(
        model=model,  # type: ignore[arg-type]
        workers=draw.randint(1, 4),
        policy=by_name(draw.choice(list(POLICIES))) if model == "dynamic" and draw.random() < 0.7 else None,
        capacity=draw.choice([1, 2, 16]),
        in_flight=draw.choice([2, 8, 64]),
        quantum=draw.choice([0.0, 0.0005, 0.05]),
        partitioned=draw.choice(["hybrid", "partitioned", "shared", "executor"]),
        barrier=model == "bound" and draw.random() < 0.5,
        seed=draw.randrange(1000),
    )


def one_life(draw: random.Random) -> None:
    total = draw.choice([0, 1, 500, 3000])
    flow = ps.Flow("life")
    source = flow.source("in", ps.read.generate(rows, schema={"n": int, "k": int}, rows=total))
    worked = source.map(slowly, name="work")
    main, pairs = Taken(), Taken()
    worked.key_by("k").scan(lambda n, row: (n + 1, (row.n, row.k, n + 1)), 0, name="count").sink("main", main)
    ps.operate(Pairs(), worked, name="pair").sink("pairs", pairs)
    settings = drawn_settings(draw)
    steer = {"rebinding"} if settings.model == "bound" else set()
    options = LocalOptions(draw.choice([1, 3, 64]), settings=settings, steer=frozenset(steer), period=0.002)  # type: ignore[arg-type]
    engine = LocalEngine(make_plan(flow), options)
    steered = engine.pilot.names
    failed: list[BaseException] = []

    def run() -> None:
        try:
            engine.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    meddler = Meddler(engine.element.model, random.Random(draw.random()))
    queries = {"main", "pairs"}
    extra: dict[str, Taken] = {}
    ending = draw.choice(["end", "stop", "at once"])
    for step in range(draw.randrange(12)):
        if not thread.is_alive():
            break
        try:
            change(draw, engine, flow, worked, queries, extra, step)
        except (FlowError, PenstockError) as error:
            if "has ended" not in str(error) and "has no" not in str(error) and "has the threads" not in str(error):
                raise
        time.sleep(draw.choice([0.0, 0.0, 0.003]))
    if ending == "stop":
        engine.stop()
    elif ending == "at once":
        engine.stop_now()
    thread.join(PATIENCE)
    meddler.end()
    assert not thread.is_alive(), f"hangs: {settings}"
    assert failed == []
    check(main.got, counted(total), ending, settings)
    check(pairs.got, paired(total), ending, settings)
    for taken in extra.values():
        numbers = [row.n for row in taken.got]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    assert engine.pilot.names == steered, "a controller has given up"
    left = [each.name for each in threading.enumerate() if each.name.startswith("penstock")]
    assert left == [], f"{left} left by {settings}"


def change(
    draw: random.Random, engine: LocalEngine, flow: ps.Flow, worked: Any, queries: set[str], extra: Any, step: int
) -> None:
    """Change something of a flow that runs."""
    model: Any = engine.element.model
    choice = draw.random()
    if choice < 0.35:
        name, taken = f"query {step}", Taken()
        worked.filter(lambda row: True, name=f"all {step}").sink(name, taken)
        engine.ask(SetPlan(make_plan(flow).only({*queries, name}))).result()
        queries.add(name)
        extra[name] = taken
    elif choice < 0.6 and extra.keys() & queries:
        name = draw.choice(sorted(extra.keys() & queries))
        engine.ask(SetPlan(make_plan(flow).only(queries - {name}))).result()
        queries.discard(name)
    elif choice < 0.8 and not hasattr(model, "rebind"):
        engine.element.set_workers(draw.randint(1, 5))
    else:
        engine.ask(SetReplicas("work", draw.randint(1, 4))).result()


def check(got: list[Any], meant: list[Any], ending: str, settings: Settings) -> None:
    assert got == (meant if ending == "end" else meant[: len(got)]), settings


@pytest.fixture(autouse=True)
def often():
    """Let threads change places a hundred times as often as usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 100)
    yield
    sys.setswitchinterval(usual)


def test_a_hundred_lives(caplog):
    caplog.set_level(logging.ERROR)
    for seed in range(100):
        one_life(random.Random(seed))
        assert not caplog.records, (seed, caplog.text)


@pytest.mark.slow
def test_ten_minutes_of_lives(caplog):
    caplog.set_level(logging.ERROR)
    began, lives = time.monotonic(), 0
    while time.monotonic() - began < 600:
        one_life(random.Random(1_000_000 + lives))
        assert not caplog.records, (lives, caplog.text)
        lives += 1
    print(f"\n{lives:,} lives")
