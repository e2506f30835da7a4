"""The models in which a thread belongs to a port, and the one in which the thread that brings batches in runs all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from penstock.clock import perf_counter
from penstock.order.parking import ParkingLot
from penstock.order.primitives import Primitives
from penstock.statistics import WorkerStats
from penstock.threads.batch import Batch
from penstock.threads.models.base import Leaving
from penstock.threads.own_threads import OwnThreads, threaded_ports
from penstock.threads.ports import PortScheduler
from penstock.threads.stations import InputPort, Station, run_port


class Owning(Leaving):
    """Give some ports threads of their own."""

    helps: ClassVar[bool]
    """Whether there are ports without one: the thread that brings batches in runs those, and so does any other."""

    def __init__(
        self,
        primitives: Primitives,
        stations: Iterable[Station],
        stopped: Callable[[], bool],
        crashed: Callable[[BaseException], None],
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        lot = ParkingLot(primitives, int(self.helps))
        self._scheduler: PortScheduler[Batch] = PortScheduler(primitives, lot)
        self._stopped = stopped
        self._own = OwnThreads(self._scheduler, lot, stopped, clock, crashed, helps=self.helps)
        self._own.add(self._owned(stations))

    @abstractmethod
    def _owned(self, stations: Iterable[Station]) -> list[InputPort]:
        """Return the ports that have a thread."""

    @property
    def active(self) -> int:
        """How many threads run operators."""
        return self.helps + len(self._own)

    def start(self) -> None:
        """Start the threads."""
        self._own.start()

    def add(self, stations: Sequence[Station], first: int) -> None:
        """Start threads for ports of more stations."""
        self._own.add(self._owned(stations))

    def retire(self, station: Station) -> None:
        """End the threads of a station, if it has some."""
        self._own.retire(station.ports)

    def stop(self) -> None:
        """End all threads."""
        self._own.stop()

    def workers(self) -> list[WorkerStats]:
        """Tell what the threads are doing."""
        return self._own.workers()


class Dedicated(Owning):
    """Give each input port a thread of its own."""

    helps: ClassVar[bool] = False

    def _owned(self, stations: Iterable[Station]) -> list[InputPort]:
        return [port for station in stations for port in station.ports]

    def deliver(self, port: InputPort, batch: Batch) -> None:
        """Take a batch."""
        self._scheduler.deliver(port, batch, run_port, self._stopped)


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
