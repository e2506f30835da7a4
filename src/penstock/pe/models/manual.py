"""The manual model: the thread that brings batches in runs every operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from penstock.order.parking import ParkingLot
from penstock.order.primitives import Primitives
from penstock.pe.batch import Batch
from penstock.pe.models.base import Leaving
from penstock.pe.own_threads import OwnThreads, threaded_ports
from penstock.pe.ports import PortScheduler
from penstock.pe.stations import InputPort, Station, run_port
from penstock.pe.worker import WorkerView


class Manual(Leaving):
    """Run everything in the thread that brings batches in, but for ports that were given a thread by hand."""

    def __init__(
        self,
        primitives: Primitives,
        stations: Iterable[Station],
        stopped: Callable[[], bool],
        crashed: Callable[[BaseException], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        lot = ParkingLot(primitives, 1)
        self._scheduler: PortScheduler[Batch] = PortScheduler(primitives, lot)
        self._stopped = stopped
        self._own = OwnThreads(self._scheduler, lot, stopped, clock, crashed, helps=True)
        self._own.add(threaded_ports(stations))

    @property
    def active(self) -> int:
        """There is the thread that brings batches in, and those that were placed by hand."""
        return 1 + len(self._own)

    def start(self) -> None:
        """Start the threads that were placed by hand."""
        self._own.start()

    def deliver(self, port: InputPort, batch: Batch) -> None:
        """Take a batch, and run operators until nothing waits any more."""
        scheduler, stopped = self._scheduler, self._stopped
        scheduler.deliver(port, batch, run_port, stopped)
        while not stopped() and (found := scheduler.find()) is not None:
            scheduler.drain(found, run_port, lambda: not stopped(), stopped)

    def add(self, stations: Sequence[Station], first: int) -> None:
        """Start threads for ports that are to have one; the others are found when something is put into them."""
        self._own.add(threaded_ports(stations))

    def retire(self, station: Station) -> None:
        """End the threads of the station's ports, if they have some."""
        self._own.retire(station.ports)

    def stop(self) -> None:
        """End the threads that were placed by hand."""
        self._own.stop()

    def workers(self) -> list[WorkerView]:
        """Tell what the threads that were placed by hand are doing."""
        return self._own.workers()
