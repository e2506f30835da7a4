"""The dedicated model: a thread for each input port."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from penstock.order.parking import ParkingLot
from penstock.order.primitives import Primitives
from penstock.pe.batch import Batch
from penstock.pe.models.base import Leaving
from penstock.pe.own_threads import OwnThreads
from penstock.pe.ports import PortScheduler
from penstock.pe.stations import InputPort, Station, run_port
from penstock.pe.worker import WorkerView


class Dedicated(Leaving):
    """Give each input port a thread of its own."""

    def __init__(
        self,
        primitives: Primitives,
        stations: Iterable[Station],
        stopped: Callable[[], bool],
        crashed: Callable[[BaseException], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        lot = ParkingLot(primitives, 0)
        self._scheduler: PortScheduler[Batch] = PortScheduler(primitives, lot)
        self._stopped = stopped
        self._own = OwnThreads(self._scheduler, lot, stopped, clock, crashed)
        self._own.add([port for station in stations for port in station.ports])

    @property
    def active(self) -> int:
        """How many threads there are."""
        return len(self._own)

    def start(self) -> None:
        """Start the threads."""
        self._own.start()

    def deliver(self, port: InputPort, batch: Batch) -> None:
        """Take a batch."""
        self._scheduler.deliver(port, batch, run_port, self._stopped)

    def add(self, stations: Sequence[Station], first: int) -> None:
        """Start threads for the ports of more stations."""
        self._own.add([port for station in stations for port in station.ports])

    def retire(self, station: Station) -> None:
        """End the threads of a station."""
        self._own.retire(station.ports)

    def stop(self) -> None:
        """End all threads."""
        self._own.stop()

    def workers(self) -> list[WorkerView]:
        """Tell what the threads are doing."""
        return self._own.workers()
