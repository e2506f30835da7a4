"""What can be asked of a run: the same questions for one that goes on and for one of which only its history is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.dashboard.history import History
from penstock.errors import PenstockError

Json = dict[str, Any]


class Live(Protocol):
    """A run of this process, as the page sees it."""

    finished: bool

    def listen(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        """Call a function with each sample to come, encoded; return what ends that."""

    def change_query(self, action: str, name: str) -> int:
        """Add or cancel a query; return the first batch that it concerns."""


class Page:
    """A run as browsers see it; without `live` it is one of the past."""

    def __init__(self, history: History, live: Live | None = None) -> None:
        self.history, self._live = history, live
        if live is None and not history.latest():
            raise PenstockError("the history of this run has no samples; it ended before the first one was written")

    def document(self) -> Json:
        """Return everything that the page begins with."""
        return {
            "live": self._live is not None and not self._live.finished,
            "graph": self.history.about().get("graph", {"nodes": [], "edges": [], "version": 0}),
            "sample": self.sample(),
            "points": self.history.points(),
            "decisions": self.history.marks_after(0),
        }

    def sample(self) -> Json:
        last = self.history.latest()
        if self._live is None:
            # It had no time to say how it ended: it was killed, or still runs elsewhere.
            state = "ended" if last["state"] == "running" else last["state"]
            counts = {"decisions": self.history.total, "held": self.history.held}
            return {**last, **counts, "state": state, "can_change": False}
        return last

    def listen(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        """Call a function with each sample to come, encoded; return what ends that."""
        return (lambda: None) if self._live is None else self._live.listen(listener)

    def change_query(self, action: str, name: str) -> int:
        """Add or cancel a query; return the first batch that it concerns."""
        if self._live is None:
            raise PenstockError("the flow has ended")
        return self._live.change_query(action, name)
