"""What all tests share: how Hypothesis draws, and one Spark session and one Kafka for the whole suite.

`make test` runs tests in as many processes as there are cores. All tests that need the session are in one of them, and
begin first because they take the longest; those that start a Spark of their own come next, one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings

from tests.in_memory import quick_place
from tests.jars import Unreachable, connector_jars
from tests.kafka.broker import Broker
from tests.quick_spark import QUICK, suite_session

# No deadline: the machine is shared, and the first call into a library takes long. `make test` draws the same examples
# each time, so that it says the same of the same code everywhere; `make chaos` draws new ones, and a failure prints the
# line that repeats it.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("new", deadline=None, print_blob=True)
settings.load_profile("same")

# What pytest takes for the directory of temporary files, unless `--basetemp` names another.
if place := quick_place():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", place)

# What programs that tests start give the JVMs of their own.
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK)

NO_SPARK = "" if find_spec("pyspark") else "PySpark cannot be imported by this Python"
collect_ignore = ["kafka", "spark"] if NO_SPARK else []
OWN_SPARK = (
    "tests/chaos/",
    "test_cluster.py",
    "test_standalone.py::test_executors",
    "test_worker_python.py",
    "test_leftovers.py",
)
"""Tests that start a Spark of their own, each in a process of its own."""


@pytest.hookimpl(tryfirst=True)  # before the names of groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of Spark together, and let them begin."""
    groups = ("spark", "own spark", "")
    place = {}
    for item in items:
        own = any(part in item.nodeid for part in OWN_SPARK)
        group = "" if item.get_closest_marker("spark") is None else "own spark" if own else "spark"
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
            if NO_SPARK:
                item.add_marker(pytest.mark.skip(reason=NO_SPARK))
        place[item] = groups.index(group)
    items.sort(key=place.__getitem__)


_running: list[pytest.Item] = []


@pytest.hookimpl(tryfirst=True)  # before fixtures are made
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note what is about to run."""
    _running[:] = [item]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Say of a test that turns out to need PySpark that it was not tested, where there is none."""
    try:
        return (yield)
    except Exception as error:
        if NO_SPARK and _misses_spark(error):
            pytest.skip(NO_SPARK)
        raise


def _misses_spark(error: BaseException | None) -> bool:
    """Tell whether an error, or what led to it, is that PySpark cannot be imported."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "pyspark":
            return True
        error = error.__cause__ or error.__context__
    return False


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Start Spark once: for tests that are marked, as any other would start one more in a process of its own."""
    assert _running[0].get_closest_marker("spark"), "mark the test with pytest.mark.spark"
    session = suite_session()
    yield session
    session.stop()


NO_KAFKA = "Kafka is not tested here"


@pytest.fixture(scope="session")
def kafka(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Start a broker of Kafka once, and give Spark its connector."""
    try:
        for jar in connector_jars():
            spark.sql(f"ADD JAR '{jar}'")
        broker = Broker(tmp_path_factory.mktemp("kafka"))
    except Unreachable as error:
        pytest.skip(f"{NO_KAFKA}: {error}")
    yield broker
    broker.stop()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say loudly what was not tested."""
    if NO_SPARK:
        terminalreporter.section("NOT TESTED: SPARK", red=True)
        terminalreporter.write_line(f"{NO_SPARK}, so that nothing that needs it was tested.")
    skipped = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    if missing := [reason for reason in skipped if NO_KAFKA in reason]:
        terminalreporter.section("NOT TESTED: KAFKA", red=True)
        terminalreporter.write_line(f"{len(missing)} tests were skipped. {missing[0]}")
