"""Rows whose time is when they arrive: windows and timers by the time of day, as ingress logs it."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import FlowError
from penstock.options import Options
from penstock.plan.plan import make_plan
from penstock.sequential import SequentialEngine
from penstock.spark.engine import SparkEngine
from penstock.testing.kit import assert_same
from penstock.threads.element import Settings
from penstock.threads.engine import LocalEngine, LocalOptions

from ..in_turn import few_of
from .inline import Arriving, CutFeed, InlineBackend

KIND = {"k": int, "n": int, "at": dt.datetime}
BEGAN = 1_700_000_000
Log = list[tuple[int, dict[str, list[Any]]]]
"""What ingress logs: a moment, and the rows of each source that arrive then."""


class Clock:
    """A time of day that goes on by some seconds whenever somebody looks; now and then it is set back."""

    def __init__(self, seed: int) -> None:
        self._random, self._now = random.Random(seed), float(BEGAN)

    def __call__(self) -> float:
        self._now += self._random.choice([0, 0.25, 0.5, 1, 3, -1])
        return self._now


class Quiet(ps.Process):
    """Say when a key had no row for two seconds, and how many rows it has had."""

    def on_row(self, row: Any, context: ps.ProcessContext) -> None:
        count, due = context.state or (0, None)
        if due is not None:
            context.cancel_timer(due)
        context.state = (count + 1, context.set_timer(context.time + dt.timedelta(seconds=2)))

    def on_timer(self, time: Any, context: ps.ProcessContext) -> None:
        context.emit((context.key, context.state[0], str(time)))
        context.state = (context.state[0], None)


def flow_of(sources: dict[str, Any], sink: Any = None) -> ps.Flow:
    """Count in windows, wait for quiet keys, and join the last two sources where there are several."""
    flow = ps.Flow("arrivals")
    streams = [flow.source(name, reader, time=ps.arrival) for name, reader in sources.items()]
    whole = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    counts = whole.key_by("k").window("2 s").aggregate(rows=ps.agg.collect("n"), name="windows")
    counts.late.sink("late")
    counts.sink("counts", sink)
    whole.key_by("k").process(Quiet, name="waiting").sink("quiet")
    whole.key_by("k").window(ps.session("1 s")).count(name="in sessions").sink("sessions")
    if len(streams) > 1:
        joined = streams[0].join(streams[1], on="k", within="1 s", how="left", combine=pair, name="close")
        joined.sink("joined")
    return flow


def beside(sources: dict[str, Any], sink: Any = None) -> ps.Flow:
    """Go by event time and by the time of day in one flow: apart, one after the other, and together again."""
    flow = ps.Flow("arrivals")
    streams = [flow.source(name, reader, time="at", slack="1 s") for name, reader in sources.items()]
    whole = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    keyed = whole.key_by("k")
    counts = keyed.window("2 s", by=ps.arrival).aggregate(rows=ps.agg.collect("n"), name="windows")
    counts.sink("counts", sink)
    by_event = keyed.window("2 s").aggregate(rows=ps.agg.collect("n"), name="by event")
    by_event.late.sink("late")
    counts.union(by_event, name="together").sink("both")
    keyed.process(Quiet, name="waiting", by=ps.arrival).sink("quiet")
    keyed.process(Quiet, name="waiting by event").sink("quiet by event")
    keyed.window(ps.session("1 s"), by=ps.arrival).count(name="in sessions").sink("sessions")
    counts.key_by("k").window("4 s").count(name="after windows").sink("after")
    by_event.key_by("k").window("4 s", by=ps.arrival).count(name="after events").sink("events after")
    mixed = counts.map(lambda row: row.k).union(whole.map(lambda row: row.k), name="mixed")
    mixed.window("3 s").apply(lambda window, rows: (str(window.start), rows), name="in mixed").sink("mixed windows")
    keyed.process(Quiet, name="forgetful", by=ps.arrival, ttl="1 s").sink("forgotten")
    if len(streams) > 1:
        left, right = (stream.key_by("k") for stream in streams)
        left.connect(right, Both, name="connected", by=ps.arrival).sink("of both")
    return flow


class Both(ps.Process):
    """Tell what came last from the right within a second of the day."""

    def on_left(self, row: Any, context: ps.ProcessContext) -> None:
        context.emit((row.n, context.state, str(context.time)))

    def on_right(self, row: Any, context: ps.ProcessContext) -> None:
        context.state = row.n
        context.set_timer(context.time + dt.timedelta(seconds=1))

    def on_timer(self, time: Any, context: ps.ProcessContext) -> None:
        context.state = None


Making = Callable[..., ps.Flow]
FLOWS = pytest.mark.parametrize("making", [flow_of, beside])


def pair(left: Any, right: Any) -> tuple[int, int | None]:
    return (left.n, right and right.n)


def expected(making: Making, sources: dict[str, Any], log: Log, end: bool = True) -> dict[str, list[Any]]:
    """Run what was logged, row by row."""
    engine = SequentialEngine(make_plan(making(sources)))
    for now, arrived in log:
        engine.clock(now)
        for name in sources:
            for each in arrived.get(name, ()):
                kind = engine.plan.nodes[name].types[0]
                assert kind is not None
                engine.row(name, kind.roundtrip(each))
    for name in sources if end else ():
        engine.end(name)
    return engine.results


def drawn(seed: int, names: str) -> dict[str, list[list[Any]]]:
    """Draw what each source gives when it is asked: often nothing."""
    draw, numbers = random.Random(seed), itertools.count()
    return {
        name: [[row(draw, next(numbers)) for _ in range(draw.choice([0] * 8 + [1, 2, 5, 5, 40]))] for _ in range(25)]
        for name in names
    }


def row(draw: random.Random, number: int) -> dict[str, Any]:
    """Make a row whose event time has nothing to do with when it arrives, and may be late."""
    at = dt.datetime.fromtimestamp(BEGAN + number * 0.25 + draw.choice([0, 0, 0.5, -2]), dt.UTC)
    return {"k": draw.randrange(3), "n": number, "at": at}


@FLOWS
@pytest.mark.parametrize("names", ["a", "ab"])
@pytest.mark.parametrize("seed", few_of(range(4), 2))
def test_on_the_spark_engine(tmp_path: Path, seed: int, names: str, making: Making) -> None:
    given, log = drawn(seed, names), Log()
    sources = {name: going(epochs) for name, epochs in given.items()}
    engine = SparkEngine(
        make_plan(making(sources)),
        InlineBackend(3, seed, 2),
        Options(on=ps.Spark(tasks=3), checkpoint=str(tmp_path / "ck")),
    )
    engine._feeds = lambda: {name: CutFeed(epochs, 2) for name, epochs in given.items()}  # type: ignore[method-assign,misc]
    engine._time_of_day, backend_run = Clock(seed), engine._backend.run

    def running(spec: Any, frames: Any) -> Any:
        log.append((spec.now, {name: rows_of(spec, name) for name in names}))
        return backend_run(spec, frames)

    engine._backend.run = running  # type: ignore[method-assign]
    engine.run()
    assert engine.outputs is not None
    assert any(not any(arrived.values()) for _, arrived in log[:-1])  # some epochs were for the time of day alone
    assert_same(dict(engine.outputs.results), expected(making, sources, log))


def going(epochs: list[list[Any]]) -> Arriving:
    """Make a source whose rows come with time."""
    return Arriving(list(itertools.chain(*epochs)), KIND)


def rows_of(spec: Any, name: str) -> list[Any]:
    import pickle

    splits = [split for group in spec.splits for source, split in group if source == name]
    return [row for split in sorted(splits, key=lambda each: each.start) for row in pickle.loads(split.payload)]


@FLOWS
@pytest.mark.parametrize("names", ["a", "ab"])
@pytest.mark.parametrize("seed", few_of(range(4), 2))
def test_on_threads(seed: int, names: str, making: Making) -> None:
    given, log = drawn(seed, names), Log()
    sources = {name: going(epochs) for name, epochs in given.items()}
    engine = LocalEngine(make_plan(making(sources)), LocalOptions(2, settings=Settings(workers=2, partitions=3)))
    engine._feeds = lambda: {name: CutFeed(epochs, 2) for name, epochs in given.items()}  # type: ignore[method-assign,misc]
    engine._brakes.active = False
    cutter = engine._cutter
    cutter.time_of_day, made = Clock(seed), cutter._made

    def noting(pieces: Any, ends: Any) -> Any:
        cut = made(pieces, ends)
        log.append((cutter._now, {each.name: each.chunk.get_rows() for each in pieces}))
        return cut

    cutter._made = noting  # type: ignore[method-assign]
    engine.run()
    ends = log.pop() if not any(log[-1][1].values()) else None
    results = expected(making, sources, [*log, *([ends] if ends else [])])
    assert_same(dict(engine.results), results)


def test_by_hand() -> None:
    at = BEGAN * 1_000_000
    engine = SequentialEngine(make_plan(flow_of({"a": ps.read.items([], schema=KIND)})))
    kind = engine.plan.nodes["a"].types[0]
    assert kind is not None
    for seconds, numbers in [(0.5, [1, 2]), (1.5, [3]), (1.2, [4]), (2, []), (2.5, [5])]:
        engine.clock(at + int(seconds * 1_000_000))
        for n in numbers:
            engine.row("a", kind.roundtrip({"k": 0, "n": n, "at": None}))
    assert [row.rows for row in engine.results["counts"]] == [[1, 2, 3, 4]]
    engine.clock(at + 4_499_999)
    assert engine.results["quiet"] == []
    engine.clock(at + 4_500_000)
    assert engine.results["quiet"] == [(0, 5, str(dt.datetime.fromtimestamp(BEGAN + 4.5, dt.UTC)))]


class Crash(Exception):
    """Stands for the end of a process."""


@FLOWS
@pytest.mark.parametrize("seed", range(3))
def test_an_epoch_that_is_run_again_has_the_same_time(tmp_path: Path, seed: int, making: Making) -> None:
    """Each life ends before or after some commit; the clock of the next may even be behind."""
    draw = random.Random(seed)
    rows = [row(draw, n) for n in range(30)]
    reader = ps.read.items(rows, schema=KIND)
    seen: dict[int, tuple[int, dict[str, list[Any]]]] = {}
    ended = False
    while not ended:
        flow = making({"a": reader}, ps.write.parquet(str(tmp_path / "out")))
        engine = SparkEngine(
            make_plan(flow),
            InlineBackend(2, seed),
            Options(on=ps.Spark(tasks=2, epoch_rows=3), checkpoint=str(tmp_path / "ck")),
        )
        engine._time_of_day = Clock(draw.randrange(99))
        ended = run_for_a_while(engine, draw, seen)
    log = [seen[epoch] for epoch in sorted(seen)]
    assert [now for now, _ in log] == sorted(now for now, _ in log)
    found = [row["rows"] for path in sorted((tmp_path / "out").glob("epoch=*/*.parquet")) for row in read_rows(path)]
    assert found == [list(row.rows) for row in expected(making, {"a": reader}, log)["counts"]]


def run_for_a_while(engine: SparkEngine, draw: random.Random, seen: dict[int, Any]) -> bool:
    """Run some epochs, noting what each sees; tell whether that was the end."""
    backend_run, commit, left = engine._backend.run, engine._commit, draw.randint(1, 3)
    crashes, over = draw.random() < 0.6, False

    def running(spec: Any, frames: Any) -> Any:
        nonlocal over
        here = (spec.now, {"a": rows_of(spec, "a")})
        assert seen.setdefault(spec.epoch, here) == here
        over = bool(spec.ends)
        return backend_run(spec, frames)

    def committing(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and crashes:
            raise Crash
        if left == 0:
            engine.stop()
        return commit(*arguments)

    engine._backend.run = running  # type: ignore[method-assign]
    engine._commit = committing  # type: ignore[method-assign]
    with contextlib.suppress(Crash):
        engine.run()
        return over
    return False


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    yield from pq.read_table(path, partitioning=None).to_pylist()


def test_refusals() -> None:
    reader = ps.read.items([{"at": 1}])
    for options, problem in [
        ({"slack": "1 s"}, "slack='1 s' is for times"),
        ({"idle_after": 3}, "idle_after=3 is for"),
    ]:
        with pytest.raises(FlowError, match=problem):
            ps.Flow("f").source("in", reader, time=ps.arrival, **options)
    stream = ps.Flow("f").source("a", reader, time="at")
    with pytest.raises(FlowError, match="by='at'; leave it out for event time"):
        stream.window(2, by="at").count()  # type: ignore[arg-type]
    with pytest.raises(FlowError, match="a count window without ttl= goes by no time"):
        stream.window(ps.count_window(2), by=ps.arrival).count()
    with pytest.raises(FlowError, match="is a bare number, but the time field is a timestamp"):
        stream.window(2, by=ps.arrival).count()
    with pytest.raises(FlowError, match="the rows of 'daily' have the time of day"):
        stream.merge(stream.window("1 day", by=ps.arrival).count(name="daily"), by="at")


def test_a_checkpoint_by_another_time_is_refused(tmp_path: Path) -> None:
    reader = ps.read.items([{"at": 1}])

    def engine_for(time: Any) -> SparkEngine:
        flow = ps.Flow("f").source("in", reader, time=time).sink("out")
        return SparkEngine(make_plan(flow), InlineBackend(1, 0), Options(on=ps.Spark(), checkpoint=str(tmp_path)))

    engine_for(ps.arrival).run()
    other = engine_for(None)
    with pytest.raises(ps.CheckpointError, match=r"had time='ps.arrival' .* and now has None"):
        other.run()


def test_the_engines_read_the_real_clock() -> None:
    before = dt.datetime.now(dt.UTC)
    for on in (ps.Threads(), ps.Sequential()):
        flow = ps.Flow("f").source("in", ps.read.items([{"k": 1}] * 3), time=ps.arrival)
        (row,) = ps.run(flow.window("1 day").count().sink("out"), on=on).results["out"]
        assert row.count == 3
        assert before - dt.timedelta(days=1) <= row[0] <= dt.datetime.now(dt.UTC)


@pytest.mark.spark
def test_on_spark(spark: Any, tmp_path: Path) -> None:
    """Windows close while nothing comes any more, because the source goes on; then a restart."""
    (tmp_path / "in").mkdir()
    for life in range(2):
        at = dt.datetime.fromtimestamp(BEGAN, dt.UTC).isoformat()
        lines = [json.dumps({"k": n % 2, "n": n, "at": at}) + "\n" for n in range(20 * life, 20 * life + 20)]
        (tmp_path / "in" / f"{life}.json").write_text("".join(lines))
        found: list[int] = []
        reader = ps.read.json(str(tmp_path / "in"), schema=KIND, follow=True)
        source = ps.Flow("f").source("in", reader, time="at")
        source.key_by("k").window("1 s").count(name="by event").sink(
            "never", lambda batch, epoch: pytest.fail(f"{batch} came out")
        )
        counts = source.key_by("k").window("100 ms", by=ps.arrival).count(name="windows")
        sums = counts.scan(lambda total, row: (total + row.count,) * 2, 0, schema=int, name="sum")
        flow = sums.sink("out", lambda batch, epoch, found=found: found.extend(batch))  # type: ignore[misc]
        run = ps.start(flow, on=ps.Spark(spark, tasks=2), checkpoint=str(tmp_path / "ck"))
        while 20 * life + 20 not in found and not run.await_end(0.1):
            pass
        run.stop()
        run.await_end()
        assert found[-1] == 20 * life + 20
