"""What can be asked of a run by whoever shows it: the same questions for one that runs and for one that has ended."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Protocol

from penstock.dashboard.decisions import DecisionBook
from penstock.dashboard.history import History
from penstock.dashboard.recorder import MOST_POINTS, Recorder, point
from penstock.dashboard.thinning import Thinned
from penstock.errors import PenstockError

Json = dict[str, Any]


class Page(Protocol):
    """A run, as the page sees it."""

    def document(self) -> Json:
        """Return everything that the page begins with."""

    def sample(self) -> Json:
        """Return the newest sample."""

    def sample_at(self, at: float) -> bytes:
        """Return the sample next to a time of day, encoded."""

    def book(self) -> DecisionBook:
        """Return the decisions."""

    def listen(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        """Call a function with each sample to come; return what ends that."""

    def change_query(self, action: str, name: str) -> int:
        """Add or cancel a query; return the first batch that it concerns."""


class LivePage:
    """A run that goes on, or has ended in this process."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def document(self) -> Json:
        recorder = self._recorder
        return {
            "live": not recorder.finished,
            "graph": {**recorder.sampler.graph, "version": recorder.sampler.graph_version},
            "sample": recorder.latest,
            "points": list(recorder.points),
            "decisions": recorder.book.after(0),
        }

    def sample(self) -> Json:
        return self._recorder.latest

    def sample_at(self, at: float) -> bytes:
        found: bytes = nearest(list(self._recorder.samples), at)
        return found

    def book(self) -> DecisionBook:
        return self._recorder.book

    def listen(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        return self._recorder.listen(listener)

    def change_query(self, action: str, name: str) -> int:
        run = self._recorder.run
        return run.add_query(name) if action == "add" else run.cancel_query(name)


class FinishedPage:
    """A run of which only its history is left."""

    def __init__(self, history: History) -> None:
        if not history.samples:
            raise PenstockError("the history of this run has no samples; it ended before the first one was written")
        self._history = history
        self._book = DecisionBook()
        for at, decision in history.decisions:
            self._book.add(decision, at)
        self._points: Thinned[Json] = Thinned(MOST_POINTS)
        for sample in history.samples:
            self._points.add(point(sample))
        last = {**history.samples[-1], "can_change": False}
        if last["state"] == "running":
            last["state"] = "ended"  # it had no time to say how: it was killed, or still runs elsewhere
        self._last = {**last, "decisions": self._book.total, "held": self._book.held}

    def document(self) -> Json:
        return {
            "live": False,
            "graph": {**self._history.meta["graph"], "version": self._last["graph"]},
            "sample": self._last,
            "points": list(self._points),
            "decisions": self._book.after(0),
        }

    def sample(self) -> Json:
        return self._last

    def sample_at(self, at: float) -> bytes:
        found = [(each["at"], each) for each in self._history.samples]
        return json.dumps(nearest(found, at)).encode()

    def book(self) -> DecisionBook:
        return self._book

    def listen(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        return lambda: None

    def change_query(self, action: str, name: str) -> int:
        raise PenstockError("the flow has ended")


def nearest(samples: list[tuple[float, Any]], at: float) -> Any:
    """Return the sample next to a time."""
    if not samples:
        return b"{}"
    index = bisect_left([each[0] for each in samples], at)
    around = samples[max(0, index - 1) : index + 1]
    return min(around, key=lambda each: abs(each[0] - at))[1]
