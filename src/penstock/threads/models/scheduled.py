"""The models in which a scheduler finds the operator that is next: *dynamic*, *dedicated* and *manual*.

They differ in who runs operators. Workers run any operator, and come and go while the flow runs. Some ports have a
thread of their own: a user may place some, and the dedicated model has one for every port. Streams calls such ports
threaded. The thread sleeps until something is put into its port. And in the manual model the thread that brings batches
in runs all that no other thread does. Who finds a queue full drains a part of it, here as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

from penstock.clock import perf_counter
from penstock.order.parking import ParkingLot
from penstock.order.primitives import Primitives
from penstock.statistics import WorkerStats
from penstock.threads.batch import Batch
from penstock.threads.choosing import PolicyScheduler
from penstock.threads.models.base import IDLE_SECONDS, Deliver, ModelName, Worker
from penstock.threads.policies import MeasuredFlow, Policy
from penstock.threads.ports import KeepGoing, PortScheduler
from penstock.threads.replicas import Replica
from penstock.threads.stations import SOON, InputPort, Station, run_port

MOST_WORKERS = 256


class Scheduled:
    """Run operators by workers, by threads of single ports, or by the thread that brings batches in."""

    def __init__(
        self,
        name: ModelName,
        primitives: Primitives,
        measured: MeasuredFlow,
        stations: Iterable[Station],
        stopped: Callable[[], bool],
        crashed: Callable[[BaseException], None],
        *,
        workers: int,
        policy: Policy | None,
        quantum: float,
        clock: Callable[[], float] = perf_counter,
        seed: int = 0,
    ) -> None:
        self.name = name
        self.has_pool = name == "dynamic"
        self._submitter_runs = name == "manual"
        self._lot = ParkingLot(primitives, MOST_WORKERS if self.has_pool else int(self._submitter_runs))
        self._choosing = (
            PolicyScheduler(primitives, self._lot, measured, policy, quantum, clock, seed=seed)
            if policy is not None and self.has_pool
            else None
        )
        self._scheduler: PortScheduler[Batch] = self._choosing or PortScheduler(primitives, self._lot)
        self._stopped, self._quantum, self._clock, self._crashed = stopped, quantum, clock, crashed
        self._changing = Lock()
        self._workers: list[Worker] = []
        self._own: dict[Worker, InputPort] = {}
        """The threads of single ports; one thread at a time adds and retires, others may be reading."""
        self._stand_in = Worker(0, self._loop, clock, crashed)  # never started: it counts for the thread that delivers
        self._count = workers if self.has_pool else int(self._submitter_runs)
        self._started = False
        self._place(stations)

    @property
    def schedules_sources(self) -> bool:
        """Whether workers bring in what was read: where a policy says which operator is next."""
        return self._choosing is not None

    @property
    def active(self) -> int:
        """How many threads run operators, with those that have a port of their own."""
        return self._count + len(self._own)

    @property
    def has_one_worker(self) -> bool:
        """Whether there is one worker, and no other thread that runs operators."""
        return self.has_pool and self.active == 1

    @property
    def leaving(self) -> int:
        """How many workers were told to go and have not."""
        return sum(worker.leaving and worker.thread.is_alive() for worker in self._workers)

    def start(self) -> None:
        self._started = True
        if self.has_pool:
            self.set_workers(self._count)
        for worker in self._own:
            worker.thread.start()

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
        self._dismiss(active[count:])
        self._workers = [worker for worker in self._workers if worker.thread.is_alive() or not worker.leaving]
        for _ in range(count - len(active)):
            taken = {worker.number for worker in self._workers}
            number = next(n for n in range(MOST_WORKERS) if n not in taken)
            worker = Worker(number, self._loop, self._clock, self._crashed)
            self._workers.append(worker)
            worker.thread.start()

    def _dismiss(self, workers: Iterable[Worker]) -> None:
        for worker in workers:
            worker.leaving = True
            self._lot.wake(worker.number)

    def suspend(self, number: int) -> None:
        """Let a worker rest, behind what it is in the middle of."""
        self._worker(number).suspended = True

    def resume(self, number: int) -> None:
        """Let a worker go on."""
        self._worker(number).suspended = False
        self._lot.wake(number)

    def _worker(self, number: int) -> Worker:
        found = next((worker for worker in self._workers if worker.number == number and not worker.leaving), None)
        if found is None:
            raise ValueError(f"no worker {number}; there are {[worker.number for worker in self._workers]}")
        return found

    def add(self, stations: Sequence[Station], first: int) -> None:
        """Start threads for ports that are to have one; the others are found when something is put into them."""
        self._place(stations)

    def _place(self, stations: Iterable[Station]) -> None:
        """Give ports threads of their own."""
        every = self.name == "dedicated"
        for port in [port for station in stations for port in station.ports] if every else threaded_ports(stations):
            number = self._lot.grow()
            self._scheduler.own(port, number)
            worker = Worker(number, self._loop_of_port, self._clock, self._crashed, own=True)
            self._own = {**self._own, worker: port}
            if self._started:
                worker.thread.start()

    def retire(self, station: Station) -> None:
        """End the threads of the station's ports, if they have some."""
        for worker, port in self._own.items():
            if port in station.ports:
                self._dismiss([worker])
                worker.thread.join()
                self._scheduler.disown(port)
        self._own = {worker: port for worker, port in self._own.items() if port not in station.ports}

    def stop(self) -> None:
        with self._changing:
            started, self._started = self._started, False
            workers = [*self._workers, *self._own]
        self._dismiss(workers)
        for worker in workers if started else ():
            worker.thread.join()

    def workers(self) -> list[WorkerStats]:
        views = [worker.view() for worker in self._workers if not worker.leaving]
        return [*([self._stood_in(views[0]), *views[1:]] if views else []), *(worker.view() for worker in self._own)]

    def _stood_in(self, view: WorkerStats) -> WorkerStats:
        """Add to what the first worker did what was done in its place."""
        other = self._stand_in.view()
        shown = other if other.state == "busy" and view.state != "busy" else view
        return replace(shown, number=view.number, busy_seconds=view.busy_seconds + other.busy_seconds)

    # From the thread that brings batches in -----------------------------------------------------------------------

    def deliver(self, port: InputPort, batch: Batch) -> None:
        """Take a batch; where there is no room, drain the port first, as Streams' sources do."""
        self._scheduler.deliver(port, batch, run_port, self._stopped)
        if self._submitter_runs:
            self._run_listed()

    @contextmanager
    def standing_in(self) -> Iterator[Deliver]:
        """Let the thread that delivers do the work of the one worker, which sleeps on.

        Handing a small batch to another thread takes longer than running it: the interpreter's lock changes hands
        for each, and at its own pace. Queueing it for oneself takes as long again; a policy sees what it chooses from.
        """
        if not self.has_one_worker:
            yield self.deliver
            return
        self._lot.hold(True)
        try:
            yield self._run_through if self._choosing is None else self.deliver
            self._run_what_is_there()
        finally:
            self._lot.hold(False)
        self._run_what_is_there()  # what came before the lot was open again woke nobody

    def _run_through(self, port: InputPort, batch: Batch) -> None:
        with self._timed(port) as keep_going:
            self._scheduler.pass_through(port, batch, run_port, keep_going, self._stopped)

    def _run_what_is_there(self) -> None:
        while not self._stopped() and (port := self._scheduler.find()) is not None:
            assert isinstance(port, InputPort)
            with self._timed(port) as keep_going:
                self._scheduler.drain(port, run_port, keep_going, self._stopped)

    @contextmanager
    def _timed(self, port: InputPort) -> Iterator[KeepGoing]:
        """Count as the worker while inside, which has a quantum."""
        self._stand_in.enter(port.station.name)
        since = self._clock()
        try:
            yield lambda: self._keeps(port, since, 0) and not self._stopped()
        finally:
            self._stand_in.leave()

    def _run_listed(self) -> None:
        """Run what was put into ports that have no thread, until there is no more: where nobody else would."""
        while not self._stopped() and (port := self._scheduler.find()) is not None:
            self._scheduler.drain(port, run_port, lambda: not self._stopped(), self._stopped)

    def _keeps(self, port: InputPort, since: float, worker: int) -> bool:
        """Tell whether a worker that took an operator at that time may go on with it."""
        if self._choosing is not None:
            return self._choosing.keeps(port, since, worker)
        return self._clock() < since + self._quantum

    # From the other threads ---------------------------------------------------------------------------------------

    def _loop(self, worker: Worker) -> None:
        scheduler, clock, stopped = self._scheduler, self._clock, self._stopped
        since, port = 0.0, None

        def keep_going() -> bool:
            assert isinstance(port, InputPort)
            return self._keeps(port, since, worker.number) and not worker.leaving and not worker.suspended

        def takes_more() -> bool:
            return keep_going() and not (clock() > since + SOON and self._choosing is None and scheduler.has_listed())

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
            since = clock()
            scheduler.drain(port, run_port, keep_going, stopped, takes_more)
            worker.leave()
        # Somebody may have meant this worker for work that is still there.
        self._lot.wake_one()

    def _loop_of_port(self, worker: Worker) -> None:
        port, scheduler, stopped = self._own[worker], self._scheduler, self._stopped
        while not worker.leaving and not stopped():
            if not port.has_work() or not scheduler.claim(port):
                self._lot.sleep(worker.number, IDLE_SECONDS)
                continue
            worker.enter(port.station.name)
            scheduler.drain(port, run_port, lambda: not (worker.leaving or stopped()), stopped)
            if self._submitter_runs:
                self._run_listed()
            worker.leave()


def threaded_ports(stations: Iterable[Station]) -> list[InputPort]:
    """Return the ports that are to have a thread of their own, of an operator and of each of its replicas."""
    return [port for station in stations for port in station.ports if _is_threaded(station, port)]


def _is_threaded(station: Station, port: InputPort) -> bool:
    inputs = station.node.inputs
    return any(read.threaded for read in inputs) if isinstance(station, Replica) else inputs[port.index].threaded
