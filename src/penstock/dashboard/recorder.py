"""Sample a run about once a second, in a thread of its own, and keep what was seen: for the page, and on disk."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from penstock.clock import waiting_time
from penstock.dashboard.decisions import DecisionBook, wall_time
from penstock.dashboard.history import HistoryWriter
from penstock.dashboard.sampling import Sampler
from penstock.dashboard.thinning import Thinned
from penstock.elastic.decisions import Decision
from penstock.run import Run

Json = dict[str, Any]

PERIOD = 0.9
"""Seconds from sample to sample: the page moves at least once a second, though threads come late now and then."""
MOST_POINTS = 1200
MOST_SAMPLES = 600
MOST_SAMPLE_BYTES = 16 << 20

log = logging.getLogger(__name__)


class Recorder:
    """Keep the newest sample, older ones thinned out, the timeline and the decisions of a run."""

    def __init__(
        self,
        run: Run,
        engine: str,
        *,
        history: str | None = None,
        period: float = PERIOD,
    ) -> None:
        self.run, self._history, self._period = run, history, period
        self.sampler = Sampler(run, engine)
        self.book = DecisionBook()
        self.points: Thinned[Json] = Thinned(MOST_POINTS)
        self.samples: Thinned[tuple[float, bytes]] = Thinned(MOST_SAMPLES, most_bytes=MOST_SAMPLE_BYTES)
        self.latest: Json = {}
        self.encoded = b"{}"
        self.finished = False
        self._known = self._graph_written = 0
        self._writer: HistoryWriter | None = None
        self._unwritten: list[tuple[float, Decision]] = []
        """Decisions from before the history was begun."""
        self._listeners: list[Callable[[bytes], None]] = []
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="penstock-recorder", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def listen(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        """Call a function with each sample, encoded; return what ends that."""
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
            if self._writer is not None:
                self._keep(self._writer.close)

    def _loop(self) -> None:
        due = waiting_time() + self._period
        while not self._end.wait(max(0.0, due - waiting_time())):
            self.tick()
            due = max(due + self._period, waiting_time())  # on time again, but never one on top of another

    def tick(self, state: str | None = None) -> None:
        """Take one sample. Whatever goes wrong here must not touch the flow."""
        try:
            self._take(state)
        except Exception:
            log.warning("the page could not look at the flow", exc_info=True)

    def _take(self, state: str | None) -> None:
        decisions, self._known = self.run.decisions_since(self._known)
        found = [(wall_time(each), each) for each in decisions]
        for at, decision in found:
            self.book.add(decision, at)
        sample = self.sampler.sample(self.book.total, state)
        sample["held"] = self.book.held
        encoded = json.dumps(sample, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        self.latest, self.encoded = sample, encoded
        self.points.add(point(sample))
        self.samples.add((sample["at"], encoded), len(encoded))
        self._keep(lambda: self._write(found, sample, encoded))
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener(encoded)

    def _write(self, found: list[tuple[float, Decision]], sample: Json, encoded: bytes) -> None:
        if self._history is None:
            return
        if self._writer is None:
            # Not before something was done: a run that is refused must not write into another one's directory.
            if not sample["totals"]["epochs"]:
                self._unwritten += found
                return
            self._writer = HistoryWriter(self._history)
            found, self._unwritten = [*self._unwritten, *found], []
        if self.sampler.graph_version != self._graph_written:
            self._graph_written = self.sampler.graph_version
            self._writer.write_graph(
                {
                    "flow": sample["flow"],
                    "engine": sample["engine"],
                    "started": sample["started"],
                    "graph": self.sampler.graph,
                }
            )
        if found:
            self._writer.write_decisions(found)
        self._writer.write_sample(encoded)

    def _keep(self, write: Callable[[], None]) -> None:
        """Write to disk; a disk that is full or gone ends the history, not the flow."""
        try:
            write()
        except OSError as error:
            log.warning("the history is not written any more: %s", error)
            self._history = self._writer = None


def point(sample: Json) -> Json:
    """Return what the timeline shows of a sample."""
    totals = sample["totals"]
    latency = totals.get("latency") or {}
    return {
        "t": sample["at"],
        "rate": totals["rate"],
        "p50": latency.get("p50"),
        "p99": latency.get("p99"),
        "lag": totals.get("lag_seconds"),
        "lag_rows": totals.get("lag_rows"),
        "size": totals.get("size"),
    }
