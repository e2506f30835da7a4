"""Run the demonstration: `python -m penstock.demo`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import penstock as ps
from penstock.cli.displays import count
from penstock.cli.failures import Interrupts, explain
from penstock.demo.check import check_order
from penstock.demo.flow import HOT, HOT_SECONDS, SENSORS, Readings, make_flow
from penstock.demo.show import Show
from penstock.errors import PenstockError
from penstock.run import Run
from penstock.spark.session import check_java, make_session

TASKS = 2
CHANGES = ((0.25, 4), (0.5, 1), (0.75, 3))
"""The number of tasks from each part of the stream on."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; return 1 where the order check or the flow fails."""
    parser = argparse.ArgumentParser(prog="python -m penstock.demo", description="Run the demonstration of Penstock.")
    parser.add_argument("--seconds", type=float, default=40, help="how long the stream is (default: 40)")
    parser.add_argument(
        "--rows-per-second",
        type=int,
        default=5_000,
        metavar="N",
        help="its rate (default: 5000); the order check takes longer with more rows",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the rows and the checkpoint here")
    args = parser.parse_args(arguments)
    try:
        java = check_java()
        if args.out is not None:
            return demonstrate(args.seconds, args.rows_per_second, args.out, java)
        with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
            return demonstrate(args.seconds, args.rows_per_second, Path(directory), java)
    except KeyboardInterrupt:
        return 130
    except PenstockError as error:
        print("\n".join(explain(error)), file=sys.stderr)
        return 1


def demonstrate(seconds: float, rate: int, out: Path, java: str) -> int:
    """Run the flow, change its tasks while it runs, and check its whole output."""
    readings = Readings(rate)
    rows = max(1, round(seconds * rate))
    flow = make_flow(readings, rows, out)
    print(f"Penstock {ps.__version__}: {seconds:g} s of {rate:,} readings a second from {SENSORS:,} sensors.")
    print(f"{HOT} sensors send half of all readings, and every {HOT_SECONDS} s it is {HOT} others.")
    print("Each sensor has running statistics; unusual readings are counted in windows.")
    print(f"Both are written as Parquet to {out}. Starting Spark (Java {java}) ...", flush=True)
    session = make_session("penstock demo")
    show = Show(readings, time.monotonic())
    with Interrupts() as interrupts:
        run = ps.start(
            flow,
            on=ps.Spark(session, tasks=TASKS, epoch_rows=2 * rate),
            checkpoint=str(out / "checkpoint"),
            on_epoch=lambda stats: show.epoch(stats, time.monotonic()),
            page=True,
        )
        print(f"Watch it at {run.page} while it runs.", flush=True)
        follow(run, interrupts, show, rows)
        ended = time.monotonic()
        run.close_page()
    stopped = interrupts.count > 0
    print(
        f"\n{'Stopped' if stopped else 'Done'}; checking the order of all rows against the one-row-at-a-time run ...",
        flush=True,
    )
    began = time.monotonic()
    verdicts = check_order(flow, readings, show.progress.rows_in, not stopped, out, tell)
    print("\n" + show.summary(verdicts, ended, time.monotonic() - began))
    if any(verdict.difference is not None for verdict in verdicts):
        return 1
    return interrupts.code if stopped else 0


def tell(line: str) -> None:
    """Print what is being done."""
    print(f"         {line}", flush=True)


def follow(run: Run, interrupts: Interrupts, show: Show, rows: int) -> None:
    """Wait for the end, changing the number of tasks on the way; Ctrl-C stops behind the epoch under way."""
    changes = list(CHANGES)
    stopping = False
    while not run.await_end(0.05):
        # By rows, not by time: a machine that is slow to start has its changes too.
        if changes and show.progress.rows_in >= changes[0][0] * rows:
            tasks = changes.pop(0)[1]
            tell(f"changing to {count(tasks, 'task')} while it runs")
            run.set_tasks(tasks)
        if interrupts.count and not stopping:
            stopping = True
            tell("stopping behind the epoch under way")
            run.stop()


if __name__ == "__main__":
    sys.exit(main())
