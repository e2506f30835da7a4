"""Sample a run about once a second, in a thread of its own, and keep what was seen: for the page, and on disk."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.clock import as_real, perf_counter, waiting_time
from penstock.dashboard.history import History, HistoryFile, Json, Page, Timed
from penstock.dashboard.sampling import Sampler
from penstock.elastic.decisions import Decision
from penstock.errors import PenstockError
from penstock.run import Run

if TYPE_CHECKING:
    from penstock.dashboard.server import PageServer


PERIOD = 0.9
"""Seconds from sample to sample: the page moves at least once a second, though threads come late now and then."""

log = logging.getLogger(__name__)


class Recorder:
    """Keep what a run did: in memory for its page, and on disk where a history is wanted."""

    def __init__(
        self,
        run: Run,
        engine: str,
        *,
        history: str | None = None,
    ) -> None:
        self._run, self._directory = run, history
        self._sampler = Sampler(run, engine)
        self.seen = History()
        self.finished = False
        self._known = self._graph_seen = self._graph_kept = 0
        self._kept: HistoryFile | None = None
        self._unwritten: list[Timed] = []
        """Decisions from before the history was begun."""
        self._listeners: list[Callable[[bytes], None]] = []
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="penstock-recorder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def listen(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        with self._lock:
            self._listeners.append(listener)

        def leave() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return leave

    def finish(self, state: str) -> None:
        """Take the last sample, and write what is left; called once, when the flow has ended."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        if not self.finished:
            self.finished = True
            self.tick(state)
            if self._kept is not None:
                self._keep(self._kept.close)

    def change_query(self, action: str, name: str) -> int:
        return self._run.add_query(name) if action == "add" else self._run.cancel_query(name)

    def _loop(self) -> None:
        due = waiting_time() + PERIOD
        while not self._end.wait(max(0.0, due - waiting_time())):
            self.tick()
            due = max(due + PERIOD, waiting_time())  # on time again, but never one on top of another

    def tick(self, state: str | None = None) -> None:
        """Take one sample. Whatever goes wrong here must not touch the flow."""
        try:
            self._take(state)
        except Exception:
            log.warning("the page could not look at the flow", exc_info=True)

    def _take(self, state: str | None) -> None:
        decisions, self._known = self._run.decisions_since(self._known)
        timed = [(wall_time(each), each) for each in decisions]
        self.seen.decide(timed)
        sample = {**self._sampler.sample(self.seen.total, state), "held": self.seen.held}
        encoded = json.dumps(sample, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        self._graph_seen = self._describe(self.seen, self._graph_seen, sample)
        self.seen.add(sample, encoded)
        self._keep(lambda: self._write(timed, sample, encoded))
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(encoded)

    def _describe(self, history: History, known: int, sample: Json) -> int:
        """Write the graph where it is another one than the known."""
        version = self._sampler.graph_version
        if version != known:
            about = {name: sample[name] for name in ("flow", "engine", "started")}
            history.describe({**about, "graph": {**self._sampler.graph, "version": version}})
        return version

    def _write(self, timed: list[Timed], sample: Json, encoded: bytes) -> None:
        if self._directory is None:
            return
        if self._kept is None:
            # Not before something was done: a run that is refused must not write into another one's directory.
            if not sample["totals"]["epochs"]:
                self._unwritten += timed
                return
            self._kept = HistoryFile(self._directory)
            timed, self._unwritten = [*self._unwritten, *timed], []
        self._graph_kept = self._describe(self._kept, self._graph_kept, sample)
        self._kept.decide(timed)
        self._kept.add(sample, encoded)

    def _keep(self, write: Callable[[], None]) -> None:
        """Write to disk; a disk that is full or gone ends the history, not the flow."""
        try:
            write()
        except (OSError, sqlite3.Error, PenstockError) as error:
            log.warning("the history is not written any more: %s", error)
            self._directory = self._kept = None


def wall_time(
    decision: Decision,
    wall: Callable[[], float] = time.time,
    ticks: Callable[[], float] = perf_counter,
) -> float:
    """Return the time of day of a decision: engines log the time of their own clock, or none."""
    now, inside = wall(), ticks()
    if decision.time is None:
        return now
    if decision.time > 1e9:  # it is the time of day already
        return decision.time
    ago = as_real(inside - decision.time)
    return now - ago if 0 <= ago < now else now


class PageSession(Recorder):
    """A recorder at work, and a server where a page is wanted."""

    def __init__(
        self,
        run: Run,
        engine: str,
        *,
        page: bool | int | None,
        host: str = "127.0.0.1",
        token: str | None = None,
        history: str | None = None,
    ) -> None:
        super().__init__(run, engine, history=history)
        self.tick()
        self._server: PageServer | None = None
        if page is not None and page is not False:
            from penstock.dashboard.server import PageServer

            port = None if page is True else page
            self._server = PageServer(Page(self.seen, self), host, port, token)
        self.start()

    @property
    def address(self) -> str | None:
        return None if self._server is None else self._server.address

    @property
    def token(self) -> str | None:
        return None if self._server is None else self._server.token

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
