"""The dynamic model: any worker runs any operator, and workers come and go while the flow runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

from penstock.clock import perf_counter
from penstock.order.parking import ParkingLot
from penstock.order.primitives import Primitives
from penstock.statistics import WorkerStats
from penstock.threads.batch import Batch
from penstock.threads.choosing import PolicyScheduler
from penstock.threads.models.base import Deliver
from penstock.threads.own_threads import OwnThreads, threaded_ports
from penstock.threads.policies import MeasuredFlow, Policy
from penstock.threads.ports import KeepGoing, PortScheduler
from penstock.threads.stations import SOON, InputPort, Station, run_port
from penstock.threads.worker import IDLE_SECONDS, Worker

MOST_WORKERS = 256


class Dynamic:
    """Let any worker run any operator, but for ports that were given a thread by hand."""

    def __init__(
        self,
        primitives: Primitives,
        measured: MeasuredFlow,
        stopped: Callable[[], bool],
        crashed: Callable[[BaseException], None],
        *,
        threaded: Sequence[InputPort],
        workers: int,
        policy: Policy | None,
        quantum: float,
        clock: Callable[[], float] = perf_counter,
        seed: int = 0,
    ) -> None:
        self._lot = ParkingLot(primitives, MOST_WORKERS)
        self._choosing = (
            None
            if policy is None
            else PolicyScheduler(primitives, self._lot, measured, policy, quantum, clock, seed=seed)
        )
        self._scheduler: PortScheduler[Batch] = self._choosing or PortScheduler(primitives, self._lot)
        self._stopped, self._quantum, self._clock, self._crashed = stopped, quantum, clock, crashed
        self._changing = Lock()
        self._workers: list[Worker] = []
        self._stand_in = Worker(0, self._loop, clock, crashed)  # never started: it counts for the thread that delivers
        self._own = OwnThreads(self._scheduler, self._lot, stopped, clock, crashed)
        self._own.add(threaded)
        self._count = workers
        self._started = False

    @property
    def schedules_sources(self) -> bool:
        """Whether workers bring in what was read: where a policy says which operator is next."""
        return self._choosing is not None

    @property
    def active(self) -> int:
        """How many workers there are, with those that were placed by hand."""
        return self._count + len(self._own)

    def start(self) -> None:
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
    def standing_in(self) -> Iterator[Deliver]:
        """Let the thread that delivers do the work of the one worker, which sleeps on.

        Handing a small batch to another thread takes longer than running it: the interpreter's lock changes hands
        for each, and at its own pace. Queueing it for oneself takes as long again; a policy sees what it chooses from.
        """
        if self.active != 1:
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

    def _keeps(self, port: InputPort, since: float, worker: int) -> bool:
        """Tell whether a worker that took an operator at that time may go on with it."""
        if self._choosing is not None:
            return self._choosing.keeps(port, since, worker)
        return self._clock() < since + self._quantum

    def add(self, stations: Sequence[Station], first: int) -> None:
        """Start threads for ports that are to have one; the others are found when something is put into them."""
        self._own.add(threaded_ports(stations))

    def retire(self, station: Station) -> None:
        """End the threads of the station's ports, if they have some."""
        self._own.retire(station.ports)

    def stop(self) -> None:
        self._own.stop()
        with self._changing:
            self._started = False
            workers = list(self._workers)
        for worker in workers:
            worker.leaving = True
            self._lot.wake(worker.number)
        for worker in workers:
            worker.thread.join()

    def workers(self) -> list[WorkerStats]:
        views = [worker.view() for worker in self._workers if not worker.leaving]
        return [*([self._stood_in(views[0]), *views[1:]] if views else []), *self._own.workers()]

    def _stood_in(self, view: WorkerStats) -> WorkerStats:
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
