"""Batches between Spark's streams and the engine: however stopping and a new batch fall together, nobody waits."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from penstock.spark import frames
from penstock.spark.frames import FrameFeed, FrameFeeds, HandOver, SparkBatch, stop_query

from ..patience import PATIENCE

"""Seconds after which a thread counts as hung; nothing here takes time."""


class Offering(threading.Thread):
    """A stream that hands one batch over."""

    def __init__(self, over: HandOver, batch: int = 1) -> None:
        super().__init__(daemon=True)
        self.over, self.handed, self.kept = over, SparkBatch(None, batch), None
        self.start()

    def run(self) -> None:
        self.kept = self.over.offer(self.handed)

    def result(self) -> bool | None:
        self.join(PATIENCE)
        assert not self.is_alive(), "the stream still waits for its batch"
        return self.kept


def test_a_batch_is_kept_or_not_as_the_engine_says():
    for keep in (True, False):
        over = HandOver()
        stream = Offering(over)
        taken = over.take(PATIENCE)
        assert taken is stream.handed
        over.give_back(taken, keep)
        over.give_back(taken, not keep)  # again is no harm
        assert stream.result() is keep


def test_a_batch_that_nobody_has_taken_is_refused_at_a_stop():
    over = HandOver()
    stream = Offering(over)
    with over._changed:
        over._changed.wait_for(lambda: over._waiting, PATIENCE)
    over.stop()
    assert stream.result() is False
    assert over.take(0.0) is None


def test_a_batch_that_is_taken_is_refused_at_a_stop_unless_it_was_given_back():
    over = HandOver()
    streams = {n: Offering(over, n) for n in (1, 2)}
    done = over.take(PATIENCE)
    assert over.take(PATIENCE) is not None
    over.give_back(done, keep=True)
    over.stop()
    assert {n: stream.result() for n, stream in streams.items()} == {n: n == done.batch for n in (1, 2)}


def test_a_batch_that_comes_after_the_stop_is_refused_at_once():
    over = HandOver()
    over.stop()
    assert Offering(over).result() is False
    assert over.take(PATIENCE) is None, "a stop must not leave whoever takes waiting"


def test_a_stop_in_the_moment_before_a_batch_is_handed_over_is_seen():
    """Between a look at whether the run stops and the lock, there must be nothing."""
    over = HandOver()

    class StoppingFirst(threading.Condition):
        """A lock that the stop gets just before the first who wants it."""

        stopped = False

        def __enter__(self) -> bool:
            if not self.stopped:
                self.stopped = True
                over.stop()
            return super().__enter__()

    over._changed = StoppingFirst()
    assert Offering(over).result() is False


class Query:
    """A streaming query whose `stop` waits for the stream's thread, as Spark's does."""

    id, isActive = "7", True

    def __init__(self) -> None:
        self.stream: threading.Thread | None = None
        self.status = {"message": "Processing new data"}

    def stop(self) -> None:
        assert self.stream is not None
        self.stream.join()


@pytest.mark.parametrize("moment", ["before the batch is numbered", "while it is numbered"])
def test_a_stop_while_a_batch_is_on_its_way_ends_both(moment):
    """The stream has seen that the run goes on, and hands over only after the engine has refused what was there."""
    node = SimpleNamespace(name="in", operator=SimpleNamespace(reader=SimpleNamespace(places=None)))
    feeds = FrameFeeds(mock.MagicMock(sources=[]), "unused")
    with mock.patch.object(frames, "placed_frame"):
        feed = FrameFeed(mock.MagicMock(), node, "unused", feeds._batches)
    feeds._feeds = {"in": feed}
    feed._query = query = Query()
    feed._started.set()
    numbering, go_on, stopping, raised = (threading.Event() for _ in range(4))

    def numbered(*_: Any) -> Any:
        numbering.set()
        assert go_on.wait(PATIENCE)

    def take() -> None:
        try:
            feed._take(mock.MagicMock(), 1)
        except frames._Stopped:
            raised.set()

    def stop() -> None:
        stopping.set()
        feeds.stop()

    query.stream = threading.Thread(target=take, daemon=True)
    stopper = threading.Thread(target=stop, daemon=True)
    with mock.patch.object(frames, "batch_places", numbered):
        if moment == "before the batch is numbered":
            feeds._batches.stop()
            go_on.set()
            query.stream.start()
            stopper.start()
        else:
            query.stream.start()
            assert numbering.wait(PATIENCE)
            stopper.start()
            assert stopping.wait(PATIENCE)
            while not feeds._batches.stopping:
                stopper.join(0.01)
            go_on.set()
        stopper.join(PATIENCE)
        assert not stopper.is_alive(), "the run waits for Spark, and Spark for the run"
        query.stream.join(PATIENCE)
    assert raised.is_set()


def test_a_stream_that_does_not_end_is_left_behind_with_a_word(caplog):
    release = threading.Event()
    query = Query()
    query.stream = threading.Thread(target=release.wait, daemon=True)
    query.stream.start()
    with caplog.at_level(logging.WARNING):
        assert not stop_query(query, seconds=0.05, tell=0.01)
    release.set()
    first, last = (record.getMessage() for record in caplog.records)
    assert "waiting for Spark to end its stream 7 (Processing new data)" in first
    assert "has not ended its stream 7" in last
    assert stop_query(query, seconds=PATIENCE)
