"""The rows that wait in a port: a queue, whatever part of it is on disk."""

from __future__ import annotations

import pickle
import threading
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators import ports
from penstock.operators.ports import PortBuffer


@pytest.fixture
def small():
    """Keep three rows in memory, and write four at a time, two blocks to a file."""
    patch = pytest.MonkeyPatch()
    for name, value in (("IN_MEMORY", 3), ("BLOCK", 4), ("SEGMENT", 2)):
        patch.setattr(ports, name, value)
    yield
    patch.undo()


@given(st.data())
def test_is_a_queue(data):
    patch = pytest.MonkeyPatch()
    for name, most in (("IN_MEMORY", 5), ("BLOCK", 4), ("SEGMENT", 3)):
        patch.setattr(ports, name, data.draw(st.integers(1, most)))
    try:
        buffer, plain = PortBuffer(), deque()
        for number, grow in enumerate(data.draw(st.lists(st.integers(-12, 20), max_size=20))):
            for index in range(abs(grow)):
                if grow > 0:
                    row = (number, index)
                    buffer.append(row)
                    plain.append(row)
                elif plain:
                    assert buffer.popleft() == plain.popleft()
            assert buffer.count == len(buffer) == len(plain)
            assert list(buffer) == list(plain)
            if data.draw(st.booleans()):
                buffer = pickle.loads(pickle.dumps(buffer))
        buffer.clear()
        assert list(buffer) == []
        assert buffer.count == 0
    finally:
        patch.undo()


def test_memory_and_files_are_bounded(small):
    buffer = PortBuffer(range(1000))
    assert len(buffer._front) + len(buffer._back) <= 3 + 4
    segments = buffer._spilled._segments
    assert len(segments) == 125
    for number in range(900):
        assert buffer.popleft() == number
        assert len(buffer._front) + len(buffer._back) <= 3 + 4
    assert len(segments) <= 14
    for number in range(900, 1000):
        assert buffer.popleft() == number
    assert buffer._spilled is None


def test_rows_that_cannot_be_pickled_stay_where_they_are(small):
    locks = [threading.Lock() for _ in range(30)]
    buffer = PortBuffer(locks)
    assert [buffer.popleft() for _ in range(30)] == locks
