"""A flow in threads while everything changes: workers, replicas, bindings, queries; slow rows and rows that fail."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

KEYS = 50


def rows(start: int, stop: int) -> pa.Table:
    numbers = np.arange(start, stop)
    return pa.table({"n": numbers, "k": numbers % KEYS})


def work(row: Any) -> Any:
    if row.n % 10_007 == 0:
        time.sleep(0.001)
    if row.n % 1_009 == 0:
        raise ValueError("one of these")
    return row


def count(state: int, row: Any) -> tuple[int, tuple[int, int, int]]:
    return state + 1, (row.n, row.k, state + 1)


class Checked:
    """A sink that knows what must come next, and keeps nothing."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.next: int | None = None
        self.rows = 0
        self.problem: str | None = None

    def counted(self, got: list[Any], number: int) -> None:
        """Take rows of the keyed count: every row that did not fail, in order, each key counted without a gap."""
        for n, k, found in got:
            want = self.counts[k] = self.counts.get(k, 0) + 1
            self._expect((n, k, found), (self._next_n(), n % KEYS, want))
        self.rows += len(got)

    def passed(self, got: list[Any], number: int) -> None:
        """Take rows of a query that began somewhere: from there on every row that did not fail, in order."""
        for row in got:
            if self.next is None:
                self.next = row.n
            self._expect(row.n, self._next_n())
        self.rows += len(got)

    def _next_n(self) -> int:
        n = self.next or 0
        n += n % 1_009 == 0
        self.next = n + 1
        return n

    def _expect(self, found: Any, want: Any) -> None:
        if found != want and self.problem is None:
            self.problem = f"{found} came, {want} was next"


def resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def soak(model: str, seconds: float, seed: int) -> tuple[int, int, float]:
    """Run for so long; return rows, changes, and how many megabytes the process has grown since a fifth of the time."""
    draw = random.Random(seed)
    flow = ps.Flow("soak")
    main = Checked()
    source = flow.source("in", ps.read.generate(rows, schema={"n": int, "k": int}))
    worked = source.map(work, on_error="skip", name="work")
    worked.key_by("k").scan(count, 0, name="count").sink("main", main.counted)
    run = ps.start(flow, on=ps.Threads(model=model, workers=2, batch_rows=64))
    queries: dict[str, Checked] = {}
    done: list[Checked] = []
    changes = 0
    began, early = time.monotonic(), resident_mb()
    try:
        while time.monotonic() - began < seconds and run.running:
            choice = draw.random()
            if choice < 0.2:
                run.set_replicas(draw.choice(["work", "count"]), draw.randint(1, 5))
            elif choice < 0.4 and model == "dynamic":
                run.set_threads(draw.randint(1, 6))
            elif choice < 0.4:
                run.engine.element.model.rebind(draw.choice(["work", "count", "main"]), draw.randrange(2))
            elif choice < 0.7 and len(queries) < 5:
                name, checked = f"query {changes}", Checked()
                worked.filter(lambda row: True, name=f"all {changes}").sink(name, checked.passed)
                run.add_query(name)
                queries[name] = checked
            elif queries:
                name = draw.choice(sorted(queries))
                run.cancel_query(name)
                done.append(queries.pop(name))
            changes += 1
            run.await_end(draw.uniform(0.0, 0.02))
            if time.monotonic() - began < seconds / 5:
                early = resident_mb()
    finally:  # threads that go on would be found by whatever test comes next
        run.stop()
    run.await_end()
    grown = resident_mb() - early
    assert [each.problem for each in [main, *done, *queries.values()] if each.problem] == []
    assert sum(each.rows for each in done) > 0
    return main.rows, changes, grown


@pytest.mark.parametrize("model", ["dynamic", "bound"])
def test_for_two_seconds(model):
    made, changes, _ = soak(model, 2.0, seed=1)
    assert made > 1000
    assert changes > 10


@pytest.mark.slow
@pytest.mark.parametrize("model", ["dynamic", "bound"])
def test_for_five_minutes_each(model):
    made, changes, grown = soak(model, 300.0, seed=2)
    print(f"\n{model}: {made:,} rows, {changes:,} changes, {grown:.0f} MB more")
    assert grown < 100
