"""Threads that belong to one input port each: the dedicated model has one for every port, a user may place some.

Streams calls such ports threaded. The thread sleeps until something is put into its port. A producer that finds the
queue full drains a part of it, here as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from penstock.order.parking import ParkingLot
from penstock.statistics import WorkerStats
from penstock.threads.batch import Batch
from penstock.threads.ports import PortScheduler
from penstock.threads.replicas import Replica
from penstock.threads.stations import InputPort, Station, run_port
from penstock.threads.worker import IDLE_SECONDS, Worker


class OwnThreads:
    """The threads of some ports. One thread at a time adds and retires."""

    def __init__(
        self,
        scheduler: PortScheduler[Batch],
        lot: ParkingLot,
        stopped: Callable[[], bool],
        clock: Callable[[], float],
        crashed: Callable[[BaseException], None],
        helps: bool = False,
    ) -> None:
        """With `helps`, a thread also runs what it has given others to do: where nobody else would."""
        self._scheduler, self._lot, self._stopped = scheduler, lot, stopped
        self._clock, self._crashed, self._helps = clock, crashed, helps
        self._ports: dict[int, InputPort] = {}
        self._workers: list[Worker] = []
        self._started = False

    def __len__(self) -> int:
        return len(self._workers)

    def add(self, ports: Sequence[InputPort]) -> None:
        """Give ports threads of their own."""
        for port in ports:
            number = self._lot.grow()
            self._ports[number] = port
            self._scheduler.own(port, number)
            worker = Worker(number, self._loop, self._clock, self._crashed, own=True)
            self._workers.append(worker)
            if self._started:
                worker.thread.start()

    def retire(self, ports: Sequence[InputPort]) -> None:
        """End the threads of ports that get nothing any more."""
        gone = [worker for worker in self._workers if self._ports[worker.number] in ports]
        for worker in gone:
            worker.leaving = True
            self._lot.wake(worker.number)
            worker.thread.join()
            self._scheduler.disown(self._ports.pop(worker.number))
        self._workers = [worker for worker in self._workers if worker not in gone]

    def start(self) -> None:
        """Start the threads."""
        self._started = True
        for worker in self._workers:
            worker.thread.start()

    def stop(self) -> None:
        """End the threads, and wait for them."""
        for worker in self._workers:
            worker.leaving = True
            self._lot.wake(worker.number)
        for worker in self._workers:
            if self._started:
                worker.thread.join()

    def workers(self) -> list[WorkerStats]:
        """Tell what the threads are doing."""
        return [worker.view() for worker in self._workers]

    def _loop(self, worker: Worker) -> None:
        port, scheduler, stopped = self._ports[worker.number], self._scheduler, self._stopped
        while not worker.leaving and not stopped():
            if not port.has_work() or not scheduler.claim(port):
                self._lot.sleep(worker.number, IDLE_SECONDS)
                continue
            worker.enter(port.station.name)
            scheduler.drain(port, run_port, lambda: not (worker.leaving or stopped()), stopped)
            while self._helps and not stopped() and (found := scheduler.find()) is not None:
                scheduler.drain(found, run_port, lambda: not stopped(), stopped)
            worker.leave()


def threaded_ports(stations: Iterable[Station]) -> list[InputPort]:
    """Return the ports that are to have a thread of their own, of an operator and of each of its replicas."""
    return [port for station in stations for port in station.ports if _is_threaded(station, port)]


def _is_threaded(station: Station, port: InputPort) -> bool:
    inputs = station.node.inputs
    return any(read.threaded for read in inputs) if isinstance(station, Replica) else inputs[port.index].threaded
