"""Start a flow, and hold on to it: `run` waits for the end, `start` returns at once."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, ClassVar, Concatenate, ParamSpec, Protocol

from penstock.elastic.decisions import Decision
from penstock.errors import FlowError, PenstockError
from penstock.flow import Flow
from penstock.options import Options, refuse_unknown
from penstock.plan.plan import Plan, make_plan
from penstock.rows.records import Row
from penstock.statistics import FlowStats, epoch_fields
from penstock.steps import show_on

if TYPE_CHECKING:
    from penstock.dashboard.recorder import PageSession

P = ParamSpec("P")
log = logging.getLogger(__name__)
KEPT_EPOCHS = 1000


@dataclass(frozen=True)
class SetTasks:
    """Run the keyed stages in this number of tasks."""

    tasks: int
    needs: ClassVar[str] = "tasks come and go only with on=ps.Spark(...)"


@dataclass(frozen=True)
class SetTable:
    """Have each shard of an operator in the task that the table names."""

    operator: str
    table: list[int]
    needs: ClassVar[str] = "shards have a table only with on=ps.Spark(...)"


@dataclass(frozen=True)
class SetThreads:
    """Run with this number of workers, or of threads in each task."""

    threads: int
    needs: ClassVar[str] = "threads come and go only with on=ps.Threads(...) and on=ps.Spark(...)"


@dataclass(frozen=True)
class SetReplicas:
    """Run an operator in this number of replicas."""

    operator: str
    replicas: int
    needs: ClassVar[str] = "replicas come and go only with on=ps.Threads(...); on Spark, use run.set_tasks"


@dataclass(frozen=True)
class SetPlan:
    """Run another plan, of the same sources."""

    plan: Plan
    needs: ClassVar[str] = "queries come and go only with on=ps.Threads(...); restart the flow with its checkpoint"


Change = SetTasks | SetTable | SetThreads | SetReplicas | SetPlan


class Engine(Protocol):
    """What runs a plan. Its own thread calls `run`; everything else may be called from any thread."""

    changes: ClassVar[frozenset[type[Change]]] = frozenset()
    """What it can be asked for while it runs."""

    @property
    def results(self) -> dict[str, list[Row]]:
        """The rows so far of the sinks that are kept in memory, in order."""

    def run(self) -> None:
        """Run until all sources are exhausted, or `stop` is called."""

    def stop(self) -> None:
        """Take nothing more in, and end once what came in is out, or committed."""

    def ask(self, change: Change) -> Future[int]:
        """Ask for a change between two batches or epochs; the result is the number of the first one with it."""
        raise PenstockError(change.needs)

    def refuse_inside(self) -> None:
        """Refuse a thread that the flow waits for, where a change is waited for."""
        return

    def statistics(self) -> FlowStats:
        """Tell what the flow has done since it started, and how it stands."""

    def decisions_since(self, known: int) -> tuple[list[Decision], int]:
        """Return what was decided after the first `known` decisions, and how many there are: old ones are dropped."""
        return [], known

    @property
    def decisions(self) -> list[Decision]:
        """What was decided, as far as it is kept."""
        return self.decisions_since(0)[0]


class Results(dict[str, list[Row]]):
    """The rows of sinks that are kept in memory; of one that is not, say where they are."""

    def __init__(self, rows: Mapping[str, list[Row]], flow: Flow) -> None:
        super().__init__({name: list(some) for name, some in rows.items()})
        self._flow = flow

    def __missing__(self, name: str) -> list[Row]:
        writers = {node.name: node.operator.writer for node in make_plan(self._flow).sinks}
        if name not in writers:
            raise KeyError(f"there is no sink {name!r}; the sinks are {', '.join(writers)}")
        path = getattr(writers[name], "path", None)
        where = "its writer has its rows" if path is None else f"read its files by ps.read.sink({path!r})"
        raise KeyError(f"the rows of sink {name!r} are not kept in memory; {where}")


class Run:
    """A flow that runs, or has run."""

    def __init__(self, flow: Flow, options: Options, *, awaited: bool = False) -> None:
        plan = make_plan(flow)
        if options.on.name == "spark":
            plan.check_restarts("Spark moves its state between processes")
        flow.started = True
        self.flow = flow
        self.epochs: list[FlowStats] = []
        """What each epoch did (the last 1,000 of them)."""
        self._listeners = [] if options.on_epoch is None else [options.on_epoch]
        self._queries = frozenset(node.name for node in plan.sinks)
        self._changing = threading.Lock()
        self._error: BaseException | None = None
        self._stopped, self._awaited = False, awaited
        self._steps = show_on(None, flow.name, options.progress)
        try:
            self.engine: Engine = options.on.open(plan, options, self._took_epoch)
            """What runs it."""
            self._watch = _make_watch(self, options)
        except BaseException:
            if self._steps is not None:
                self._steps.close()
            raise
        self._on = options.on.name
        self._thread = threading.Thread(target=self._guarded, name=f"penstock-{flow.name}", daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self.engine.run()
        except Exception as error:
            self._error = error
        except BaseException as error:
            # Only a function of the flow raises that here; a thread that waits must not take it for an end of its own.
            self._error = PenstockError(f"a function of the flow raised {error!r}\n{traceback.format_exc()}")
        finally:
            if self._error is not None and not self._awaited:
                log.error("flow %r has failed; run.await_end() raises this: %s", self.flow.name, self._error)
            if self._steps is not None:
                self._steps.close()
            if self._watch is not None:
                failed = self._error is not None
                self._watch.finish("failed" if failed else "stopped" if self._stopped else "done")

    def __repr__(self) -> str:
        state = ("running", "stopping") if self.running else ("done", "stopped")
        failed = None if self._error is None else f"failed with {type(self._error).__name__}: {self._error}"
        stats = self.stats
        epochs = "1 epoch" if stats.epochs == 1 else f"{stats.epochs:,} epochs"
        done = f"{epochs}, {stats.rows_in:,} rows in, {sum(stats.rows_out.values()):,} out"
        page = "" if self.page is None else f"; page at {self.page}"
        return f"<Run of flow {self.flow.name!r} on {self._on}: {failed or state[self._stopped]}; {done}{page}>"

    @property
    def page(self) -> str | None:
        """The address of the live page, if there is one."""
        return None if self._watch is None else self._watch.address

    def close_page(self) -> None:
        """Take the live page away; it stays when the flow has ended, until then or until the process ends."""
        if self._watch is not None:
            self._watch.close()

    @property
    def results(self) -> dict[str, list[Row]]:
        """The rows so far of the sinks that are kept in memory, by name, in order."""
        return Results(self.engine.results, self.flow)

    @property
    def running(self) -> bool:
        """Whether the flow is still running."""
        return self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """What ended the flow, if it failed."""
        return self._error

    @property
    def stats(self) -> FlowStats:
        """What the flow has done since it started, operator by operator, and how it stands.

        The threads engine tells it as of now, the others as of the last epoch.
        """
        return self.engine.statistics()

    @property
    def decisions(self) -> list[Decision]:
        """What Penstock has decided by itself so far, each with what it saw and why."""
        return self.engine.decisions

    def decisions_since(self, known: int) -> tuple[list[Decision], int]:
        """Return what was decided after the first `known` decisions, and how many there are by now.

        A long run drops old decisions; a caller that looks now and then misses none.
        """
        return self.engine.decisions_since(known)

    def _ask(self, change: Change) -> Future[int]:
        """Ask the engine for a change; refuse what it has not declared."""
        if type(change) not in self.engine.changes:
            raise PenstockError(change.needs)
        return self.engine.ask(change)

    def set_threads(self, threads: int) -> None:
        """Set the number of workers of the threads engine, or of the threads of each task on Spark, while it runs."""
        self._ask(SetThreads(threads))

    def set_tasks(self, tasks: int) -> None:
        """Set the number of tasks of the keyed stages, from the next epoch on, without a restart."""
        self._ask(SetTasks(tasks))

    def set_table(self, operator: str, table: list[int]) -> None:
        """Set which task holds each shard of an operator, from the next epoch on, without a restart."""
        self._ask(SetTable(operator, table))

    def set_replicas(self, operator: str, replicas: int) -> int:
        """Set how many replicas of an operator there are, while it runs, order and state kept; threads engine only.

        Returns the number of the first batch that they share.
        """
        return self._ask(SetReplicas(operator, replicas)).result()

    @property
    def queries(self) -> list[str]:
        """The sinks that are running: each is a query, with everything above it."""
        return sorted(self._queries)

    def add_query(self, sink: str) -> int:
        """Run one more sink of the flow, built since it started, without stopping what runs; threads engine only.

        Operators that run already are shared. Returns the number of the first batch that the query sees.
        """
        with self._alone():
            whole = make_plan(self.flow)
            if sink not in {node.name for node in whole.sinks}:
                raise FlowError(
                    f"flow {self.flow.name!r} has no sink {sink!r}; build it with .sink({sink!r}, ...) first"
                )
            if sink in self._queries:
                raise FlowError(f"the query {sink!r} runs already")
            return self._change(whole, self._queries | {sink})

    def cancel_query(self, sink: str) -> int:
        """End one sink, and what only it needed, without stopping the others; threads engine only.

        Returns the number of the first batch that it does not see.
        """
        with self._alone():
            if sink not in self._queries:
                raise FlowError(f"no query {sink!r} is running; there are {', '.join(self.queries)}")
            if len(self._queries) == 1:
                raise FlowError(f"{sink!r} is the last query of the flow; stop the flow instead: run.stop()")
            return self._change(make_plan(self.flow), self._queries - {sink})

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Change the queries, one thread at a time."""
        if SetPlan not in self.engine.changes:
            raise PenstockError(SetPlan.needs)
        # Before the lock: the thread that has it waits for the flow, which would wait for this thread.
        self.engine.refuse_inside()
        with self._changing:
            yield

    def _change(self, whole: Plan, sinks: frozenset[str]) -> int:
        number = self._ask(SetPlan(whole.only(sinks))).result()
        self._queries = sinks
        return number

    def stop(self) -> None:
        """End the flow after the epoch under way; windows stay open, and a later run goes on from here."""
        self._stopped = True
        self.engine.stop()

    def await_end(self, timeout: float | None = None) -> bool:
        """Wait for the end; raise what the flow failed with; return False where the time ran out."""
        self._awaited = True
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if isinstance(self._error, PenstockError):
            # It says where it happened; the engine's own frames would only hide that.
            raise self._error.with_traceback(None)
        if self._error is not None:
            raise self._error
        return True

    def on_epoch(self, listener: Callable[[FlowStats], None]) -> None:
        """Call a function with the statistics of each epoch, as soon as it is committed."""
        self._listeners.append(listener)

    def _took_epoch(self, stats: FlowStats) -> None:
        if self._steps is not None and not self.epochs:
            self._steps.end(f"running; the first epoch had {stats.rows_in:,} rows and took {stats.seconds:.1f} s")
        if log.isEnabledFor(logging.INFO):
            log.info(
                "epoch %d: %d rows in %.3f s", stats.epoch, stats.rows_in, stats.seconds, extra=epoch_fields(stats)
            )
        self.epochs.append(stats)
        del self.epochs[:-KEPT_EPOCHS]
        for listener in self._listeners:
            listener(stats)


def _make_watch(run: Run, options: Options) -> PageSession | None:
    """Serve the page and keep the history, where either is wanted."""
    history, checkpoint = options.history, options.directory
    if history in (None, True) and checkpoint is not None:
        history = f"{checkpoint.rstrip('/')}/history"
    if not history and (options.page is None or options.page is False):
        return None
    try:
        from penstock.dashboard.recorder import PageSession
    except ImportError as error:  # an interpreter that was built without SQLite
        log.warning("the flow runs without a page and without a history: %s", error)
        return None
    return PageSession(
        run,
        options.on.name,
        page=options.page,
        host=options.page_host,
        token=options.page_token,
        history=None if history is None or isinstance(history, bool) else os.fspath(history),
    )


Taking = Callable[[Flow, Options], Run]


def _taking(kind: Callable[P, Options]) -> Callable[[Taking], Callable[Concatenate[Flow, P], Run]]:
    """Let a function take its options as keywords, typed as the fields of `Options` are."""

    def wrap(function: Taking) -> Callable[Concatenate[Flow, P], Run]:
        @wraps(function)
        def called(flow: Flow, /, *args: P.args, **kwargs: P.kwargs) -> Run:
            _refuse_other_things(function.__name__, flow)
            refuse_unknown(function.__name__, kwargs)
            return function(flow, kind(*args, **kwargs))

        flow = inspect.Parameter("flow", inspect.Parameter.POSITIONAL_ONLY, annotation=Flow)
        fields = inspect.signature(Options).parameters.values()
        called.__signature__ = inspect.Signature([flow, *fields], return_annotation=Run)  # type: ignore[attr-defined]
        return called

    return wrap


@_taking(Options)
def start(flow: Flow, options: Options) -> Run:
    """Start a flow and return at once; `docs/options.md` has the options."""
    _refuse_while_loading()
    return Run(flow, options)


@_taking(Options)
def run(flow: Flow, options: Options) -> Run:
    """Run a flow to its end; options are those of `start`. Ctrl-C ends it after the epoch under way."""
    _refuse_while_loading()
    started = Run(flow, options, awaited=True)
    with _plain_interrupts():
        try:
            started.await_end()
            return started
        except KeyboardInterrupt:
            started.stop()
        # Outside of the handler, so that an error is not reported as a consequence of the interrupt.
        started.await_end()
    return started


def _refuse_other_things(function: str, given: object) -> None:
    if not isinstance(given, Flow):
        fix = "end it with .sink(name, writer), which returns the flow" if hasattr(given, "flow") else "give a ps.Flow"
        raise TypeError(f"ps.{function} takes a flow, not {given!r}; {fix}")


LOADING: list[str] = []
"""The file that is being read for the flow in it, while it is."""


def _refuse_while_loading() -> None:
    """Refuse to run a flow out of a file that is read for its flow, by `penstock run` or by a worker."""
    context = getattr(sys.modules.get("pyspark"), "TaskContext", None)
    if LOADING or (context is not None and context.get() is not None):
        file = LOADING[-1] if LOADING else "a file of the flow"
        raise FlowError(
            f"{file} runs a flow while it is loaded; put ps.run(...) and what comes after it under "
            f'`if __name__ == "__main__":`'
        )


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
