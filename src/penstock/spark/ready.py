"""Python workers that are there before a task needs them: started after the first epoch, and kept while a run waits.

A worker takes a second or more to start: the interpreter, Spark's part of it, NumPy, PyArrow, Penstock, the flow. And
Spark ends a worker that had no task for a minute (`PythonWorkerFactory.IDLE_WORKER_TIMEOUT_NS`, for which it has no
setting), so that whoever comes next would wait for all that again. A task of nothing every now and then keeps it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from threading import Condition, Thread
from typing import Any

from penstock.clock import waiting_time
from penstock.errors import PenstockError
from penstock.spark.session import check_workers

EVERY_SECONDS = 25.0
"""A lane that had no task for so long is given one: Spark looks every ten seconds for those that had none for sixty."""
MOST_LANES = 16
"""So many workers are started before anybody needs them, at most: each takes some 100 MB."""
GROUP = "penstock-ready"
WORDS = "penstock: Python workers get ready"
PATIENCE_SECONDS = 3.0
log = logging.getLogger(__name__)


class Ready:
    """Give tasks of nothing to lanes that have none, in a thread of its own.

    A lane has one worker. A second task at the same moment would start a second one, and the shards of the lane would
    be in either: so an epoch waits for the tasks of nothing in its lanes, and these wait for the epoch.
    """

    def __init__(self, context: Any, lanes: int, clock: Callable[[], float] = waiting_time) -> None:
        self._context, self._clock = context, clock
        self._wake: Callable[[list[int], bool], None] = lambda lanes, first: None
        self._used: dict[int, float | None] = dict.fromkeys(range(min(lanes, MOST_LANES)))
        """When each lane last had a task, None where it had none."""
        self._busy: frozenset[int] = frozenset()
        self._waking: frozenset[int] = frozenset()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._over = False

    def keep(self, wake: Callable[[list[int], bool], None]) -> None:
        """Begin, where that is not done; `wake` gives lanes a task of nothing, and knows whether it is the first."""
        with self._changed:
            if self._thread is None and not self._over:
                self._wake = wake
                self._thread = Thread(target=self._run, name="penstock-ready", daemon=True)
                self._thread.start()

    @property
    def starting(self) -> int:
        """How many lanes have workers that are about to start: whoever gives them a task waits for that."""
        with self._changed:
            going = self._thread is not None and self._thread.is_alive()
            return sum(used is None for used in self._used.values()) if going else 0

    @contextmanager
    def in_use(self, lanes: Collection[int]) -> Iterator[None]:
        """Have some lanes for an epoch alone."""
        with self._changed:
            self._changed.wait_for(lambda: self._waking.isdisjoint(lanes))
            self._busy = frozenset(lanes)
        try:
            yield
        finally:
            with self._changed:
                self._note(self._busy)
                self._busy = frozenset()
                self._changed.notify_all()

    def due(self) -> tuple[list[int], float]:
        """Return the lanes that are to be woken, and in how many seconds there may be others."""
        now = self._clock()
        left = {
            lane: 0.0 if used is None else used + EVERY_SECONDS - now
            for lane, used in self._used.items()
            if lane not in self._busy
        }
        return [lane for lane, seconds in left.items() if seconds <= 0], min(left.values(), default=EVERY_SECONDS)

    def close(self) -> None:
        """End the thread; a task of nothing that takes long, as where nobody runs it, is given up."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        thread = self._thread
        if thread is not None:
            thread.join(PATIENCE_SECONDS)
            if thread.is_alive():
                with suppress(Exception):  # a Spark that is gone has no jobs
                    self._context.cancelJobGroup(GROUP)
                thread.join(PATIENCE_SECONDS)

    def _note(self, lanes: Collection[int]) -> None:
        now = self._clock()
        self._used.update({lane: now for lane in lanes if lane in self._used})

    def _run(self) -> None:
        try:
            check_workers(self._context)
        except PenstockError:
            return  # the next epoch says so
        while (lanes := self._next()) is not None:
            try:
                self._context.setJobGroup(GROUP, WORDS)
                self._context.setLocalProperty("callSite.short", WORDS)
                self._wake(lanes, all(self._used[lane] is None for lane in lanes))
            except Exception as error:  # what is wrong shows in the next epoch, if it matters
                log.debug("workers could not be woken: %s", error)
            with self._changed:
                self._note(lanes)
                self._waking = frozenset()
                self._changed.notify_all()

    def _next(self) -> list[int] | None:
        """Wait for lanes that are due; None at the end."""
        with self._changed:
            while not self._over:
                lanes, seconds = self.due()
                if lanes:
                    self._waking = frozenset(lanes)
                    return lanes
                self._changed.wait(seconds)
        return None
