"""What the page costs the flow: the same keyed flow in this process without a page, and with one that is looked at.

"Looked at" is a client that reads the server-sent events as a browser does, while the history is written too. Sides
take turns, and the medians are compared: of rows a second, and of the process's processor time, which other load on the
machine disturbs less (the client's own is in it).
"""

from __future__ import annotations

import argparse
import http.client
import shutil
import tempfile
import threading
import time
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps

DESCRIPTION = (
    "throughput of a keyed flow on threads with the page open against without it; the goal is at most 2 % less"
)
KEYS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rows", type=int, default=1_500_000, help="rows of one run")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each side")


def events(start: int, stop: int) -> pa.Table:
    """Make rows whose key is scattered."""
    number = np.arange(start, stop, dtype=np.int64)
    return pa.table({"key": number * 2654435761 % KEYS, "value": number.astype(np.float64)})


def add_up(state: tuple[int, float], row: Any) -> tuple[tuple[int, float], tuple[int, int, float]]:
    """Count and sum."""
    key, value = row
    count, total = state[0] + 1, state[1] + value
    return (count, total), (key, count, total)


def make_flow(rows: int) -> ps.Flow:
    """Compose the flow."""
    flow = ps.Flow("page cost")
    source = flow.source("events", ps.read.generate(events, schema={"key": int, "value": float}, rows=rows))
    schema = {"key": int, "count": int, "total": float}
    summed = source.key_by("key").scan(add_up, (0, 0.0), schema=schema, name="sums")
    summed.filter(lambda row: row.count % 100 == 0, name="hundredth").sink(
        "out", ps.write.callback(lambda found, epoch: None)
    )
    return flow


class Watcher:
    """Read the page's events until it ends, as a browser does."""

    def __init__(self, address: str) -> None:
        host = address.removeprefix("http://").rstrip("/")
        self.samples = 0
        self._connection = http.client.HTTPConnection(host, timeout=30)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self._connection.request("GET", "/api/events")
            answer = self._connection.getresponse()
            while line := answer.readline():
                self.samples += line.startswith(b"data: ")
        except (OSError, http.client.HTTPException, AttributeError, ValueError):
            pass  # the flow has ended, and its page with it

    def close(self) -> None:
        """Wait for the end."""
        self._thread.join(5)


def measure(rows: int, page: bool) -> tuple[float, float, int]:
    """Run once; return rows a second, processor seconds, and the samples that were seen."""
    directory = tempfile.mkdtemp(prefix="penstock-page-cost-")
    options: dict[str, Any] = {"page": 0, "history": directory} if page else {}
    try:
        began, cpu = time.perf_counter(), time.process_time()
        run = ps.start(make_flow(rows), engine="threads", threads=1, **options)
        watcher = Watcher(str(run.page)) if page else None
        run.await_end()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        run.close_page()
        if watcher is not None:
            watcher.close()
        return rows / seconds, cpu, watcher.samples if watcher is not None else 0
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run both sides in turns."""
    measure(min(args.rows, 100_000), True)  # what is imported and compiled once is no cost of a flow
    rates: dict[bool, list[float]] = {False: [], True: []}
    spent: dict[bool, list[float]] = {False: [], True: []}
    samples = 0
    for repeat in range(args.repeats):
        # Whoever goes first may find a machine that others just left: take turns at that, too.
        for page in (False, True) if repeat % 2 == 0 else (True, False):
            rate, cpu, seen = measure(args.rows, page)
            rates[page].append(rate)
            spent[page].append(cpu)
            samples += seen
    plain, watched = median(rates[False]), median(rates[True])
    return {
        "rows": args.rows,
        "rows_per_second_without": round(plain),
        "rows_per_second_with_page": round(watched),
        "samples_seen": samples,
        "cost_percent": round(100 * (1 - watched / plain), 2),
        "spread_percent": round(100 * (max(rates[False]) - min(rates[False])) / plain, 1),
        "processor_cost_percent": round(100 * (median(spent[True]) / median(spent[False]) - 1), 2),
    }
