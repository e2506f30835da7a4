"""The bound model: each operator belongs to one worker, and can be given to another while all of them run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import NamedTuple

from penstock.clock import perf_counter
from penstock.order.parking import ParkingLot
from penstock.order.primitives import Primitives
from penstock.statistics import WorkerStats
from penstock.threads.batch import Batch
from penstock.threads.models.base import IDLE_SECONDS, Deliver, ModelName, Worker
from penstock.threads.ports import PAUSE, Outputs, go_on
from penstock.threads.rebinding import BarrierBinding, BindingTable
from penstock.threads.stations import InputPort, Station, run_port


class _Work(NamedTuple):
    """A batch for an operator, and what comes out of it where it was begun."""

    port: InputPort
    batch: Batch
    outputs: Outputs[Batch] | None = None


class Bound:
    """Bind each operator to one worker."""

    name: ModelName = "bound"

    def __init__(
        self,
        primitives: Primitives,
        stations: Sequence[Station],
        stopped: Callable[[], bool],
        crashed: Callable[[BaseException], None],
        *,
        workers: int,
        quantum: float,
        barrier: bool = False,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        # The paper binds operators: what is read is brought in by its own thread, and sinks go with what they read.
        stations = [station for station in stations if station.ports]
        # By the station, not by its name: a query that is cancelled and added again has stations of the same names.
        self._numbers = {id(station): number for number, station in enumerate(stations)}
        self._names = {station.label: number for number, station in enumerate(stations)}
        """The number of each operator and replica by its label; replaced, never changed: any thread may be reading."""
        self._lot = ParkingLot(primitives, workers)
        owners = [number % workers for number in range(len(stations))]
        kind = BarrierBinding if barrier else BindingTable
        self._binding: BindingTable[_Work] = kind(primitives, owners, workers, self._lot.wake)
        self._stopped, self._quantum, self._clock = stopped, quantum, clock
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
        self._binding.release()
        for worker in self._workers:
            worker.thread.join()
        for work in self._binding.left():
            if work.outputs is not None:
                work.outputs.close()

    def workers(self) -> list[WorkerStats]:
        """Tell what the workers are doing."""
        return [worker.view() for worker in self._workers]

    def deliver(self, port: InputPort, batch: Batch) -> None:
        number = self._numbers.get(id(port.station))
        if number is not None:  # else a call to a replica that is gone, which has nothing left to be called for
            self._binding.submit(number, port.sequence(batch), _Work(port, batch))

    def standing_in(self) -> AbstractContextManager[Deliver]:
        """Deliver as ever: all work is left to the workers."""
        return nullcontext(self.deliver)

    def rebind(self, operator: str, worker: int) -> bool:
        """Give an operator, or a replica by its label, to another worker; returns at once.

        False where there is none of that name: it may have gone with its query just now.
        """
        number = self._names.get(operator)
        if number is not None:
            self._binding.rebind(number, worker)
        return number is not None

    def bindings(self) -> dict[str, int]:
        """Return the worker of each operator (a snapshot); any thread may ask."""
        names = self._names  # before the owners: an operator is named only when it has one
        owners = self._binding.owners()
        return {name: owners[number] for name, number in names.items()}

    def add(self, stations: Sequence[Station], first: int) -> None:
        """Bind more stations, each to the worker that has the fewest."""
        for station in stations:
            owners = self._binding.owners()
            worker = min(range(len(self._workers)), key=owners.count)
            number = self._numbers[id(station)] = self._binding.add(worker, station.first_task(first))
            self._names = {**self._names, station.label: number}

    def retire(self, station: Station) -> None:
        """Forget the operator; its place in the table stays, for one more number costs nothing."""
        number = self._numbers.pop(id(station), None)
        if self._names.get(station.label) == number:
            self._names = {label: other for label, other in self._names.items() if other != number}

    def _loop(self, worker: Worker) -> None:
        while not worker.leaving and not self._stopped():
            with closing(self._binding.work(worker.number)) as tasks:
                for task in tasks:
                    worker.enter(task.payload.port.station.name)
                    rest = self._run(task.payload)
                    worker.leave()
                    if rest is not None:
                        self._binding.put_aside(worker.number, task, rest)
                    if self._stopped():
                        return
            if not worker.leaving:
                self._lot.sleep(worker.number, IDLE_SECONDS)

    def _run(self, work: _Work) -> _Work | None:
        """Run an operator on a batch, or go on with it; return what is left of it when the time is over."""
        until = self._clock() + self._quantum

        def keep_going() -> bool:
            return self._clock() < until and not self._stopped()

        outputs = run_port(work.port, work.batch) if work.outputs is None else work.outputs
        output = next(outputs, None) if work.outputs is None else go_on(outputs, keep_going)
        while output is not None:
            if output is PAUSE:
                if not keep_going():
                    return work._replace(outputs=outputs)
                output = go_on(outputs, keep_going)
                continue
            target, batch = output
            assert isinstance(target, InputPort)
            self.deliver(target, batch)
            output = next(outputs, None)
        return None
