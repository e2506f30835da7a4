"""Threads that run stations, and the ways to share the work out among them (Streams' threading models, Rebinding's).

*manual*: no thread but the one that brings batches in; it runs every operator. *dedicated*: one thread for each input
port. *dynamic*: any worker runs any operator, found by the scheduler; workers come and go while the flow runs. *bound*:
each operator belongs to one worker, and can be given to another while all of them run on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from threading import Lock
from typing import Literal, Protocol

from penstock.order.parking import ParkingLot
from penstock.order.primitives import Primitives
from penstock.pe.batch import Batch
from penstock.pe.choosing import PolicyScheduler
from penstock.pe.own_threads import OwnThreads, threaded_ports
from penstock.pe.ports import PortScheduler
from penstock.pe.rebinding import BarrierBinding, Binding
from penstock.pe.stations import InputPort, Station, run_port
from penstock.pe.worker import IDLE_SECONDS, Worker, WorkerView
from penstock.policies import Policy

ModelName = Literal["manual", "dedicated", "dynamic", "bound"]

MOST_WORKERS = 256


class Model(Protocol):
    """A way to run the stations of an element."""

    @property
    def active(self) -> int:
        """How many workers may be in operators at once."""

    def start(self) -> None:
        """Start the threads."""

    def deliver(self, port: InputPort, batch: Batch) -> None:
        """Take a batch from a thread that is not the model's own; may run operators to make room for it."""

    def standing_in(self) -> AbstractContextManager[None]:
        """Return a context in which batches are delivered that the delivering thread may run, too, at its end."""

    def add(self, stations: Sequence[Station], first: int) -> None:
        """Run more stations, whose first batch is number `first`."""

    def retire(self, station: Station) -> None:
        """Forget a station that gets nothing any more."""

    def stop(self) -> None:
        """End the threads and wait for them; what they are in the middle of is finished."""

    def workers(self) -> list[WorkerView]:
        """Tell what the workers are doing."""


class _Leaving:
    """Leave all work to the workers."""

    def standing_in(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()


class _Crew(_Leaving):
    """The workers of a model whose number is fixed: they start together and end together."""

    _lot: ParkingLot
    _workers: list[Worker]

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


class Manual(_Leaving):
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
            scheduler.drain(found, run_port, _always, stopped)

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


class Dynamic:
    """Let any worker run any operator, but for ports that were given a thread by hand."""

    def __init__(
        self,
        primitives: Primitives,
        stations: Mapping[str, Station],
        stopped: Callable[[], bool],
        crashed: Callable[[BaseException], None],
        *,
        threaded: Sequence[InputPort],
        workers: int,
        policy: Policy | None,
        time_slice: float,
        clock: Callable[[], float] = time.perf_counter,
        seed: int = 0,
    ) -> None:
        self._lot = ParkingLot(primitives, MOST_WORKERS)
        self._scheduler: PortScheduler[Batch] = (
            PortScheduler(primitives, self._lot)
            if policy is None
            else PolicyScheduler(primitives, self._lot, stations, policy, time_slice, clock, seed)
        )
        self._stopped, self._slice, self._clock, self._crashed = stopped, time_slice, clock, crashed
        self._changing = Lock()
        self._workers: list[Worker] = []
        self._stand_in = Worker(0, self._loop, clock, crashed)  # never started: it counts for the thread that delivers
        self._own = OwnThreads(self._scheduler, self._lot, stopped, clock, crashed)
        self._own.add(threaded)
        self._count = workers
        self._started = False

    @property
    def active(self) -> int:
        """How many workers there are, with those that were placed by hand."""
        return self._count + len(self._own)

    def start(self) -> None:
        """Start the first workers."""
        self._started = True
        self.set_workers(self._count)
        self._own.start()

    def set_workers(self, count: int) -> None:
        """Change the number of workers; one that is in an operator leaves when it comes out."""
        if not 0 < count <= MOST_WORKERS:
            raise ValueError(f"{count} workers; there may be 1 to {MOST_WORKERS}")
        with self._changing:
            self._count = count
            if self._started:
                self._set_workers(count)

    def _set_workers(self, count: int) -> None:
        active = [worker for worker in self._workers if not worker.leaving]
        for worker in active[count:]:
            worker.leaving = True
            self._lot.wake(worker.number)
        self._workers = [worker for worker in self._workers if worker.thread.is_alive() or not worker.leaving]
        for _ in range(count - len(active)):
            taken = {worker.number for worker in self._workers}
            number = next(n for n in range(MOST_WORKERS) if n not in taken)
            worker = Worker(number, self._loop, self._clock, self._crashed)
            self._workers.append(worker)
            worker.thread.start()

    @property
    def leaving(self) -> int:
        """How many workers were told to go and have not."""
        return sum(worker.leaving and worker.thread.is_alive() for worker in self._workers)

    def suspend(self, number: int) -> None:
        """Let a worker rest, behind what it is in the middle of."""
        self._worker(number).suspended = True

    def resume(self, number: int) -> None:
        """Let a worker go on."""
        self._worker(number).suspended = False
        self._lot.wake(number)

    def deliver(self, port: InputPort, batch: Batch) -> None:
        """Take a batch; where there is no room, drain the port first, as Streams' sources do."""
        self._scheduler.deliver(port, batch, run_port, self._stopped)

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Let the thread that delivers do the work of the one worker, which sleeps on.

        Handing a small batch to another thread takes longer than running it: the interpreter's lock changes hands
        for each, and at its own pace.
        """
        if self.active != 1:
            yield
            return
        self._lot.held = True
        try:
            yield
            self._run_what_is_there()
        finally:
            self._lot.held = False
        self._run_what_is_there()  # what came before the lot was open again woke nobody

    def _run_what_is_there(self) -> None:
        scheduler, stopped, me = self._scheduler, self._stopped, self._stand_in
        while not stopped() and (port := scheduler.find()) is not None:
            assert isinstance(port, InputPort)
            me.enter(port.station.name)
            until = self._clock() + self._slice
            scheduler.drain(port, run_port, lambda until=until: self._clock() < until, stopped)  # type: ignore[misc]
            me.leave()

    def add(self, stations: Sequence[Station], first: int) -> None:
        """Start threads for ports that are to have one; the others are found when something is put into them."""
        self._own.add(threaded_ports(stations))

    def retire(self, station: Station) -> None:
        """End the threads of the station's ports, if they have some."""
        self._own.retire(station.ports)

    def stop(self) -> None:
        """End all workers."""
        self._own.stop()
        with self._changing:
            self._started = False
            workers = list(self._workers)
        for worker in workers:
            worker.leaving = True
            self._lot.wake(worker.number)
        for worker in workers:
            worker.thread.join()

    def workers(self) -> list[WorkerView]:
        """Tell what the workers are doing."""
        views = [worker.view() for worker in self._workers if not worker.leaving]
        return [*([self._stood_in(views[0]), *views[1:]] if views else []), *self._own.workers()]

    def _stood_in(self, view: WorkerView) -> WorkerView:
        """Add to what the first worker did what was done in its place."""
        other = self._stand_in.view()
        shown = other if other.state == "busy" and view.state != "busy" else view
        return replace(shown, number=view.number, busy_seconds=view.busy_seconds + other.busy_seconds)

    def _worker(self, number: int) -> Worker:
        found = next((worker for worker in self._workers if worker.number == number and not worker.leaving), None)
        if found is None:
            raise ValueError(f"no worker {number}; there are {[worker.number for worker in self._workers]}")
        return found

    def _loop(self, worker: Worker) -> None:
        scheduler, clock, stopped = self._scheduler, self._clock, self._stopped
        until = 0.0

        def keep_going() -> bool:
            return clock() < until and not worker.leaving and not worker.suspended

        while not worker.leaving and not stopped():
            if worker.suspended:
                self._lot.wake_one()  # it may have been woken for work that is still there
                self._lot.sleep(worker.number, IDLE_SECONDS)
                continue
            port = scheduler.wait_for_work(worker.number, IDLE_SECONDS)
            if port is None:
                continue
            assert isinstance(port, InputPort)
            worker.enter(port.station.name)
            until = clock() + self._slice
            scheduler.drain(port, run_port, keep_going, stopped)
            worker.leave()
        # Somebody may have meant this worker for work that is still there.
        self._lot.wake_one()


class Dedicated(_Leaving):
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


class Bound(_Crew):
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


def _always() -> bool:
    return True
