"""Run the demonstration: `python -m penstock.lab.demo`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.cli.displays import Interrupts, explain
from penstock.errors import PenstockError
from penstock.lab.demo.check import check_order
from penstock.lab.demo.flow import HOT, SENSORS, make_flow
from penstock.lab.demo.load import SHARES, Load, one_core, schedule
from penstock.lab.demo.show import Show, tell
from penstock.lab.demo.workers import end_one
from penstock.run import Run
from penstock.spark.java import check_java
from penstock.spark.session import make_session

MOST_ROWS_PER_SECOND = 20_000
"""What one core is taken to do at most: checking the order takes as long again."""
KILL_AT = 0.6
"""The part of the readings after which a worker is ended: the load is at its highest."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; return 1 where the order check or the flow fails."""
    parser = argparse.ArgumentParser(
        prog="python -m penstock.lab.demo", description="Run the demonstration of Penstock."
    )
    parser.add_argument("--seconds", type=float, default=32, help="how long the stream is (default: 32)")
    parser.add_argument(
        "--rows-per-second",
        type=int,
        metavar="N",
        help="what one core can do (default: as measured); the load begins at a third of it",
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


def demonstrate(seconds: float, rate: int | None, out: Path, java: str) -> int:
    """Run the flow while its load changes, end a worker on the way, and check its whole output."""
    core = rate or min(one_core(), MOST_ROWS_PER_SECOND)
    load = Load(out / "readings", list(schedule(seconds, core)))
    flow = make_flow(out / "readings", out)
    rates = ", ".join(f"{share * core:,.0f}" for share in SHARES)
    print(f"Penstock {ps.__version__}: {SENSORS:,} sensors, {rates} readings per second, {seconds / 4:g} s each.")
    print(f"{HOT} of them send half of all readings, and every few seconds it is {HOT} others.")
    print("Each reading is scored by plain Python with its sensor's state; unusual ones are counted in windows.")
    print(f"Nothing is set: Penstock finds the tasks and moves the keys. Starting Spark (Java {java}) ...", flush=True)
    session = make_session("penstock demo")
    began = time.monotonic()
    show = Show(began)
    with Interrupts() as interrupts:
        run = ps.start(
            flow,
            on=ps.Spark(session),
            checkpoint=str(out / "checkpoint"),
            on_epoch=lambda stats: show.epoch(stats, time.monotonic()),
            page=True,
        )
        print(f"Watch it at {run.page} while it runs.", flush=True)
        if run.page is not None and _has_screen():
            webbrowser.open(run.page)
        load.start()
        follow(run, interrupts, show, load, session)
        ended = time.monotonic()
        run.close_page()
    load.stop()
    print("\nDone; checking every row and its place against the one-row-at-a-time run ...", flush=True)
    began = time.monotonic()
    verdicts = check_order(flow, show.progress.rows_in, out, tell)
    print("\n" + show.summary(verdicts, ended, time.monotonic() - began))
    if any(verdict.difference is not None for verdict in verdicts):
        return 1
    return interrupts.code if interrupts.count else 0


def _has_screen() -> bool:
    """Tell whether there is a screen: a browser is opened only then."""
    return sys.stdout.isatty() and (sys.platform != "linux" or bool(os.environ.get("DISPLAY")))


def follow(run: Run, interrupts: Interrupts, show: Show, load: Load, session: Any) -> None:
    """Wait until all readings are through, ending a worker on the way; Ctrl-C stops after the epoch under way."""
    known, killed, stopping = 0, False, False
    while not run.await_end(0.05):
        made, known = run.decisions_since(known)
        show.decisions(made)
        if not killed and show.progress.rows_in >= KILL_AT * load.total:
            killed = True
            _end_worker(session)
        if not stopping and (interrupts.count or show.progress.rows_in >= load.total):
            stopping = True
            run.stop()


def _end_worker(session: Any) -> None:
    """End a Python worker of Spark's, without the trace that Spark would log."""
    session.sparkContext.setLogLevel("OFF")
    pid = end_one()
    if pid is not None:
        tell(f"killed the Python worker {pid} in the middle of its work: Spark runs its task again")


if __name__ == "__main__":
    sys.exit(main())
