"""The way into a worker: unpack the flow once, then run the task, over rows of a DataFrame or records of an RDD."""

from __future__ import annotations

import atexit
import gc
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, NoReturn

import pyarrow as pa

from penstock import errors
from penstock.clock import perf_counter, process_time, shared_time
from penstock.spark.envelope import Envelope, SharedFile, from_batch, from_frame, to_batch, to_frame
from penstock.spark.ship import unpack_plan
from penstock.spark.stages import EpochSpec, Stages
from penstock.spark.task import Task
from penstock.spark.worker_state import CACHE

_KEPT = 4
_stages: OrderedDict[bytes, Stages] = OrderedDict()


def run_on_batches(
    packed: bytes, spec: EpochSpec, level: int, batches: Iterable[pa.RecordBatch], timings: Any
) -> Iterator[pa.RecordBatch]:
    """Run a task whose envelopes are rows of a DataFrame."""
    arriving = _read_level_0(batches) if level == 0 else map(from_batch, batches)
    following = spec.following(level)
    return (to_batch(envelopes, following) for envelopes in _run(packed, spec, level, arriving, timings))


def _read_level_0(batches: Iterable[pa.RecordBatch]) -> Iterator[int | pa.RecordBatch]:
    """Return the numbers of the splits to read, or the rows of a DataFrame as they are."""
    for batch in batches:
        if batch.schema.names == ["id"]:
            yield from batch.column(0).to_pylist()
        else:
            yield batch


def run_on_frames(
    packed: bytes, spec: EpochSpec, level: int, arriving: Iterable[Any], timings: Any
) -> Iterator[tuple[int, memoryview]]:
    """Run a task whose envelopes are frames; return each with the task that it goes to next, or 0 for the driver."""
    if level > 0:
        arriving = ([from_frame(frame)] for frame in arriving)
    following, shared = spec.following(level), SharedFile(spec.shared)
    try:
        for envelopes in _run(packed, spec, level, arriving, timings):
            for envelope in envelopes:
                yield envelope.target % following, to_frame(by_file(envelope, shared))
    finally:
        shared.close()


def by_file(envelope: Envelope, shared: SharedFile) -> Envelope:
    """Put rows that another task is to have in the file of this one."""
    batch = envelope.payload
    return replace(envelope, payload=shared.put(batch)) if isinstance(batch, pa.RecordBatch) else envelope


def get_ready(packed: bytes, arriving: Iterable[Any]) -> None:
    """Load what the first task of a flow would load; nothing is worked on."""
    for _ in arriving:
        pass  # Spark ends a worker that has not read its input to the end
    stages = _load(packed)
    _ = stages.chains, stages.grids


def _load(packed: bytes) -> Stages:
    """Return the flow that a task is of, unpacked once."""
    stages = _stages.get(packed)
    if stages is None:
        bundle = unpack_plan(packed)
        errors.ROOTS.update(bundle.roots)
        stages = _stages[packed] = Stages(bundle.plan)
        for calling in stages.callings.values():
            if calling.has_client:
                at_worker_end(calling.close)
        while len(_stages) > _KEPT:
            _, old = _stages.popitem(last=False)
            for calling in old.callings.values():
                calling.close()
    return stages


def _run(packed: bytes, spec: EpochSpec, level: int, arriving: Iterable[Any], timings: Any) -> Iterator[list[Envelope]]:
    """Run one task of an epoch, or all levels where one task does."""
    from pyspark import TaskContext

    stages = _load(packed)
    context = TaskContext.get()
    number = context.partitionId() if context is not None else 0
    levels = range(stages.last + 1) if spec.solo else [level]
    for name, calling in stages.callings.items():
        calling.begin(1 if spec.solo else spec.tasks[stages.stage_of[name]])
    tasks = [Task(stages, spec, each, number) for each in levels]
    collecting = gc.isenabled()
    # Rows are many and short-lived, and the cycle collector would look at each of them again and again.
    gc.disable()
    began, wall, cpu = shared_time(), perf_counter(), process_time()
    try:
        for task in tasks:
            arriving = task.run(arriving)
        yield from arriving
        wall = perf_counter() - wall
        # By the clock of the wall too, so that the driver can tell when the tasks of a level were done.
        spent = {"wall": wall, "cpu": process_time() - cpu, "ended": began + wall}
        timings.add([{**task.timings(), **spent} for task in tasks])
        del tasks, arriving, task
        _PUT_ASIDE.after_task(CACHE.objects)
    finally:
        if collecting:
            gc.enable()


class PutAside:
    """Keep the cycle collector from looking at what stays: modules, flows, and the states of many keys.

    PySpark collects cycles after each task, and looks at every object for that: with what a flow imports as it goes on,
    longer than a small task takes, and the worker is not free before. A dict that got one new state is looked at as a
    whole: some 0.1 us for each key that it has. What is put aside is not looked at. Should it become rubbish in a
    cycle, it goes when all is looked at: ever more seldom, or every now and then where states are put aside, too.
    """

    MANY, EVERY = 100_000, 64
    """From so many keys on states are put aside after each task; all is looked at after so many."""

    def __init__(self) -> None:
        self._tasks, self._next = 0, 1

    def after_task(self, keys: int) -> None:
        """Put aside what is there by now; `keys` have states that are objects."""
        self._tasks += 1
        if self._tasks >= self._next or (keys >= self.MANY and self._tasks % self.EVERY == 0):
            while self._next <= self._tasks:
                self._next *= 4
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        elif keys >= self.MANY:
            gc.collect(1)  # what the task left is young
            gc.freeze()


_PUT_ASIDE = PutAside()


# What lives as long as a Python worker is closed when Spark lets the worker go. Neither `atexit` nor a signal tells:
# PySpark's daemon forks its workers, which end by `os._exit` once their socket is closed, and gives them back the
# default action of SIGHUP before each task, the signal that it sends to its process group when it goes itself. So a
# worker that has something to close leaves that group, sees its socket closed a moment later, as when the JVM dies, and
# closes on its way out. One that is killed closes nothing.
_closing: list[Callable[[], None]] = []


def at_worker_end(close: Callable[[], None]) -> None:
    _prepare(os.getpid())
    _closing.append(close)


@cache
def _prepare(_process: int) -> None:
    _closing.clear()  # what a process has that this one was forked from is not its own
    leave = os._exit

    def close_and_leave(status: int) -> NoReturn:
        _close()
        leave(status)

    os._exit = close_and_leave
    atexit.register(_close)  # where there is no daemon
    with suppress(OSError, AttributeError):
        os.setpgid(0, 0)


def _close() -> None:
    while _closing:
        _closing.pop()()
