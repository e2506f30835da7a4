"""Batches that go from Spark's streams to the engine: each stream waits until its batch is given back.

All of it is under one lock, so that there is no moment at which a stream has seen that the run goes on, the engine has
seen that no batch waits, and the batch comes after that: then Spark would wait for the batch, and the engine for Spark.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any

STOP_SECONDS = 60.0
"""How long the end of a stream is waited for; a run whose epochs are committed does not wait for ever."""
TELL_SECONDS = 5.0
"""After how long the wait is reported."""
log = logging.getLogger(__name__)


@dataclass(eq=False)
class Handed:
    """A batch that Spark's stream has handed over, and waits to have back."""

    frame: Any
    batch: int
    keep: bool | None = None
    """Whether Spark may count the batch as done; None until it is given back."""


class HandOver:
    """Where streams leave batches, and the engine takes them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[Handed] = []
        self._taken: list[Handed] = []
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """Tell whether every batch is refused from now on."""
        return self._stopping

    def offer(self, handed: Handed) -> bool:
        """Hand a batch over and wait until it is given back; tell whether Spark may count it as done."""
        with self._changed:
            if self._stopping:
                return False
            self._waiting.append(handed)
            self._changed.notify_all()
            self._changed.wait_for(lambda: handed.keep is not None)
            return bool(handed.keep)

    def take(self, timeout: float) -> Handed | None:
        """Return the batch that has waited longest, once there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping, timeout)
            if not self._waiting:
                return None
            self._taken.append(self._waiting.pop(0))
            return self._taken[-1]

    def give_back(self, handed: Handed, keep: bool) -> None:
        """Let Spark go on after a batch; the first time counts."""
        with self._changed:
            self._give_back(handed, keep)

    def stop(self) -> None:
        """Give every batch back undone, and refuse those that are still to come."""
        with self._changed:
            self._stopping = True
            for handed in [*self._waiting, *self._taken]:
                self._give_back(handed, keep=False)
            self._waiting.clear()

    def _give_back(self, handed: Handed, keep: bool) -> None:
        if handed.keep is None:
            handed.keep = keep
        if handed in self._taken:
            self._taken.remove(handed)
        self._changed.notify_all()


def stop_query(query: Any, seconds: float = STOP_SECONDS, tell: float = TELL_SECONDS) -> bool:
    """End a streaming query; say what is waited for where that takes long, and leave it behind where it takes too long.

    Spark's own `stop` waits for the stream's thread without a bound, whatever that thread waits for.
    """
    ended = threading.Event()

    def stop() -> None:
        try:
            query.stop()
        except Exception as error:
            log.warning("Spark's stream %s could not be stopped: %s", query.id, str(error).splitlines()[0])
        finally:
            ended.set()

    threading.Thread(target=stop, daemon=True, name="penstock-stop-stream").start()
    if ended.wait(min(tell, seconds)):
        return True
    log.warning("stopping: waiting for Spark to end its stream %s (%s)", query.id, _doing(query))
    if ended.wait(max(0.0, seconds - tell)):
        return True
    log.warning(
        "Spark has not ended its stream %s within %.0f s (%s), and it is left behind: what was committed is whole, but "
        "start the flow again in another process",
        query.id,
        seconds,
        _doing(query),
    )
    return False


def _doing(query: Any) -> str:
    """Return what a stream does, in Spark's words."""
    try:
        return str(query.status["message"])
    except Exception as error:  # it is asked for a message only
        return f"which does not tell what it does: {type(error).__name__}"
