"""What holds for all tests of the threads engine: a flow that has ended leaves no thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .support import own_threads


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = own_threads()
    yield
    assert [thread for thread in own_threads() if thread not in before] == []
