"""Run a random flow the way a user does, with files that grow, stops and crashes, and hold it to what is meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume

import penstock as ps
from penstock.errors import PenstockError
from penstock.options import Options
from penstock.plan.plan import make_plan
from penstock.spark import engine as spark_engine
from penstock.spark.engine import SparkEngine
from penstock.spark.outputs import Outputs
from penstock.store.checkpoint import Checkpoint
from penstock.store.keeper import Keeper
from penstock.store.publication import Publication
from penstock.testing.kit import assert_same
from penstock.threads import engine as local_engine

from ..how import how
from .inline import InlineBackend
from .random_flows import Taken, Whole
from .random_steps import look
from .scratch import scratch

SECONDS = 120
"""After so long a run hangs."""
IDLE = 400
"""A source that has its rows at hand keeps nobody waiting so often."""


class Crash(Exception):
    """Stands for the end of a process."""


class Grown:
    """The directories of a flow's sources: half of what is followed is there at first, the rest comes later."""

    def __init__(self, drawn: Whole, directory: Path) -> None:
        self._later: list[Callable[[], None]] = []
        for number, origin in enumerate(drawn.origins):
            path = directory / f"s{number}"
            if origin.form is None:
                continue
            path.mkdir()
            count = len(origin.files(path))
            # On Spark the rest comes with the first epoch, so that there must be one; which of the files of one time
            # are in a batch is Spark's own choice, which it makes anew with every file that comes.
            some = max(count // 2, drawn.engine == "spark")
            stays = not origin.follows or (drawn.engine == "spark" and origin.tie > 1)
            first = count if stays else some
            for file in range(count):
                if file < first:
                    origin.write(path, file)
                else:
                    self._later.append(lambda origin=origin, path=path, file=file: origin.write(path, file))

    def more(self) -> bool:
        """Write one more file; False where all are there."""
        if self._later:
            self._later.pop(0)()
            return True
        return False


class Quiet(Event):
    """The word to stop, which is given when nothing is left to come: whoever waits for rows waits for this."""

    def __init__(self, grown: Grown, never_ends: bool, patience: int) -> None:
        super().__init__()
        self._grown, self._never_ends, self._patience, self._idle = grown, never_ends, patience, 0

    def wait(self, timeout: float | None = None) -> bool:
        self._idle += 1
        if self._grown.more():
            self._idle = 0
        elif self._never_ends and self._idle >= self._patience:
            self.set()
        elif self._idle > IDLE:
            raise AssertionError("the flow waits for rows, and none will come")
        return super().wait(min(timeout or 0.0, 0.002))


@contextmanager
def surroundings(drawn: Whole, grown: Grown) -> Iterator[None]:
    """Let engines stop when nothing comes."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch("os.fsync"))  # what crashes here is no machine
        if drawn.engine != "spark":
            # With order_by rows of one part wait for those of another, which comes with a later poll.
            polls = 1 + sum(len(origin.parts) for origin in drawn.origins)
            for module, patience in ((spark_engine, polls), (local_engine, max(4, polls))):
                made = lambda patience=patience: Quiet(grown, drawn.never_ends, patience)  # noqa: E731
                stack.enter_context(mock.patch.object(module, "Event", made))
        yield


class LoggedEngine(SparkEngine):
    """The engine, and what its epochs take."""

    log: dict[int, Taken]

    def _epoch(self, source: Any, taken: Any, began: float) -> None:
        rows = {name: _count(found) for name, found in taken.slices.items()}
        self.log[self._position.epoch + 1] = Taken(rows, tuple(taken.ends))
        super()._epoch(source, taken, began)


def _count(found: Any) -> int:
    if found.rows is not None:
        return int(found.rows)
    # Files of text that are taken whole.
    return sum(_file_rows(Path(split.path)) for split in found.splits)


def _file_rows(path: Path) -> int:
    lines = path.read_text().splitlines()
    return len(lines) - (not lines[0].startswith("{"))


_STEPS: dict[str, tuple[Any, str, bool]] = {
    "before the intent": (Checkpoint, "write_intent", True),
    "before the job": (InlineBackend, "run", True),
    "after the job": (InlineBackend, "run", False),
    "before the sinks": (Outputs, "deliver", True),
    "after the sinks": (Outputs, "deliver", False),
    "after the commit": (Checkpoint, "commit", False),
    "before the directories": (Publication, "publish", True),
    "after the directories": (Publication, "publish", False),
    "after all": (Keeper, "commit", False),
}


@contextmanager
def crashing(step: str | None, after: int) -> Iterator[None]:
    """Crash at a step of the epoch of this number, counted from the start of the run."""
    if step not in _STEPS:
        yield
        return
    owner, name, before = _STEPS[step]
    original, calls = getattr(owner, name), 0

    def crash(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == after and before:
            raise Crash
        result = original(*arguments, **options)
        if calls == after:
            raise Crash
        return result

    with mock.patch.object(owner, name, crash):
        yield


def run_inline(drawn: Whole, directory: Path, grown: Grown) -> tuple[dict[str, list[Any]], list[Taken]]:
    """Run a flow on the Spark engine in this process, life after life."""
    keep, log = len(drawn.lives) > 1, dict[int, Taken]()
    for number, life in enumerate(drawn.lives):
        plan = make_plan(drawn.flow(directory, keep=keep))
        backend = InlineBackend(life.tasks, drawn.seed + number)
        engine = LoggedEngine(
            plan,
            backend,
            Options(on=ps.Spark(tasks=life.tasks, epoch_rows=life.epoch_rows), checkpoint=str(directory / "ck")),
        )
        engine.log = log
        if life.ends == "stop":
            engine._listener = _stop_after(life.after, engine.stop)
        try:
            with crashing(life.ends, life.after):
                engine.run()
        except Crash:
            continue
    if keep:
        results = read_sinks(drawn, directory)
    else:
        assert engine.outputs is not None
        results = dict(engine.outputs.results)
    return results, [log[number] for number in sorted(log)]


def _stop_after(count: int, stop: Callable[[], None]) -> Callable[[Any], None]:
    seen = [0]

    def listen(stats: Any) -> None:
        seen[0] += 1
        if seen[0] == count:
            stop()

    return listen


def read_sinks(drawn: Whole, directory: Path, session: Any = None) -> dict[str, list[Any]]:
    """Read directories as anyone would: epochs by name, files by name, rows as they stand."""
    results = {}
    for node in make_plan(drawn.flow(directory, keep=False, session=session)).sinks:
        files = sorted((directory / "sinks" / node.name).glob("epoch=*/*.parquet"))
        tables = [pq.ParquetFile(path).read() for path in files]
        results[node.name] = pa.concat_tables(tables).to_pylist() if tables else []
    return results


def run_public(drawn: Whole, directory: Path) -> dict[str, list[Any]]:
    """Run a flow on an engine of this process."""
    options = dict(drawn.settings) if drawn.engine == "threads" else {"epoch_rows": drawn.lives[0].epoch_rows}
    if options.get("model") in ("manual", "dedicated"):
        options.pop("threads")
    if options.get("model") == "manual":
        options.pop("replicas"), options.pop("partitioned")
    run = ps.start(drawn.flow(directory, keep=False), **how(drawn.engine, **options))  # type: ignore[arg-type]
    if not run.await_end(SECONDS):
        run.stop()
        raise AssertionError("the flow hangs")
    return run.results


class Watch:
    """Stops a run on Spark: behind an epoch that was drawn, or when all that can come is in."""

    def __init__(self, wanted: int | None, grown: Grown) -> None:
        self._wanted, self._grown, self._rows = wanted, grown, 0
        self._epochs, self._most, self._run, self._started = 0, 0, None, Event()

    @property
    def done(self) -> bool:
        """Tell whether all rows are in."""
        return self._wanted is not None and self._rows >= self._wanted

    def begin(self, epochs: int | None) -> None:
        """Watch another run."""
        self._epochs, self._most = 0, epochs or 1 << 40
        self._started.clear()

    def began(self, run: Any) -> None:
        """Take the run that is watched."""
        self._run = run
        self._started.set()

    def epoch(self, stats: Any) -> None:
        """Take what an epoch did."""
        self._rows, self._epochs = self._rows + stats.rows_in, self._epochs + 1
        while self._grown.more():
            pass
        if self.done or self._epochs >= self._most:
            self._started.wait(SECONDS)
            self._run.stop()


def run_on_spark(drawn: Whole, directory: Path, grown: Grown, session: Any) -> dict[str, list[Any]]:
    """Run a flow on Spark, life after life; one that never ends is stopped when all that can come is in."""
    keep = len(drawn.lives) > 1
    wanted = sum(what != "end" for what, *_ in drawn.sequence([])) if drawn.never_ends else None
    assume(wanted != 0)  # nobody could tell when nothing has come
    watch, run = Watch(wanted, grown), None
    for life in drawn.lives:
        if watch.done:
            break
        watch.begin(life.after if life.ends else None)
        with mock.patch("penstock.spark.starting.check_names"):  # those that Penstock gives are the same each time
            run = ps.start(
                drawn.flow(directory, keep=keep, session=session),
                on=ps.Spark(session, tasks=life.tasks, epoch_rows=life.epoch_rows),
                checkpoint=str(directory / "ck") if keep else None,
                on_epoch=watch.epoch,
            )
        watch.began(run)
        if not run.await_end(SECONDS):
            run.stop()
            raise AssertionError("the flow hangs")
    assert run is not None
    return read_sinks(drawn, directory, session) if keep else run.results


def plain(results: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Make dicts of rows, as they are read from files."""
    return {
        name: [row if isinstance(row, dict) else dict(zip(row._fields, row, strict=True)) for row in rows]
        for name, rows in results.items()
    }


def check(drawn: Whole, session: Any = None) -> None:
    """Hold a flow, run as it was drawn, to what is meant."""
    with scratch() as path:
        directory = Path(path)
        grown = Grown(drawn, directory)
        log: list[Taken] = []
        found: dict[str, list[Any]] | str
        with surroundings(drawn, grown):
            try:
                if drawn.engine == "inline":
                    found, log = run_inline(drawn, directory, grown)
                elif drawn.engine == "spark":
                    found = run_on_spark(drawn, directory, grown, session)
                else:
                    found = run_public(drawn, directory)
            except PenstockError as error:
                found = f"{type(error).__name__}: {error}"
        expected = drawn.expected(drawn.flow(directory, keep=False, session=session), log)
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected, f"expected {expected}\nfound {found}"
    else:
        assert_same(plain(expected), plain(found))
        look(plain(found))
