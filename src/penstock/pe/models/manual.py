"""The manual model: the thread that brings batches in runs every operator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from penstock.pe.batch import Batch
from penstock.pe.models.owning import Owning
from penstock.pe.own_threads import threaded_ports
from penstock.pe.stations import InputPort, Station, run_port


class Manual(Owning):
    """Run everything in the thread that brings batches in, but for ports that were given a thread by hand.

    The other ports are found when something is put into them.
    """

    helps: ClassVar[bool] = True

    def _owned(self, stations: Iterable[Station]) -> list[InputPort]:
        return threaded_ports(stations)

    def deliver(self, port: InputPort, batch: Batch) -> None:
        """Take a batch, and run operators until nothing waits any more."""
        scheduler, stopped = self._scheduler, self._stopped
        scheduler.deliver(port, batch, run_port, stopped)
        while not stopped() and (found := scheduler.find()) is not None:
            scheduler.drain(found, run_port, lambda: not stopped(), stopped)
