"""Start a flow, and hold on to it: `run` waits for the end, `start` returns at once."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
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
    try:
        started.await_end()
    except KeyboardInterrupt:
        started.stop()
        started.await_end()
    return started


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


class _SequentialRun:
    """The reference engine fed by readers: for small data, and to see what a flow means."""

    def __init__(self, plan: Plan, epoch_rows: int, end: bool) -> None:
        self._plan, self._epoch_rows, self._end = plan, epoch_rows, end
        self.engine = SequentialEngine(plan)
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        feeds: dict[str, Feed] = {}
        for node in self._plan.sources:
            assert isinstance(node.operator, Source)
            if isinstance(node.operator.reader, Frame):
                raise PenstockError(f'source {node.name!r} is a Spark DataFrame, which only engine="spark" reads')
            feeds[node.name] = make_feed(node.operator.reader, node.name, time.monotonic)
        ended: set[str] = set()
        epoch = 0
        floor: tuple[int, ...] | None = None
        while not self._stop.is_set():
            slices = {name: s for name, feed in feeds.items() if (s := feed.poll(self._epoch_rows)) is not None}
            ends = [name for name, feed in feeds.items() if name not in ended | slices.keys() and feed.exhausted()]
            if slices:
                floor = epoch_sequence(self._plan, slices, self.engine, floor)
            for name in ends if self._end else []:
                self.engine.end(name)
            ended.update(ends)
            epoch += 1
            self._publish(epoch)
            if len(ended) == len(feeds):
                return
            if not slices and not ends:
                self._stop.wait(0.05)

    def _publish(self, epoch: int) -> None:
        for node in self._plan.sinks:
            assert isinstance(node.operator, Sink)
            writer, rows = node.operator.writer, self.engine.results[node.name]
            if isinstance(writer, (Directory, FrameCallback)):
                raise PenstockError(
                    f"sink {node.name!r} writes with Spark; with engine='sequential' use ps.write.memory(), "
                    f"console() or a callback"
                )
            if rows and isinstance(writer, (Callback, Console)):
                if isinstance(writer, Callback):
                    writer.function(list(rows), epoch)
                else:
                    for row in rows[: writer.limit]:
                        print(row)
                rows.clear()


def _sequential(plan: Plan, run: Run, epoch_rows: int, end: bool) -> Callable[[], None]:
    sequential = _SequentialRun(plan, epoch_rows, end)
    run._engine = sequential
    run._results = lambda: {name: list(rows) for name, rows in sequential.engine.results.items()}
    return sequential.run
