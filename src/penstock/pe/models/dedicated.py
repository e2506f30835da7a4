"""The dedicated model: a thread for each input port."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from penstock.pe.batch import Batch
from penstock.pe.models.owning import Owning
from penstock.pe.stations import InputPort, Station, run_port


class Dedicated(Owning):
    """Give each input port a thread of its own."""

    helps: ClassVar[bool] = False

    def _owned(self, stations: Iterable[Station]) -> list[InputPort]:
        return [port for station in stations for port in station.ports]

    def deliver(self, port: InputPort, batch: Batch) -> None:
        """Take a batch."""
        self._scheduler.deliver(port, batch, run_port, self._stopped)
