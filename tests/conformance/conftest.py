"""What the conformance tests leave behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.pe.waiting import close_shared


@pytest.fixture(scope="module", autouse=True)
def close_windows() -> Iterator[None]:
    """End the threads that functions wait in: tasks run in this process, which goes on with other tests."""
    yield
    close_shared()
