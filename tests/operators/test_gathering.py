"""`map_batches(rows=, wait=)`: how many rows a call gets, and that nobody waits longer than said."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import penstock as ps
from penstock.errors import FlowError

from ..patience import PATIENCE


def stream(rows: Any) -> ps.Stream:
    return ps.Flow("batches").source("in", ps.read.items([{"n": n} for n in rows], schema={"n": int}))


class Sizes:
    """Note the size of each call."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, batch: Any) -> Any:
        self.seen.append(batch.num_rows)
        return batch


def numbers(run: Any) -> list[int]:
    return [row.n for row in run.results["out"]]


@pytest.mark.parametrize("wait", [None, "1 ms"])
def test_a_call_gets_so_many_rows_at_most(wait: Any) -> None:
    sizes = Sizes()
    made = stream(range(1000)).map_batches(sizes, rows=7, wait=wait)
    assert numbers(ps.run(made.sink("out"), on=ps.Threads())) == list(range(1000))
    assert max(sizes.seen) == 7
    assert sum(sizes.seen) == 1000


@pytest.mark.parametrize("batch_rows", [1, 2])
def test_rows_of_several_batches_go_together(batch_rows: int) -> None:
    """With all the time in the world, calls are as large as they may be."""
    sizes, done = Sizes(), threading.Event()

    def live() -> Any:
        yield from ({"n": n} for n in range(12))
        assert done.wait(PATIENCE)  # it goes on until all that can be called for is

    def call(batch: Any) -> Any:
        made = sizes(batch)
        if sum(sizes.seen) == 12:
            done.set()
        return made

    source = ps.Flow("batches").source("in", ps.read.items(live(), schema={"n": int}))
    made = source.map_batches(call, rows=4, wait="1 hour")
    run = ps.run(made.sink("out"), on=ps.Threads(batch_rows=batch_rows))
    assert numbers(run) == list(range(12))
    assert sizes.seen == [4, 4, 4]


def test_nobody_waits_when_no_more_can_come() -> None:
    made = stream(range(105)).map_batches(Sizes(), rows=20, wait="1 hour")
    assert numbers(ps.run(made.sink("out"), on=ps.Threads(batch_rows=10))) == list(range(105))


@pytest.mark.parametrize("model", ["dynamic", "dedicated", "bound"])
def test_nobody_waits_for_ever(model: Any) -> None:
    sizes = Sizes()
    made = stream(range(5)).map_batches(sizes, rows=1000, wait="5 ms")
    run = ps.run(made.sink("out"), on=ps.Threads(model=model, batch_rows=1))
    assert numbers(run) == list(range(5))
    assert sum(sizes.seen) == 5


def test_a_stop_does_not_wait_for_more_rows() -> None:
    came = threading.Event()

    def passed(row: Any) -> Any:
        came.set()
        return row

    made = stream(range(3)).map(passed, schema={"n": int}).map_batches(Sizes(), rows=1000, wait="1 hour")
    run = ps.start(made.sink("out"), on=ps.Threads())
    assert came.wait(PATIENCE)
    run.stop()
    assert run.await_end(PATIENCE)
    assert numbers(run) == list(range(3))


def test_a_model_is_made_once() -> None:
    made: list[str] = []

    def load() -> Any:
        made.append("open")
        yield 10
        made.append("close")

    def predict(batch: Any, model: int) -> Any:
        import pyarrow.compute as pc

        return batch.set_column(0, "n", pc.multiply(batch.column("n"), model))

    for on in (ps.Threads(), ps.Sequential()):
        made.clear()
        built = stream(range(50)).map_batches(predict, setup=load, rows=8, wait="1 ms")
        assert numbers(ps.run(built.sink("out"), on=on)) == [10 * n for n in range(50)]
        assert made == ["open", "close"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rows": 0}, "rows=0; give a whole number of rows, 1 or more"),
        ({"wait": "1 s"}, "wait='1 s' without rows="),
        ({"rows": 5, "wait": 0}, "wait=0; give a time above 0"),
        ({"setup": 1}, "setup=1 is no function"),
    ],
)
def test_refusals(options: Any, says: str) -> None:
    with pytest.raises(FlowError) as caught:
        stream([]).map_batches(Sizes(), name="model", **options)
    assert "operator 'model'" in str(caught.value)
    assert says in str(caught.value)
