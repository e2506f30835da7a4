"""What the page costs the flow: the same keyed flow in this process without a page, and with one that is looked at.

"Looked at" is a client in a process of its own that reads the server-sent events as a browser does, while the history
is written too. Sides take turns over a source without an end; a turn counts the rows of some seconds in the middle of
a run, and, with the page, the processor time of the page's own threads in them. The latter hardly depends on what else
runs on the machine, and is an upper bound of the cost to a flow that has a processor to itself: what these threads do
they do with the interpreter's lock.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench import local_side, measure

DESCRIPTION = (
    "throughput of a keyed flow on threads with the page open against without it; the goal is at most 2 % less"
)
KEYS = 1000
OPERATORS = 10
PAGE_THREADS = ("penstock-page", "penstock-recorder")
READER = Path(__file__).with_name("event_reader.py")


@dataclass(frozen=True)
class Turn:
    """What was seen in the middle of one run."""

    rows_per_second: float
    page_ms_per_second: float
    """Milliseconds of processor time of the page's threads, for each second of the run."""
    sample_seconds: float
    """Seconds from sample to sample, as the client got them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--seconds", type=float, default=6.0, help="how long a turn counts")
    parser.add_argument("--settle", type=float, default=1.0, help="how long a run goes on before it counts")
    parser.add_argument("--rounds", type=int, default=20, help="measured turns of both sides")
    parser.add_argument("--warmup", type=int, default=1, help="turns of both sides that are not counted")
    parser.add_argument(
        "--larger",
        type=int,
        nargs="*",
        default=[50, 200],
        metavar="N",
        help="flows of as many operators, of which only the page's processor time is taken",
    )
    parser.add_argument("--larger-rounds", type=int, default=5, help="measured turns of each larger flow")


def events(start: int, stop: int) -> pa.Table:
    """Make rows whose key is scattered."""
    number = np.arange(start, stop, dtype=np.int64)
    return pa.table({"key": number * 2654435761 % KEYS, "value": number.astype(np.float64)})


def add_up(state: tuple[int, float], row: Any) -> tuple[tuple[int, float], tuple[int, int, float]]:
    """Count and sum."""
    key, value = row
    count, total = state[0] + 1, state[1] + value
    return (count, total), (key, count, total)


def make_flow(operators: int) -> ps.Flow:
    """Compose a flow: a source, running sums of each key, filters in a row, a sink."""
    flow = ps.Flow("page cost")
    source = flow.source("events", ps.read.generate(events, schema={"key": int, "value": float}))
    schema = {"key": int, "count": int, "total": float}
    stream = source.key_by("key").scan(add_up, (0, 0.0), schema=schema, name="sums")
    for number in range(operators - 3):
        stream = stream.filter(lambda row: row.count % 100 == 0, name=f"hundredth {number}")
    stream.sink("out", ps.write.callback(lambda found, epoch: None))
    return flow


@contextmanager
def watched(address: str | None) -> Iterator[list[float]]:
    """Read the page's events while inside, from the first one on; when they came is in the list behind it."""
    came: list[float] = []
    if address is None:
        yield came
        return
    host = address.removeprefix("http://").rstrip("/")
    with subprocess.Popen([sys.executable, str(READER), host], stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        try:
            first = reader.stdout.readline()
            if not first:
                raise AssertionError("the page sent no sample")
            came.append(float(first))
            yield came
        finally:
            reader.terminate()
            came += map(float, reader.stdout)


def page_seconds() -> float:
    """Return the processor seconds of the page's threads so far; all of them run."""
    threads = [each for each in threading.enumerate() if each.name in PAGE_THREADS and each.ident is not None]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(each.ident or 0)) for each in threads)


def turn(operators: int, page: bool, settle: float, seconds: float) -> Turn:
    """Run a flow for a while, and look at it twice."""
    directory = tempfile.mkdtemp(prefix="penstock-page-cost-")
    options: dict[str, Any] = {"page": 0, "history": directory} if page else {}
    run = ps.start(make_flow(operators), on=ps.Threads(workers=1), **options)
    try:
        with watched(run.page) as samples:
            time.sleep(settle)
            rows, spent, began = run.stats.rows_in, page_seconds(), time.perf_counter()
            time.sleep(seconds)
            rows, spent = run.stats.rows_in - rows, page_seconds() - spent
            passed = time.perf_counter() - began
    finally:
        run.stop()
        run.await_end()
        run.close_page()
        shutil.rmtree(directory, ignore_errors=True)
    found = Turn(rows / passed, 1000 * spent / passed, float(np.mean(np.diff(samples))) if page else 0.0)
    local_side.say(
        f"{operators} operators, {'page' if page else 'no page'}: {found.rows_per_second:,.0f} rows/s"
        + (f", page {found.page_ms_per_second:.2f} ms/s" if page else "")
    )
    return found


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run both sides in turns, then larger flows with the page alone."""
    sides = {
        name: partial(turn, OPERATORS, page, args.settle, args.seconds)
        for name, page in (("none", False), ("page", True))
    }
    turns = measure.interleave(sides, args.rounds, args.warmup)
    speeds = {name: [each.rows_per_second for each in found] for name, found in turns.items()}
    kept = measure.ratio(speeds["page"], speeds["none"], seed=args.seed)
    cost = measure.Estimate(*(100 * (1 - each) for each in (kept.median, kept.high, kept.low)), kept.n)
    plain, seen = (measure.median(speeds[name], seed=args.seed) for name in ("none", "page"))
    spent = measure.median([each.page_ms_per_second for each in turns["page"]], seed=args.seed)
    larger = []
    for operators in args.larger:
        found = [turn(operators, True, args.settle, args.seconds) for _ in range(args.larger_rounds)]
        each = measure.median([each.page_ms_per_second for each in found], seed=args.seed)
        larger.append(
            {
                "operators": operators,
                "page_ms_per_second": each.median,
                "intervals": {"page_ms_per_second": each.as_dict()},
            }
        )
    return {
        "operators": OPERATORS,
        "rounds": args.rounds,
        "seconds": args.seconds,
        "rows_per_second_without": plain.median,
        "rows_per_second_with_page": seen.median,
        "cost_percent": cost.median,
        "page_ms_per_second": spent.median,
        "sample_seconds": float(np.mean([each.sample_seconds for each in turns["page"]])),
        "intervals": {
            "rows_per_second_without": plain.as_dict(),
            "rows_per_second_with_page": seen.as_dict(),
            "cost_percent": cost.as_dict(),
            "page_ms_per_second": spent.as_dict(),
        },
        "larger": larger,
    }
