"""Start a flow, and hold on to it: `run` waits for the end, `start` returns at once."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from penstock.errors import FlowError, PenstockError
from penstock.flow import Flow
from penstock.ingress.feeds import Feed, make_feed
from penstock.ingress.sequence import epoch_sequence
from penstock.operators.base import Sink, Source
from penstock.plan import Plan, make_plan
from penstock.read import Frame
from penstock.rows import Row
from penstock.sequential import SequentialEngine
from penstock.spark.engine import EpochStats
from penstock.timing import seconds
from penstock.write import Callback, Console, Directory, FrameCallback

EngineName = Literal["spark", "sequential"]


class Run:
    """A flow that runs, or has run."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.epochs: list[Any] = []
        """What each epoch did (the last 1,000 of them)."""
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._engine: Any = None
        self._results: Callable[[], dict[str, list[Row]]] = dict
        self._listeners: list[Callable[[Any], None]] = []

    @property
    def results(self) -> dict[str, list[Row]]:
        """Return the rows of the sinks that are kept in memory, by name, in order."""
        return self._results()

    @property
    def running(self) -> bool:
        """Tell whether the flow is still running."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """Return what ended the flow, if it failed."""
        return self._error

    def stop(self) -> None:
        """End the flow behind the epoch under way; windows stay open, and a later run goes on from here."""
        if self._engine is not None:
            self._engine.stop()

    def await_end(self, timeout: float | None = None) -> bool:
        """Wait for the end; raise what the flow failed with; return False where the time ran out."""
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
        if isinstance(self._error, PenstockError):
            # It says where it happened; the engine's own frames would only hide that.
            raise self._error.with_traceback(None)
        if self._error is not None:
            raise self._error
        return True

    def set_tasks(self, tasks: int) -> None:
        """Set the number of tasks of the keyed stages, from the next epoch on, without a restart."""
        self._engine.set_tasks(tasks)

    def set_table(self, operator: str, table: list[int]) -> None:
        """Set which task holds each shard of an operator, from the next epoch on, without a restart."""
        self._engine.set_table(operator, table)

    def on_epoch(self, listener: Callable[[Any], None]) -> None:
        """Call a function with the statistics of each epoch, as soon as it is committed."""
        self._listeners.append(listener)

    def _took_epoch(self, stats: Any) -> None:
        self.epochs.append(stats)
        del self.epochs[:-1000]
        for listener in self._listeners:
            listener(stats)


def start(
    flow: Flow,
    *,
    engine: EngineName = "spark",
    spark: Any = None,
    checkpoint: str | None = None,
    tasks: int | None = None,
    epoch_rows: int = 1_000_000,
    every: str | float = 0.0,
    end: bool = True,
    on_epoch: Callable[[Any], None] | None = None,
) -> Run:
    """Start a flow and return at once.

    `checkpoint` is where the run is kept: start again with the same one and it goes on where it left off. Without it
    the run is kept in a temporary directory and forgotten. `tasks` is the number of tasks of the keyed stages (by
    default one a core). `epoch_rows` bounds what an epoch reads from a source, `every` is the least time from epoch
    to epoch. With `end=False` exhausted sources stop the run without ending the flow: windows stay open for a later
    run.
    """
    plan = make_plan(flow)
    if epoch_rows < 1:
        raise FlowError(f"epoch_rows={epoch_rows}; an epoch needs at least one row")
    run = Run(flow)
    if on_epoch is not None:
        run.on_epoch(on_epoch)
    if engine == "sequential":
        target = _sequential(plan, run, epoch_rows, end)
    elif engine == "spark":
        target = _spark(plan, run, spark, checkpoint, tasks, epoch_rows, seconds(every, "every"), end)
    else:
        raise FlowError(f'there is no engine {engine!r}; use "spark" or "sequential"')

    def guarded() -> None:
        try:
            target()
        except BaseException as error:
            run._error = error

    run._thread = threading.Thread(target=guarded, name=f"penstock-{flow.name}", daemon=True)
    run._thread.start()
    return run


def run(flow: Flow, **options: Any) -> Run:
    """Run a flow to its end; options are those of `start`. Ctrl-C ends it behind the epoch under way."""
    started = start(flow, **options)
    with _plain_interrupts():
        try:
            started.await_end()
            return started
        except KeyboardInterrupt:
            started.stop()
        # Outside of the handler, so that an error is not reported as a consequence of the interrupt.
        started.await_end()
    return started


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Put PySpark's handler of Ctrl-C aside: it cancels the job of the epoch under way."""
    handler = signal.getsignal(signal.SIGINT)
    theirs = str(getattr(handler, "__module__", "")).startswith("pyspark")
    if not theirs or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _spark(
    plan: Plan,
    run: Run,
    session: Any,
    checkpoint: str | None,
    tasks: int | None,
    epoch_rows: int,
    every: float,
    end: bool,
) -> Callable[[], None]:
    from penstock.spark.engine import Options, SparkEngine
    from penstock.spark.job import SparkBackend
    from penstock.spark.session import make_session

    path = checkpoint or tempfile.mkdtemp(prefix=f"penstock-{_file_name(plan.name)}-")
    path = path if "://" in path else os.path.abspath(path)
    session = session if session is not None else make_session(f"penstock: {plan.name}")
    engine = SparkEngine(plan, SparkBackend(session), Options(path, tasks, epoch_rows, every, end), run._took_epoch)
    run._engine = engine
    run._results = lambda: dict(engine.outputs.results) if engine.outputs is not None else {}

    def target() -> None:
        try:
            engine.run()
        finally:
            if checkpoint is None:
                shutil.rmtree(path, ignore_errors=True)

    return target


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)


class _CountingEngine(SequentialEngine):
    """The reference engine, counting what comes in."""

    rows = 0

    def row(self, source: str, row: Row) -> None:
        self.rows += 1
        super().row(source, row)


class _SequentialRun:
    """The reference engine fed by readers: for small data, and to see what a flow means."""

    def __init__(self, plan: Plan, epoch_rows: int, end: bool, listener: Callable[[EpochStats], None]) -> None:
        self._plan, self._epoch_rows, self._end, self._listener = plan, epoch_rows, end, listener
        self.engine = _CountingEngine(plan)
        self._stop = threading.Event()
        self._published: dict[str, int] = {}
        """How many rows of each sink that is kept in memory were there at the last epoch."""

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        feeds: dict[str, Feed] = {}
        for node in self._plan.sources:
            assert isinstance(node.operator, Source)
            if isinstance(node.operator.reader, Frame):
                raise PenstockError(f'source {node.name!r} is a Spark DataFrame, which only engine="spark" reads')
            feeds[node.name] = make_feed(node.operator.reader, node.name, time.monotonic)
        for node in self._plan.sinks:
            assert isinstance(node.operator, Sink)
            if isinstance(node.operator.writer, (Directory, FrameCallback)):
                raise PenstockError(
                    f"sink {node.name!r} writes with Spark; with engine='sequential' use ps.write.memory(), "
                    f"console() or a callback"
                )
        ended: set[str] = set()
        epoch = 0
        floor: tuple[int, ...] | None = None
        while not self._stop.is_set():
            began, before = time.monotonic(), self.engine.rows
            slices = {name: s for name, feed in feeds.items() if (s := feed.poll(self._epoch_rows)) is not None}
            ends = [name for name, feed in feeds.items() if name not in ended | slices.keys() and feed.exhausted()]
            if not slices and not ends:
                self._stop.wait(0.05)
                continue
            if slices:
                floor = epoch_sequence(self._plan, slices, self.engine, floor)
            for name in ends if self._end else []:
                self.engine.end(name)
            ended.update(ends)
            epoch += 1
            counts = self._publish(epoch)
            backlog = sum(found.backlog or 0 for found in slices.values()) if slices else None
            spent, rows = time.monotonic() - began, self.engine.rows - before
            self._listener(EpochStats(epoch, rows, counts, spent, spent, backlog, {}, {}, {}, {}, tasks=1, levels={}))
            if len(ended) == len(feeds):
                return

    def _publish(self, epoch: int) -> dict[str, int]:
        counts = {}
        for node in self._plan.sinks:
            assert isinstance(node.operator, Sink)
            writer, rows = node.operator.writer, self.engine.results[node.name]
            counts[node.name] = len(rows) - self._published.get(node.name, 0)
            if rows and isinstance(writer, (Callback, Console)):
                if isinstance(writer, Callback):
                    writer.function(list(rows), epoch)
                else:
                    for row in rows[: writer.limit]:
                        print(row)
                rows.clear()
            self._published[node.name] = len(rows)
        return counts


def _sequential(plan: Plan, run: Run, epoch_rows: int, end: bool) -> Callable[[], None]:
    sequential = _SequentialRun(plan, epoch_rows, end, run._took_epoch)
    run._engine = sequential
    run._results = lambda: {name: list(rows) for name, rows in sequential.engine.results.items()}
    return sequential.run
