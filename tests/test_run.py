"""What every engine's `Run` has from the beginning."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import penstock as ps
from tests.patience import PATIENCE

from .how import how

ENGINES = ["sequential", "threads", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.mark.parametrize("engine", ENGINES)
def test_sinks_in_memory_are_there_and_empty_before_the_first_row(engine, tmp_path, request):
    options: dict[str, Any] = {"spark": request.getfixturevalue("spark")} if engine == "spark" else {}
    release = threading.Event()

    def numbers() -> Iterator[dict[str, int]]:
        release.wait(PATIENCE)
        yield from ({"n": n} for n in range(3))

    flow = ps.Flow("results")
    rows = flow.source("in", numbers(), schema={"n": int})
    rows.sink("kept")
    rows.map(lambda row: row.n, name="also").sink("also kept", ps.write.memory())
    rows.sink("written", ps.write.parquet(str(tmp_path / "out")))
    rows.sink("called", lambda rows, epoch: None)
    run = ps.start(flow, **how(engine, **options))
    try:
        assert run.results == {"kept": [], "also kept": []}
    finally:
        release.set()
    assert run.await_end(PATIENCE)
    assert {name: len(found) for name, found in run.results.items()} == {"kept": 3, "also kept": 3}
    assert run.results["also kept"] == [0, 1, 2]
    with pytest.raises(KeyError, match=r"sink 'written' are not kept in memory; read its files by ps.read.sink\(.*out"):
        run.results["written"]
    with pytest.raises(KeyError, match="sink 'called' are not kept in memory; its writer has its rows"):
        run.results["called"]
    with pytest.raises(KeyError, match="no sink 'out'; the sinks are kept, also kept, written, called"):
        run.results["out"]


def test_a_run_that_nobody_waits_for_says_that_it_failed(caplog):
    """In a notebook the cell has ended: only the log can say it."""
    failing = ps.Flow("failing")
    failing.source("in", [1]).map(lambda n: n / 0, name="inverse").sink("out")
    run = ps.start(failing, on=ps.Threads())
    deadline = time.monotonic() + PATIENCE
    while run.running and time.monotonic() < deadline:
        time.sleep(0.01)
    (said,) = [each.getMessage() for each in caplog.records if each.name == "penstock.run"]
    assert said.startswith("flow 'failing' has failed; run.await_end() raises this: operator 'inverse' failed")
    caplog.clear()
    again = ps.Flow("failing")
    again.source("in", [1]).map(lambda n: n / 0, name="inverse").sink("out")
    with pytest.raises(ps.OperatorError):
        ps.run(again, on=ps.Threads())
    assert not [each for each in caplog.records if each.name == "penstock.run"]


@pytest.mark.spark
def test_they_are_there_after_a_run_that_failed_before_it_began(spark, tmp_path):
    flow = ps.Flow("one")
    flow.source("in", [1]).sink("out")
    ps.run(flow, on=ps.Spark(spark), checkpoint=tmp_path)
    other = ps.Flow("other")
    other.source("another", [1]).key_by(lambda n: n).scan(lambda state, n: (state, n), 0, name="kept").sink("out")
    run = ps.start(other, on=ps.Spark(spark), checkpoint=str(tmp_path))
    with pytest.raises(ps.PenstockError):
        run.await_end(PATIENCE)
    assert run.results == {"out": []}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("place", ["operator", "sink"])
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_function_that_would_end_the_process_ends_the_flow(engine, place, kind, request, tmp_path):
    options: dict[str, Any] = {"spark": request.getfixturevalue("spark")} if engine == "spark" else {}
    calls = tmp_path / "calls"

    def leave(row: int, *_: Any) -> int:
        with calls.open("a") as file:
            file.write("x")
        raise kind(0)

    flow = ps.Flow("exits")
    rows = flow.source("in", [1], schema=int)
    if place == "operator":
        rows.map(leave, schema=int, name="leaves").sink("out")
    else:
        rows.sink("out", leave)
    with pytest.raises(ps.PenstockError, match=rf"{kind.__name__}(.*\n)*.*in leave"):
        ps.run(flow, **how(engine, **options))
    assert calls.read_text() == "x"  # to try again would be to the same end
