"""What a threading model is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from penstock.statistics import WorkerStats
from penstock.threads.batch import Batch
from penstock.threads.stations import InputPort, Station

ModelName = Literal["manual", "dedicated", "dynamic", "bound"]
Deliver = Callable[[InputPort, Batch], None]


class Model(Protocol):
    """A way to run the stations of an element."""

    name: ModelName

    @property
    def active(self) -> int:
        """How many workers may be in operators at once."""

    def start(self) -> None:
        """Start the threads."""

    def deliver(self, port: InputPort, batch: Batch) -> None:
        """Take a batch from a thread that is not the model's own; may run operators to make room for it."""

    def standing_in(self) -> AbstractContextManager[Deliver]:
        """Return a context with a way to deliver the one batch that is under way; the calling thread may run it."""

    def add(self, stations: Sequence[Station], first: int) -> None:
        """Run more stations, whose first batch is number `first`."""

    def retire(self, station: Station) -> None:
        """Forget a station that gets nothing any more."""

    def stop(self) -> None:
        """End the threads and wait for them; what they are in the middle of is finished."""

    def workers(self) -> list[WorkerStats]:
        """Tell what the workers are doing."""
