"""What it costs that statistics are always on: the engine as it is, looked at as a page does, and without them.

Without them is the same engine with everything taken out that counts rows, looks at clocks and keeps latencies. The
flow is W2's: four cheap functions, so that little else hides the cost. Both sides get batches of the same size, a usual
one and a small one: by itself the engine finds it from its statistics.
"""

import argparse
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import penstock as ps
from bench import local_side, measure
from bench.w2_threads import Counter
from bench.workload import Event, amount, large, lower, small
from penstock.kernels.failures import Failures
from penstock.order.primitives import EMPTY
from penstock.plan.plan import make_plan
from penstock.threads import meters, stateless_stations
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.outputs import SinkStation
from penstock.threads.stateless_stations import FusedStation
from penstock.threads.stations import InputPort, Station, offer

DESCRIPTION = "throughput with statistics always on, read twice a second, against an engine without them"

LOOK_SECONDS = 0.5


def unmeasured(station: Station, header: Any, group: Any, run: Any) -> Any:
    """Do the work of a batch without counting it."""
    failures = Failures()
    made = run(header, group, failures)
    for failure in failures.fatal:
        station.around.report(header.number, failure)
    return made


def write_unmeasured(station: SinkStation, header: Any, chunk: Any) -> None:
    """Hand rows to the sink without counting them."""
    complete = header.finish(station.name, chunk)
    if complete is not EMPTY:
        offer(station.around.published, header.number, (header, complete))
        for taken in station.around.published.drain():
            station.around.publish(taken)


@contextmanager
def without_statistics() -> Iterator[None]:
    """Leave out what measures, while inside."""
    replaced: list[tuple[Any, str, Any]] = [
        (Station, "_measured", unmeasured),
        (SinkStation, "write", write_unmeasured),
        (FusedStation, "_count", lambda *_: None),
        *((InputPort, f"note_{what}", lambda *_: None) for what in ("queued", "taken", "workers", "begun")),
        (stateless_stations, "SAMPLED", 1 << 62),
        (meters.Latencies, "add", lambda *_: None),
    ]
    shipped = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    try:
        for owner, name, part in replaced:
            setattr(owner, name, part)
        yield
    finally:
        for owner, name, part in shipped:
            setattr(owner, name, part)


def turn(folder: Path, options: LocalOptions, statistics: bool) -> float:
    """Run the flow once; return the seconds."""
    counter = Counter()
    flow = ps.Flow("statistics")
    events = flow.source("events", ps.read.parquet(str(folder), schema=Event))
    events.map(amount).filter(large).map(lower).filter(small).sink("count", ps.write.callback(counter.rows))
    engine = LocalEngine(make_plan(flow), options)
    if statistics:
        seconds = looked_at(engine)
    else:
        with without_statistics():
            seconds = clocked(engine)
    counted = engine.statistics().operators["amount"].rows_in
    if bool(counted) is not statistics:
        raise AssertionError(f"statistics={statistics}, and the engine counted {counted} rows")
    return seconds


def clocked(engine: LocalEngine) -> float:
    """Run an engine; return the seconds."""
    began = time.perf_counter()
    engine.run()
    return time.perf_counter() - began


def looked_at(engine: LocalEngine) -> float:
    """Run an engine while somebody asks for its statistics; return the seconds."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_SECONDS):
            engine.statistics()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        return clocked(engine)
    finally:
        ended.set()
        thread.join()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--files", type=int, default=8, help="files that a turn reads")
    parser.add_argument("--file-rows", type=int, default=100_000)
    parser.add_argument("--batch-rows", type=int, default=4096, help="rows of a batch")
    parser.add_argument("--small-batch", type=int, default=256, help="rows of a batch in the second comparison")
    parser.add_argument("--rounds", type=int, default=20, help="measured turns of every side")
    parser.add_argument("--warmup", type=int, default=2, help="turns of every side that are not counted")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run both sides in turns, at both batch sizes."""
    folder, _ = local_side.directory(args.seed, args.files, args.file_rows)
    rows = args.files * args.file_rows
    found: dict[str, Any] = {"rows": rows, "rounds": args.rounds, "look_seconds": LOOK_SECONDS}
    for key, batch_rows in (("ratio", args.batch_rows), ("small_ratio", args.small_batch)):
        options = LocalOptions(batch_rows)
        sides = {
            name: local_side.clocked(f"{name}, batches of {batch_rows}", rows, partial(turn, folder, options, measured))
            for name, measured in (("statistics", True), ("none", False))
        }
        speeds = measure.interleave(sides, args.rounds, args.warmup)
        compared = local_side.compare(speeds, {"ratio": ("statistics", "none")}, args.seed)
        found |= {key: compared["ratio"], f"{key}_details": {"batch_rows": batch_rows, **compared}}
    return found
