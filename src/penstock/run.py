"""Start a flow, and hold on to it: `run` waits for the end, `start` returns at once."""

from __future__ import annotations

import inspect
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from penstock.elastic.base import Controller
from penstock.elastic.decisions import Decision
from penstock.errors import FlowError, PenstockError, did_you_mean
from penstock.flow import Flow
from penstock.order.reorder import MakeReorder
from penstock.pe.models.base import ModelName
from penstock.pe.stations import Partitioned
from penstock.plan import Plan, make_plan
from penstock.policies import Policy
from penstock.rows import Row
from penstock.statistics import FlowStats
from penstock.timing import seconds

EngineName = Literal["spark", "threads", "sequential"]
EPOCH_ROWS = 1_000_000
"""Rows that an epoch reads from a source at most, where nobody says how many."""


class Run:
    """A flow that runs, or has run."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.epochs: list[FlowStats] = []
        """What each epoch did (the last 1,000 of them)."""
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._engine: Any = None
        self._queries: frozenset[str] = frozenset()
        self._changing = threading.Lock()
        self._results: Callable[[], dict[str, list[Row]]] = dict
        self._listeners: list[Callable[[Any], None]] = []
        self._watch: Any = None

    @property
    def page(self) -> str | None:
        """Return the address of the live page, if there is one."""
        address: str | None = None if self._watch is None else self._watch.address
        return address

    def close_page(self) -> None:
        """Take the live page away; it stays when the flow has ended, until then or until the process ends."""
        if self._watch is not None:
            self._watch.close()

    def _ending(self) -> str:
        """Say how the run has ended."""
        stop = getattr(self._engine, "_stop", None)
        stopped = stop is not None and stop.is_set()
        return "failed" if self._error is not None else "stopped" if stopped else "done"

    @property
    def results(self) -> dict[str, list[Row]]:
        """Return the rows so far of the sinks that are kept in memory, by name, in order."""
        return self._results()

    @property
    def running(self) -> bool:
        """Tell whether the flow is still running."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """Return what ended the flow, if it failed."""
        return self._error

    @property
    def stats(self) -> FlowStats:
        """Tell what the flow has done since it started, operator by operator, and how it stands.

        The threads engine tells it as of now, the others as of the last epoch.
        """
        found: FlowStats = self._engine.statistics()
        return found

    @property
    def decisions(self) -> list[Decision]:
        """Return what Penstock has decided by itself so far, each with what it saw and why."""
        return self.decisions_since(0)[0]

    def decisions_since(self, known: int) -> tuple[list[Decision], int]:
        """Return what was decided behind so many decisions, and how many there are by now.

        A long run lets old decisions go; who looks now and then misses none.
        """
        if not hasattr(self._engine, "decisions_since"):
            return [], known
        found: tuple[list[Decision], int] = self._engine.decisions_since(known)
        return found

    def set_threads(self, threads: int) -> None:
        """Set the number of workers of the threads engine, or of the threads of each task on Spark, while it runs."""
        self._able("set_threads")(threads)

    def _able(self, name: str) -> Callable[..., Any]:
        """Return what the engine can do by a name; refuse what it cannot."""
        found = getattr(self._engine, name, None)
        if found is None:
            raise PenstockError(f"the engine of this run has no {name}(); see docs/elasticity.md for what has")
        able: Callable[..., Any] = found
        return able

    def set_replicas(self, operator: str, replicas: int) -> int:
        """Set how many replicas of an operator there are, while it runs, order and state kept; threads engine only.

        Returns the number of the first batch that they share.
        """
        if not hasattr(self._engine, "set_replicas"):
            raise PenstockError('replicas come and go only with engine="threads"; on Spark, use run.set_tasks')
        number: int = self._engine.set_replicas(operator, replicas)
        return number

    @property
    def queries(self) -> list[str]:
        """Return the sinks that are running: each is a query, with everything above it."""
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
        """Change the queries while nobody else does."""
        if not hasattr(self._engine, "change"):
            raise PenstockError('queries come and go only with engine="threads"; restart the flow with its checkpoint')
        # Before the lock: whoever has it waits for the flow, which would wait for this thread.
        self._engine.refuse_inside()
        with self._changing:
            yield

    def _change(self, whole: Plan, sinks: frozenset[str]) -> int:
        number: int = self._engine.change(whole.only(sinks))
        self._queries = sinks
        return number

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
        self._able("set_tasks")(tasks)

    def set_table(self, operator: str, table: list[int]) -> None:
        """Set which task holds each shard of an operator, from the next epoch on, without a restart."""
        self._able("set_table")(operator, table)

    def on_epoch(self, listener: Callable[[FlowStats], None]) -> None:
        """Call a function with the statistics of each epoch, as soon as it is committed."""
        self._listeners.append(listener)

    def _took_epoch(self, stats: FlowStats) -> None:
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
    epoch_rows: int | None = None,
    every: str | float = 0.0,
    latency: str | float | None = None,
    end: bool = True,
    threads: int | Literal["utilization"] | Controller[Any, Any] | None = None,
    model: ModelName | None = None,
    policy: str | Policy | None = None,
    replicas: int | Mapping[str, int] | Literal["auto"] | None = None,
    partitioned: Partitioned | None = None,
    batch_rows: int | None = None,
    quantum: str | float | None = None,
    binding: Any = None,
    reorder: MakeReorder | None = None,
    on_epoch: Callable[[Any], None] | None = None,
    page: bool | int | None = None,
    page_host: str = "127.0.0.1",
    page_token: str | None = None,
    history: str | bool | None = None,
    name_keys: bool = False,
) -> Run:
    """Start a flow and return at once.

    `checkpoint` is where the run is kept: start again with the same one and it goes on where it left off. Without it
    the run is kept in a temporary directory and forgotten. `tasks` is the number of tasks of the keyed stages (by
    default it is found while the flow runs). `epoch_rows` bounds what an epoch reads from a source, `every` is the
    least time from epoch to epoch. `latency` is how long a row may take from source to sink, the one knob: on Spark
    epochs, tasks and executors are chosen for it, in threads workers and batches (with `model="dedicated"` replicas
    instead of workers). With `end=False` exhausted sources stop the run without ending the flow: windows stay open for
    a later run. On Spark `threads` is how many each task has for operators without memory (by default its cores,
    `spark.task.cpus`); it pays where these release the interpreter's lock and there are fewer tasks than cores.

    With `engine="threads"` the flow runs in this process, without Java and without a checkpoint: `threads` is the
    number of workers (by default it is found while the flow runs, by their throughput; with "utilization" by how busy
    they are), `model` the threading model (dynamic, manual, dedicated, bound), `policy` what chooses the next operator
    in the dynamic one (None is the Streams scheduler), `batch_rows` the rows that go through it together (by default
    found from what rows take). `replicas` gives operators replicas, by name, each with a queue of its own and one
    worker at a time; a number is for all that can have some, and with "auto" the bottleneck gets more while the flow
    runs. `partitioned` is how workers share a keyed operator: by a queue (hybrid, partitioned, shared), or as replicas,
    each with partitions of its own (executor), which move to where they are balanced. `quantum` is how long a worker
    stays with an operator before it looks for another that has work (by default "50 ms"): it changes behind a batch,
    and in the middle of one where an operator is a co-routine, unless the policy decides that itself. What the papers
    compare with is in `penstock.lab`, and handed in: `binding` says what rebinds operators in the bound model,
    `reorder` makes what puts batches back in order, and `threads` may be what finds the number of workers.

    `page=True`, or a port, serves a live page of the run on 127.0.0.1 (`run.page` is its address), or on `page_host`,
    where it asks for `page_token`. `history` is the directory that keeps what the page showed, for `penstock page`; a
    run with a checkpoint has it there. Values of rows are neither shown nor kept, but for the names of hot keys, with
    `name_keys`: in decisions, epochs, the page and the history.
    """
    _refuse_while_loading()
    plan = make_plan(flow)
    if checkpoint is not None or engine == "spark":
        plan.check_restarts("Spark moves its state between processes" if engine == "spark" else "checkpoint= saves it")
    flow._started = True
    _refuse_options(
        engine,
        {"spark": spark, "checkpoint": checkpoint, "tasks": tasks, "every": every or None},
        only="spark",
    )
    _refuse_options(
        engine,
        {
            "model": model,
            "policy": policy,
            "replicas": replicas,
            "partitioned": partitioned,
            "batch_rows": batch_rows,
            "quantum": quantum,
            "binding": binding,
            "reorder": reorder,
        },
        only="threads",
    )
    if threads is not None and (engine == "sequential" or (engine == "spark" and threads == "utilization")):
        raise FlowError(f'threads={threads!r} needs engine="threads"; this run is with engine={engine!r}')
    if engine == "spark" and threads is not None and (type(threads) is not int or threads < 1):
        raise FlowError(f"threads={threads!r}; a task needs a whole number of threads, 1 or more")
    if latency is not None and engine == "sequential":
        raise FlowError('latency= needs engine="spark" or "threads"; the sequential engine is as fast as it is')
    if history is True and checkpoint is None:
        raise FlowError("history=True keeps the history in the checkpoint; give checkpoint=, or history= a directory")
    if epoch_rows is not None and engine == "threads":
        raise FlowError(
            'epoch_rows= needs engine="spark" or "sequential"; engine="threads" has no epochs: batch_rows= bounds its '
            "batches"
        )
    epoch_rows = EPOCH_ROWS if epoch_rows is None else epoch_rows
    if epoch_rows < 1:
        raise FlowError(f"epoch_rows={epoch_rows}; an epoch needs at least one row")
    run = Run(flow)
    run._queries = frozenset(node.name for node in plan.sinks)
    if on_epoch is not None:
        run.on_epoch(on_epoch)
    if engine == "sequential":
        target = _sequential(plan, run, epoch_rows, end)
    elif engine == "threads":
        target = _threads(
            plan,
            run,
            end=end,
            model=model or "dynamic",
            threads=threads,
            policy=policy,
            replicas=replicas,
            partitioned=partitioned or "hybrid",
            batch_rows=batch_rows,
            quantum=None if quantum is None else seconds(quantum, "quantum"),
            latency=_target(latency),
            name_keys=name_keys,
            binding=binding,
            reorder=reorder,
        )
    elif engine == "spark":
        target = _spark(
            plan,
            run,
            spark,
            checkpoint,
            tasks,
            epoch_rows,
            seconds(every, "every"),
            end,
            _target(latency),
            threads,
            name_keys,
        )
    else:
        raise FlowError(f'there is no engine {engine!r}; use "spark", "threads" or "sequential"')

    def guarded() -> None:
        try:
            target()
        except Exception as error:
            run._error = error
        except BaseException as error:
            # Only a function of the flow raises that here; whoever waits must not take it for an end of their own.
            run._error = PenstockError(f"a function of the flow raised {error!r}\n{traceback.format_exc()}")
        finally:
            if run._watch is not None:
                run._watch.finish(run._ending())

    if history in (None, True) and checkpoint is not None:
        history = f"{checkpoint.rstrip('/')}/history"
    if history or (page is not None and page is not False):
        from penstock.dashboard.attach import Watch

        run._watch = Watch(
            run,
            engine,
            page=page,
            host=page_host,
            token=page_token,
            history=history if isinstance(history, str) else None,
        )
    run._thread = threading.Thread(target=guarded, name=f"penstock-{flow.name}", daemon=True)
    run._thread.start()
    return run


LOADING: list[str] = []
"""The file that is being read for the flow in it, while it is."""


def _refuse_while_loading() -> None:
    """Refuse to run a flow out of a file that is read for its flow, by `penstock run` or by a worker."""
    context = getattr(sys.modules.get("pyspark"), "TaskContext", None)
    if LOADING or (context is not None and context.get() is not None):
        file = LOADING[-1] if LOADING else "a file of the flow"
        raise FlowError(
            f"{file} runs a flow while it is loaded; put ps.run(...) and what comes behind it under "
            f'`if __name__ == "__main__":`'
        )


def _refuse_options(engine: str, options: dict[str, Any], only: str) -> None:
    """Refuse what only one engine can do, rather than run without it."""
    for name, value in options.items():
        if value is not None and engine != only:
            raise FlowError(f"{name}= needs engine={only!r}; this run is with engine={engine!r}")


def run(flow: Flow, **options: Any) -> Run:
    """Run a flow to its end; options are those of `start`. Ctrl-C ends it behind the epoch under way."""
    known = inspect.signature(start).parameters
    for name in options:
        if name not in known or name == "flow":
            raise TypeError(f"ps.run has no option {name!r}{did_you_mean(name, known)}")
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
    latency: float | None,
    threads: Any,
    name_keys: bool,
) -> Callable[[], None]:
    from penstock.spark.engine import Options, SparkEngine
    from penstock.spark.job import SparkBackend
    from penstock.spark.outputs import check_directories
    from penstock.spark.session import make_session
    from penstock.store.identity import check_names

    if checkpoint is not None:
        check_names(plan)
    check_directories(plan, checkpoint)
    path = checkpoint or tempfile.mkdtemp(prefix=f"penstock-{_file_name(plan.name)}-")
    path = path if "://" in path else os.path.abspath(path)
    session = session if session is not None else make_session(f"penstock: {plan.name}")
    options = Options(path, tasks, epoch_rows, every, end, latency, threads, name_keys)
    engine = SparkEngine(plan, SparkBackend(session), options, run._took_epoch)
    run._engine = engine
    run._results = lambda: {name: list(rows) for name, rows in engine.results.items()}

    def target() -> None:
        try:
            engine.run()
        finally:
            if checkpoint is None:
                shutil.rmtree(path, ignore_errors=True)

    return target


def _target(latency: str | float | None) -> float | None:
    """Read the latency target in seconds."""
    if latency is None:
        return None
    target = seconds(latency, "latency")
    if target <= 0:
        raise FlowError(f"latency={latency!r}; give a time above zero, such as '2 s'")
    return target


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)


def _sequential(plan: Plan, run: Run, epoch_rows: int, end: bool) -> Callable[[], None]:
    from penstock.local.reference import ReferenceRun

    reference = ReferenceRun(plan, epoch_rows, end, run._took_epoch)
    run._engine = reference
    run._results = lambda: {name: list(rows) for name, rows in reference.results.items()}
    return reference.run


def _threads(plan: Plan, run: Run, **options: Any) -> Callable[[], None]:
    from penstock.local.starting import make_engine

    engine = make_engine(plan, run._took_epoch, **options)
    run._engine = engine
    run._results = lambda: {name: list(rows) for name, rows in engine.results.items()}
    return engine.run
