"""The bound model: each operator belongs to one worker, and can be given to another while all of them run on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from penstock.order.parking import ParkingLot
from penstock.order.primitives import Primitives
from penstock.pe.batch import Batch
from penstock.pe.models.base import Leaving
from penstock.pe.rebinding import BarrierBinding, Binding
from penstock.pe.stations import InputPort, Station, run_port
from penstock.pe.worker import IDLE_SECONDS, Worker, WorkerView


class Bound(Leaving):
    """Bind each operator to one worker."""

    def __init__(
        self,
        primitives: Primitives,
        stations: Sequence[Station],
        stopped: Callable[[], bool],
        crashed: Callable[[BaseException], None],
        *,
        workers: int,
        barrier: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        # By the station, not by its name: a query that is cancelled and added again has stations of the same names.
        self._numbers = {id(station): number for number, station in enumerate(stations)}
        self._names = {station.label: station for station in stations}
        self._lot = ParkingLot(primitives, workers)
        owners = [number % workers for number in range(len(stations))]
        kind = BarrierBinding if barrier else Binding
        self._binding: Binding[tuple[InputPort, Batch]] = kind(primitives, owners, workers, self._lot.wake)
        self._stopped = stopped
        self._workers = [Worker(number, self._loop, clock, crashed) for number in range(workers)]

    @property
    def active(self) -> int:
        """How many workers there are."""
        return len(self._workers)

    def start(self) -> None:
        """Start the workers."""
        for worker in self._workers:
            worker.thread.start()

    def stop(self) -> None:
        """End the workers, and wait for them."""
        for worker in self._workers:
            worker.leaving = True
            self._lot.wake(worker.number)
        for worker in self._workers:
            worker.thread.join()

    def workers(self) -> list[WorkerView]:
        """Tell what the workers are doing."""
        return [worker.view() for worker in self._workers]

    def deliver(self, port: InputPort, batch: Batch) -> None:
        """Queue a batch with the worker that has the operator."""
        number = self._numbers.get(id(port.station))
        if number is not None:  # else a call to a replica that is gone, which has nothing left to be called for
            self._binding.submit(number, port.sequence(batch), (port, batch))

    def rebind(self, operator: str, worker: int) -> None:
        """Give an operator, or a replica by its label, to another worker; returns at once."""
        self._binding.rebind(self._numbers[id(self._names[operator])], worker)

    def bindings(self) -> dict[str, int]:
        """Return the worker of each operator (a snapshot)."""
        owners = self._binding.owners()
        return {name: owners[self._numbers[id(station)]] for name, station in self._names.items()}

    def add(self, stations: Sequence[Station], first: int) -> None:
        """Bind more stations, each to the worker that has the fewest."""
        for station in stations:
            owners = self._binding.owners()
            worker = min(range(len(self._workers)), key=owners.count)
            self._numbers[id(station)] = self._binding.add(worker, station.first_task(first))
            self._names[station.label] = station

    def retire(self, station: Station) -> None:
        """Forget the operator; its place in the table stays, for one more number costs nothing."""
        self._numbers.pop(id(station), None)
        if self._names.get(station.label) is station:
            del self._names[station.label]

    def _loop(self, worker: Worker) -> None:
        while not worker.leaving and not self._stopped():
            for task in self._binding.work(worker.number):
                port, batch = task.payload
                worker.enter(port.station.name)
                for target, out in run_port(port, batch):
                    assert isinstance(target, InputPort)
                    self.deliver(target, out)
                worker.leave()
                if self._stopped():
                    return
            if not worker.leaving:
                self._lot.sleep(worker.number, IDLE_SECONDS)
