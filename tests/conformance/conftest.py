"""What the conformance tests begin with and leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from penstock.kernels import keyed, timed_join_columns
from penstock.kernels.waiting import close_shared


@pytest.fixture(scope="module", autouse=True)
def close_windows() -> Iterator[None]:
    """End the threads that functions wait in: tasks run in this process, which goes on with other tests."""
    yield
    close_shared()


@pytest.fixture(scope="module", autouse=True)
def few_rows_by_columns() -> Iterator[None]:
    """Take windows by columns however few rows there are, as here there are few."""
    with mock.patch.object(keyed, "FEW_ROWS", 0), mock.patch.object(timed_join_columns, "FEW_TO_JOIN", 0):
        yield
