"""Take the picture of the page that the README shows: `python -m tests.browser.screenshot FILE.png`.

The flow is a real one, with a lookup that waits: Penstock finds by itself how many threads it needs, and the picture
has its decisions. With `--engine spark` the demonstration's flow runs on Spark instead.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps

from ..patience import PATIENCE
from .visiting import FLAGS, MISSING, Visit, operator

PARTS = {"timeline": "section:has(#timeline)", "shards": "#shards-card"}


def orders(start: int, stop: int) -> pa.Table:
    """Make orders; a few customers order much."""
    number = np.arange(start, stop, dtype=np.int64)
    customer = np.where(number % 3 == 0, number % 7, number * 2654435761 % 5000)
    return pa.table({"at": number, "customer": customer, "amount": (number * 7919 % 20_000) / 100})


def look_up(row: Any) -> dict[str, Any]:
    """Ask for the exchange rate: a request that takes a millisecond."""
    time.sleep(0.001)
    return {"at": row.at, "customer": row.customer, "amount": row.amount * 1.08}


def add_up(total: float, row: Any) -> tuple[float, dict[str, Any]]:
    """Keep what a customer has spent."""
    total += row.amount
    return total, {"customer": row.customer, "total": total}


def shop() -> ps.Flow:
    """Compose the flow of the picture."""
    rows = {"at": int, "customer": int, "amount": float}
    flow = ps.Flow("shop")
    source = flow.source("orders", ps.read.generate(orders, schema=rows, rows_per_second=4000), time="at")
    priced = source.filter(lambda row: row.amount > 1, name="valid").map(look_up, schema=rows, name="exchange rate")
    totals = priced.key_by("customer").scan(
        add_up, 0.0, schema={"customer": int, "total": float}, name="customer totals"
    )
    totals.filter(lambda row: row.total > 1000, name="good customers").sink("mailing", nowhere())
    totals.sink("totals", nowhere())
    priced.window(2000).aggregate(n=ps.agg.count(), spent=ps.agg.sum("amount"), name="per window").sink(
        "windows", nowhere()
    )
    return flow


def nowhere() -> Any:
    """Write to a function that does nothing."""
    return ps.write.callback(lambda rows, epoch: None)


def own_usage() -> Callable[[], float]:
    """Measure how busy this process keeps the machine: what else runs here is not what the picture is about."""
    last = (time.perf_counter(), time.process_time())

    def usage() -> float:
        nonlocal last
        now, before = (time.perf_counter(), time.process_time()), last
        last = now
        return (now[1] - before[1]) / max(1e-9, now[0] - before[0]) / (os.cpu_count() or 1)

    return usage


def start(engine: str, directory: Path) -> ps.Run:
    """Start the flow."""
    if engine == "threads":
        run = ps.start(shop(), on=ps.Threads(batch_rows=128), page=0)
        for lever in run.engine.pilot.levers:
            if lever.name == "threads":
                lever.cpu_usage = own_usage()
        return run
    from penstock.lab.demo.flow import make_flow
    from penstock.lab.demo.load import Load, schedule

    Load(directory / "readings", list(schedule(120, 15_000))).start()
    flow = make_flow(directory / "readings", directory)
    return ps.start(flow, on=ps.Spark(), checkpoint=str(directory / "checkpoint"), page=0)


def main() -> int:
    """Take the picture."""
    parser = argparse.ArgumentParser(description="Take a picture of the page of a running flow.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--engine", choices=("threads", "spark"), default="threads")
    parser.add_argument("--seconds", type=float, default=45, help="how long the flow runs before (default: 45)")
    parser.add_argument("--part", choices=PARTS, help="only this part of the page")
    parser.add_argument("--dark", action="store_true", help="in dark colours")
    args = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print(MISSING, file=sys.stderr)
        return 1
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as directory, sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(Path(directory) / "profile"),
            executable_path=chromium,
            args=FLAGS,
            headless=True,
            viewport={"width": 1440, "height": 900},
        )
        run = start(args.engine, Path(directory))
        try:
            page = Visit(context).open(str(run.page), "dark" if args.dark else "light")
            operator(page, "customer totals" if args.engine == "threads" else "track").click()
            page.wait_for_timeout(1000 * args.seconds)
            args.file.parent.mkdir(parents=True, exist_ok=True)
            if args.part is None:
                page.screenshot(path=str(args.file), full_page=True)
            else:
                page.locator(PARTS[args.part]).screenshot(path=str(args.file))
        finally:
            context.close()
            run.stop()
            run.await_end(PATIENCE)
            run.close_page()
    changes = [each for each in run.decisions if each.what not in ("start", "hold")]
    print(f"{args.file}: {len(changes)} decisions in {args.seconds:g} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
