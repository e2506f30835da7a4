"""What all tests share: how Hypothesis draws, and one Spark session for the whole suite.

`make test` runs tests in as many processes as there are cores. All tests that need the session are in one of them, and
begin first because they take the longest; those that start a Spark of their own come next, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.quick_spark import suite_session

# No deadline: the machine is shared, and the first call into a library takes long. A failure prints the
# line that repeats it.
settings.register_profile("penstock", deadline=None, print_blob=True)
settings.load_profile("penstock")


@pytest.hookimpl(tryfirst=True)  # before the names of groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of Spark together, and let them begin."""
    groups = ("spark", "own spark", "")
    place = {}
    for item in items:
        own = "tests/chaos/" in item.nodeid or "test_cluster.py" in item.nodeid
        group = "" if item.get_closest_marker("spark") is None else "own spark" if own else "spark"
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
        place[item] = groups.index(group)
    items.sort(key=place.__getitem__)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Start Spark once."""
    session = suite_session()
    yield session
    session.stop()
