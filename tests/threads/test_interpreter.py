"""Without the GIL nothing that the engine needs turns it on, and what does is named."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
import sysconfig
import weakref
from collections.abc import Iterator, Sequence

import pytest

import penstock as ps
from penstock.order.threads import gil_enabled
from penstock.threads import interpreter

FREE = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
FLOW = """
import json, sys
import penstock as ps
flow = ps.Flow("f")
flow.source("numbers", ps.read.items([{"n": 1}, {"n": 2}])).key_by("n").aggregate(total=ps.agg.sum("n")).sink(
    "out", ps.write.memory()
)
run = ps.run(flow, on=ps.Threads(workers=2))
print(json.dumps([len(run.results["out"]), sys._is_gil_enabled()]))
"""


@pytest.mark.skipif(not FREE, reason="this Python has a GIL")
def test_the_engine_leaves_the_gil_off() -> None:
    made = subprocess.run([sys.executable, "-c", FLOW], capture_output=True, text=True, check=True)
    assert json.loads(made.stdout) == [2, False]
    assert "GIL" not in made.stderr


def test_a_module_that_turns_it_on_is_named() -> None:
    def find(names: Sequence[str]) -> str:
        return names[1]

    assert interpreter.reason(False, ["good", "bad"], find) == "the import of bad"
    assert "PYTHON_GIL" in interpreter.reason(True, ["good", "bad"], find)


def test_modules_that_are_no_python_code_are_known_in_their_order() -> None:
    import pyarrow  # noqa: F401

    found = interpreter.loaded_extensions()
    assert "pyarrow.lib" in found
    assert "pyarrow" not in found
    assert found.index("numpy._core._multiarray_umath") < found.index("pyarrow.lib")


def test_where_threads_are_free_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """A Python that always has a GIL is as its user chose it; one without has nothing to warn of."""
    interpreter.warn_of_gil.cache_clear()
    with caplog.at_level(logging.WARNING):
        interpreter.warn_of_gil()
    assert not caplog.records


@pytest.fixture
def collector() -> Iterator[None]:
    before, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.set_threshold(*before)
    gc.callbacks[:] = callbacks


@pytest.mark.parametrize(
    ("found", "took", "expected"),
    [
        (0, 0.1, 1_000_000),
        (0, 0.9, 3_200_000),
        (0, 0.001, 200_000),
        (50_000, 0.1, 100_000),
        (50_000, 0.001, 100_000),
    ],
    ids=["five times its share", "nearly all the time", "short", "many cycles", "many cycles, short"],
)
def test_looks_for_cycles_become_fewer_where_they_take_long_for_nothing(found: int, took: float, expected: int) -> None:
    assert interpreter.next_look(200_000, 100_000, found, took, since=1.0) == expected


def test_the_collector_is_never_told_more_than_it_can_count() -> None:
    every = interpreter.next_look(2**24, 100_000, 0, took=1.0, since=1.0)
    assert 2**24 < every < 2**31 / 40


@pytest.mark.usefixtures("collector")
def test_the_collector_is_as_before_when_the_last_flow_has_ended() -> None:
    gc.set_threshold(701, 11, 12)
    callbacks = len(gc.callbacks)
    with interpreter.fewer_collections():
        with interpreter.fewer_collections():
            assert gc.get_threshold()[0] >= interpreter.COLLECT_EVERY
            gc.collect()
        assert gc.get_threshold()[0] >= interpreter.COLLECT_EVERY
        assert len(gc.callbacks) == callbacks + 1
    assert gc.get_threshold()[:2] == (701, 11)
    assert len(gc.callbacks) == callbacks


@pytest.mark.usefixtures("collector")
def test_a_look_that_ends_after_the_last_flow_changes_nothing() -> None:
    gc.set_threshold(701, 11, 12)
    with interpreter.fewer_collections():
        seen = gc.callbacks[-1]
        seen("start", {})
    seen("stop", {"collected": 0})
    assert gc.get_threshold()[:2] == (701, 11)


@pytest.mark.usefixtures("collector")
def test_a_collector_that_never_looks_is_left_alone() -> None:
    gc.set_threshold(0)
    with interpreter.fewer_collections():
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0


class Kept:
    """Something that the collector looks at."""


@pytest.mark.skipif(not gil_enabled() or sys.version_info >= (3, 14), reason="there are no young objects")
@pytest.mark.usefixtures("collector")
def test_what_is_kept_is_passed_over_where_looks_take_long_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.set_threshold(700, 1000, 1000)
    monkeypatch.setattr(interpreter, "COLLECT_EVERY", 1000)
    monkeypatch.setattr(interpreter, "MOST_SHARE", 1e-9)  # any time is too long
    with interpreter.fewer_collections():
        kept = [Kept() for _ in range(20_000)]
        assert len(gc.get_objects(0)) < 2000
        assert len(gc.get_objects(1)) < 12_000  # of 1,000, 2,000, 4,000, 8,000 it looked at 1,000 each
        assert set(map(id, gc.get_objects(2))) >= set(map(id, kept[5000:6000]))
    assert len(gc.get_objects(0)) < 700
    assert not gc.get_freeze_count()


@pytest.mark.usefixtures("collector")
def test_where_there_are_many_cycles_none_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    # Without a GIL it waits for far more objects than it was told, unless the second number is zero.
    gc.set_threshold(700, 1000 if gil_enabled() else 0, 1000)
    for name in ("COLLECT_EVERY", "COLLECT_ALL_EVERY"):
        monkeypatch.setattr(interpreter, name, 1000)
    monkeypatch.setattr(interpreter, "MOST_SHARE", 1e-9)
    monkeypatch.setattr(interpreter, "pass_over", lambda: pytest.fail("cycles were passed over"))
    first = weakref.ref(made := Kept())
    made.itself = made  # type: ignore[attr-defined]
    with interpreter.fewer_collections():
        for _ in range(20_000):
            made.itself, made = made, Kept()  # type: ignore[attr-defined]
            made.itself = made  # type: ignore[attr-defined]
        assert first() is None


@pytest.mark.usefixtures("collector")
def test_objects_that_are_never_to_be_looked_at_stay_so() -> None:
    gc.freeze()
    try:
        assert not interpreter.pass_over()
        assert gc.get_freeze_count() > 0  # some may have gone meanwhile
    finally:
        gc.unfreeze()


def test_what_a_flow_came_to_goes_with_its_run() -> None:
    flow = ps.Flow("kept")
    flow.source("n", ps.read.items([{"n": n} for n in range(10)], schema={"n": int})).sink("out", ps.write.memory())
    run = ps.run(flow, on=ps.Threads())
    kept = weakref.ref(run.engine)
    gc.disable()
    try:
        del run
        assert kept() is None
    finally:
        gc.enable()
