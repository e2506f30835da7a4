"""The loop of a run on Spark: take what is new, run it as one epoch, commit, and go on."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from threading import Event, Lock
from typing import Any

from penstock.clock import monotonic, shared_time, time_of_day, waiting_time
from penstock.connectors.interfaces import Feed
from penstock.elastic.decisions import Decision
from penstock.errors import CheckpointError, PenstockError, StorageError
from penstock.kernels.failures import first_failure
from penstock.options import Options, Spark
from penstock.plan.plan import Plan
from penstock.rows.records import Row
from penstock.rows.timing import BEFORE, seconds
from penstock.run import Change, Engine, SetTable, SetTasks, SetThreads
from penstock.spark.frames import check_frame, is_streaming
from penstock.spark.input import IDLE_SECONDS, EpochInput, RunInput, materialised
from penstock.spark.job import Backend, JobLost
from penstock.spark.measured import describe_epoch, epoch_split, stage_seconds
from penstock.spark.outputs import Outputs, memory_sinks
from penstock.spark.parts import TaskReport
from penstock.spark.pilot import EpochPilot, UserLimits
from penstock.spark.stages import EpochSpec, Stages, StatePointers, check_table, shard_count, slice_bounds
from penstock.spark.staging import is_staged, staged_plan
from penstock.statistics import FlowStats
from penstock.steps import step
from penstock.store.checkpoint import Checkpoint, Position, ShardIndex
from penstock.store.identity import identity_of
from penstock.store.keeper import Keeper

FULL_OFFSETS_EVERY = 50
CLEAN_EVERY = 10
ATTEMPTS = 3
"""How often an epoch is run, at most, when Spark loses its job or a file fails."""
RETRY_SECONDS = 1.0
"""The wait before an epoch is run again because a file failed, times the attempts so far."""
_running: list[str] = []
"""The flows that run in this process, by what names them in workers' caches."""


class SparkEngine(Engine):
    """Run a plan on Spark, epoch by epoch."""

    changes = frozenset({SetTasks, SetThreads, SetTable})

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        options: Options,
        listener: Callable[[FlowStats], None] = lambda stats: None,
        *,
        forget: bool = False,
    ) -> None:
        """Make the engine; with `forget` the checkpoint is removed at the end."""
        assert isinstance(options.on, Spark)
        assert options.directory is not None
        self._options, self._listener, self._backend, self._forget = options, listener, backend, forget
        self._on, self._path = options.on, options.directory
        self._every = seconds(options.on.every, "every")
        self._checkpoint = Checkpoint(self._path)
        self._keeper = Keeper(self._checkpoint)
        for node in filter(is_streaming, plan.sources):
            check_frame(node)
        self._plan = self._framed = plan
        self._threads = self._on.threads or backend.task_cores
        self._stop = Event()
        self._control = Lock()
        self._tasks = self._on.tasks
        """What the user set, None where that is nothing."""
        self._asked: list[Future[int]] = []
        """Done in the first epoch that has what was asked for."""
        self._over = False
        self._pilot: EpochPilot | None = None
        self._wanted_tables: dict[str, list[int]] = {}
        self._position = Position()
        self._input: RunInput | None = None
        self._now: Callable[[], float] = waiting_time
        """The wall clock, for parts of sources that are silent."""
        self._time_of_day: Callable[[], float] = time_of_day
        """For rows whose time is when they arrive."""
        self._whole = True
        """Whether the position is what was committed: not while an epoch is being committed."""
        self._driver_seconds = (0.0, 0.0)
        """What the last epoch took here: publishing its sinks, and the commit."""
        self._done = FlowStats()
        self._told: set[str] = set()
        self.outputs: Outputs | None = None

    @property
    def results(self) -> dict[str, list[Row]]:
        return {node.name: [] for node in memory_sinks(self._plan)} if self.outputs is None else self.outputs.results

    def decisions_since(self, known: int) -> tuple[list[Decision], int]:
        return ([], known) if self._pilot is None else self._pilot.journal.decisions_since(known)

    def statistics(self) -> FlowStats:
        return self._done

    # Control, from any thread -----------------------------------------------------------------------------------

    def ask(self, change: Change) -> Future[int]:
        match change:
            case SetTasks(tasks):
                self.set_tasks(tasks)
            case SetThreads(threads):
                self.set_threads(threads)
            case SetTable(operator, table):
                self.set_table(operator, table)
            case _:
                return super().ask(change)
        done: Future[int] = Future()
        self._asked.append(done)
        if self._over:
            done.cancel()
        return done

    def set_tasks(self, tasks: int) -> None:
        """Set the number of tasks of the keyed stages from the next epoch on."""
        if tasks < 1:
            raise PenstockError(f"a stage needs at least one task, not {tasks}")
        with self._control:
            if tasks != self._tasks:
                self._wanted_tables.clear()  # they were for another number of tasks
            self._tasks = tasks

    def set_threads(self, threads: int) -> None:
        """Set the number of threads of a task from the next epoch on."""
        if threads < 1:
            raise PenstockError(f"a task needs at least one thread, not {threads}")
        self._threads = threads

    def set_table(self, operator: str, table: list[int]) -> None:
        """Set which task holds each shard of an operator from the next epoch on."""
        with self._control:
            # A table names tasks, so that who sets one sets their number too: as many as there are cores by now.
            tasks = self._tasks or self._backend.cores
            check_table(self._plan, operator, table, tasks)
            self._tasks = tasks
            self._wanted_tables[operator] = list(table)

    def stop(self) -> None:
        self._stop.set()

    # The loop ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        step("opening the checkpoint" if not self._forget else "preparing the first epoch", checkpoint=self._path)
        self._keeper.acquire()
        try:
            self._open()
            feeds, clocks = self._feeds(), {"now": self._now, "time_of_day": self._time_of_day}
            self._input = RunInput(self._framed, self._plan, feeds, self._keeper, self._position, self._path, **clocks)
            self._input.start(self._every)
            try:
                self._loop(self._input)
            except Exception:
                self._roll_rest()
                raise
            self._keeper.roll(self._position, None)
        except CheckpointError:
            self._keeper.lease.check()  # what is missing may have been cleaned away by a driver that took over
            raise
        finally:
            if self._input is not None:
                self._input.close()
            self._backend.close()
            self._keeper.release()
            if self._keeper.id in _running:
                _running.remove(self._keeper.id)
            self._over = True
            for done in self._asked:
                done.cancel()
            if self._forget:
                shutil.rmtree(self._path, ignore_errors=True)

    def _roll_rest(self) -> None:
        """Make visible what is committed, though the run has failed; where that fails, too, the next one does it."""
        if self._whole:
            with suppress(PenstockError):
                self._keeper.roll(self._position, None)

    def _open(self) -> None:
        self._framed = self._plan
        if is_staged(self._plan):
            self._plan = staged_plan(self._plan, self._path)
        self._plan = materialised(self._plan, self._keeper, self._path)
        self._stages = Stages(self._plan)
        self.outputs = Outputs(self._plan, self._checkpoint, self._backend.session)
        self._position = self._keeper.open(identity_of(self._plan), self.outputs.publication(), self.outputs.accept)
        self._position.marks = {node.name: BEFORE for node in self._plan.sources} | self._position.marks
        _running.append(self._keeper.id)
        self.outputs.claim(self._keeper.id, self._position.epoch)
        self._backend.prepare(self._stages)
        position, limits = self._position, self._limits()
        known = limits.tasks is None or position.tasks == limits.tasks
        self._pilot = EpochPilot(
            self._stages,
            limits,
            cores=self._backend.cores,
            executors=self._backend.executors,
            tables=position.tables if known else {},
            epoch=position.epoch,
        )

    def _feeds(self) -> dict[str, Feed]:
        """Make the feeds of what tasks read themselves."""
        counted = self._plan.layout.sequence != "own"
        streaming = {node.name for node in filter(is_streaming, self._framed.sources)}
        return {
            node.name: node.operator.reader.feed(node.name, monotonic, counted=node.types[0] if counted else None)
            for node in self._plan.sources
            if node.name not in streaming
        }

    def _tell_once(self, text: str) -> None:
        """Say what the run does until its first epoch is out."""
        if not self._done.epochs and text not in self._told:
            self._told.add(text)
            step(text)

    def _limits(self) -> UserLimits:
        with self._control:
            return UserLimits(
                self._tasks, dict(self._wanted_tables), self._on.epoch_rows, self._every, self._options.target
            )

    def _loop(self, source: RunInput) -> None:
        assert self._pilot is not None
        pending = self._keeper.pending(self._position.epoch + 1)
        while not self._stop.is_set():
            began = monotonic()
            taken = (
                source.take(self._pilot.epoch_rows, self._options.end) if pending is None else source.replay(pending)
            )
            if taken is None:
                if source.exhausted():
                    return
                self._tell_once("waiting for the first rows")
                self._backend.keep_ready()
                self._keeper.roll(self._position, IDLE_SECONDS)
                self._stop.wait(IDLE_SECONDS)
                continue
            if pending is None:
                self._keeper.begin(self._position.epoch + 1, taken.intent())
            pending = None
            self._tell_once(f"epoch {self._position.epoch + 1}, the first of this run: its Python workers start")
            self._epoch(source, taken, began)
            # What Penstock chose is for rows that are still to come; what the user set is for them to say.
            every = self._every if source.exhausted() else self._pilot.every
            wait = every - (monotonic() - began)
            if wait > 0:
                self._stop.wait(wait)
            # Only now does Spark cut the next batch, so that it has what came during the wait.
            source.give_back(taken, keep=True)

    # One epoch --------------------------------------------------------------------------------------------------

    def _epoch(self, source: RunInput, taken: EpochInput, began: float) -> None:
        spec = self._spec(source, taken)
        started, started_at = monotonic(), shared_time()
        try:
            outcome, attempts = self._attempt(spec, taken)
            job_seconds = monotonic() - started
            if outcome.failures:
                raise first_failure(self._plan, outcome.failures).error
            counts = self._commit(spec, source, taken, outcome)
            if self._every or self._options.latency is None:
                # Nothing is to be waited for, or the query has its own interval: Spark goes on while this is measured.
                source.give_back(taken, keep=True)
        except BaseException:
            source.give_back(taken, keep=False)
            raise
        if source.goes_on(taken) or (taken.slices and self._done.epochs):
            self._backend.keep_ready()  # not before: the first rows are not to wait for what comes after them
        seconds = monotonic() - began
        stats = self._stats(spec, taken, outcome, counts, seconds, job_seconds, started_at, attempts)
        assert self._pilot is not None
        self._pilot.observe(stats)
        self._done = self._done.plus(stats)
        self._listener(stats)

    def _spec(self, source: RunInput, taken: EpochInput) -> EpochSpec:
        position, plan, pilot = self._position, self._plan, self._pilot
        assert pilot is not None
        source.begin(taken)
        asked, self._asked = self._asked, []  # before what they asked for is read
        limits, epoch, mixed = self._limits(), position.epoch + 1, len(taken.handed) + bool(taken.slices) > 1
        cores, ready = self._backend.cores, self._backend.ready
        setup = pilot.choose(limits, taken.rows, cores, epoch, at=monotonic(), mixed=mixed, ready=ready)
        for done in asked:
            done.set_result(position.epoch + 1)
        if not setup.solo:
            position.tables, position.tasks = setup.tables, max(setup.tasks[1:])
        tables = {node.name: [0] * shard_count(node) for node in plan.keyed} if setup.solo else setup.tables
        slices: dict[str, list[int]] = {
            node.name: []
            if taken.handed
            else slice_bounds(plan, node, taken.slices, setup.tasks[self._stages.stage_of[node.name]])
            for node in plan.sinks
        }
        every_table = {name: tuple(table) for name, table in tables.items()}
        every_table.update({name: tuple(range(len(bounds) + 1)) for name, bounds in slices.items()})
        groups: list[list[tuple[str, Any]]] = []
        for name, found in taken.slices.items():
            cut = source.cut(name, found, setup.tasks[0])
            groups += [[(name, split) for split in group] for group in cut]
        if setup.solo:
            groups = [[pair for group in groups for pair in group]]
        tasks = [self._stage_tasks(stage, every_table) for stage in range(self._stages.last + 1)]
        return EpochSpec(
            epoch=position.epoch + 1,
            tasks=tuple(tasks),
            tables=every_table,
            slices={name: tuple(b) for name, b in slices.items()},
            splits=tuple(tuple(group) for group in groups) or ((),),
            marks=copy.deepcopy(source.marks),
            ends=taken.ends,
            state={name: StatePointers.of(index, epoch) for name, index in position.state.items()},
            checkpoint=self._path,
            flow_id=self._keeper.id,
            running=frozenset(_running),
            sink_schemas={name: bytes.fromhex(data) for name, data in position.sink_schemas.items()},
            fence=self._keeper.fence,
            in_flight=setup.in_flight,
            threads=self._threads,
            name_keys=self._options.name_keys,
            solo=setup.solo,
            now=taken.now or 0,
            clocks=source.clocks,
            contents=taken.tables,
            batches={name: handed.places for name, handed in taken.handed.items()},
        )

    def _stage_tasks(self, stage: int, tables: dict[str, tuple[int, ...]]) -> int:
        return max((max(tables[node.name]) + 1 for node in self._stages.entries(stage)), default=1)

    def _attempt(self, spec: EpochSpec, taken: EpochInput) -> tuple[TaskReport, int]:
        """Run the job; run it again where Spark lost it, or where a file failed: nothing of it is visible yet."""
        for attempt in range(1, ATTEMPTS + 1):
            last = attempt == ATTEMPTS or self._stop.is_set()
            times = "" if attempt == 1 else f", run {attempt} times"
            try:
                outcome = self._backend.run(spec, [handed.frame for handed in taken.handed.values()])
            except JobLost as error:
                if last:
                    raise PenstockError(f"epoch {spec.epoch}: Spark's job failed {attempt} times: {error}") from None
                continue
            # What else failed is not believed then: an operator may have missed rows that were not read.
            files = [failure.error for failure in outcome.failures if isinstance(failure.error, StorageError)]
            if not files:
                return outcome, attempt
            final = [error for error in files if error.final]
            if last or final:
                failed = (final or files)[0]
                what = f"epoch {spec.epoch}{times}: {failed.what}"
                raise StorageError(what, failed.path, failed.attempts, failed.error, failed.fix, failed.final)
            self._stop.wait(RETRY_SECONDS * attempt)
        raise AssertionError("an epoch is attempted at least once")

    def _commit(self, spec: EpochSpec, source: RunInput, taken: EpochInput, outcome: TaskReport) -> dict[str, int]:
        """Make the epoch's state the truth and its rows visible."""
        position, outputs = self._position, self.outputs
        assert outputs is not None
        self._whole, began = False, monotonic()
        counts = outputs.count(outcome.parts)
        outputs.check_claims(self._keeper.id, outcome.parts)
        for name, blocks in outcome.state:
            for operator, shard, full, size, keys, timer in blocks:
                position.state.setdefault(operator, ShardIndex()).add(name, shard, full, size, keys, timer)
        position.epoch = spec.epoch
        position.batches.update({name: handed.batch for name, handed in taken.handed.items()})
        source.raise_marks(taken, outcome.marks)
        position.ended += [name for name in taken.ends if name not in position.ended]
        position.rows_in += sum(outcome.rows_in.get(node.name, 0) for node in self._plan.sources)
        for part in outcome.parts:
            if part.schema is not None:
                position.sink_schemas[part.sink] = part.schema.hex()
        full = spec.epoch % FULL_OFFSETS_EVERY == 1
        delivered = began

        def deliver() -> None:
            nonlocal delivered
            outputs.deliver(spec.epoch, spec.fence, outcome.parts)
            delivered = monotonic()

        files, every = outputs.files(outcome.parts), 0.0 if self._pilot is None else self._pilot.every
        self._keeper.commit(position, source.offsets(taken, full), full, counts, deliver, files, every)
        self._whole = True
        outputs.keep(outcome.parts)
        if spec.epoch % CLEAN_EVERY == 0:
            self._keeper.clean(position)
            if source.staging is not None:
                source.staging.clean()
        self._driver_seconds = (delivered - began, monotonic() - delivered)
        return counts

    def _stats(
        self,
        spec: EpochSpec,
        taken: EpochInput,
        outcome: TaskReport,
        counts: dict[str, int],
        seconds: float,
        job_seconds: float,
        started_at: float,
        attempts: int,
    ) -> FlowStats:
        frames = None if self._input is None else self._input.frames
        waiting = [found.backlog for found in taken.slices.values()]
        return replace(
            describe_epoch(self._plan, spec, outcome, self._position.state),
            at=monotonic(),
            seconds=seconds,
            rows_out=counts,
            backlog=sum(each or 0 for each in waiting) if waiting else None,
            knows_backlog=None not in waiting and not taken.handed,
            job_seconds=job_seconds,
            attempts=attempts,
            split=epoch_split(outcome.timings, seconds, *self._driver_seconds),
            stage_seconds=stage_seconds(outcome.timings, started_at, job_seconds),
            # Only what is paced against a target needs to know, and asking takes longer than counting an epoch's rows.
            between=0.0 if frames is None or self._options.latency is None else frames.spark_seconds(),
        )
