"""Measure what a large epoch takes of memory: the driver's JVM is held to 2 GB, and Python workers are watched."""

import argparse
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import SparkContext

import penstock as ps
from bench import session
from bench.workload import running

DESCRIPTION = "the memory of a keyed flow of 20 million rows and 100,000 keys in a driver of 2 GB"
WATCH_SECONDS = 0.25


class Rows:
    """Generate events (serial, key, value): a class, so that the number of keys travels with it."""

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def __call__(self, start: int, stop: int) -> pa.Table:
        serial = np.arange(start, stop, dtype=np.int64)
        # A multiplicative hash spreads consecutive serials over all keys, without a generator's state.
        key = (serial * 2_654_435_761 % (1 << 32)) % self.keys
        return pa.table({"serial": serial, "key": key, "value": (serial % 1000) / 7.0})


class Watch:
    """Watch the private memory of all Python workers below this process; the peak of each is kept."""

    def __init__(self) -> None:
        self.peaks: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(WATCH_SECONDS):
            for pid in _python_workers():
                self.peaks[pid] = max(self.peaks.get(pid, 0), _private_bytes(pid))


def _python_workers() -> list[int]:
    """Return the processes that run Spark's Python workers, by their command line."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                command = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if b"pyspark.daemon" in command and _descends(int(name), os.getpid()):
                found.append(int(name))
    return found


def _descends(pid: int, ancestor: int) -> bool:
    """Tell whether a process was started, directly or not, by another."""
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


def _private_bytes(pid: int) -> int:
    """Return the memory that only this process has: pages of mapped files belong to the system's cache."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--epoch-rows", type=int, nargs="*", default=[1_000_000, 20_000_000])
    parser.add_argument("--driver-memory", default="2g")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run the same rows in small epochs and in one large one: a worker's memory must not grow with the epoch."""
    results = {}
    for epoch_rows in args.epoch_rows:
        spark = session.make("bench-memory", {**session.FAST, "spark.driver.memory": args.driver_memory})
        work = Path(tempfile.mkdtemp(prefix="penstock-memory-"))
        try:
            results[str(epoch_rows)] = _run_once(spark, work, args.rows, args.keys, epoch_rows)
        finally:
            session.close(spark)
            shutil.rmtree(work, ignore_errors=True)
        print(f"epochs of {epoch_rows:,} rows: {results[str(epoch_rows)]}", file=sys.stderr, flush=True)
    return {"rows": args.rows, "keys": args.keys, "driver_memory": args.driver_memory, "by_epoch_rows": results}


def _run_once(spark: Any, work: Path, rows: int, keys: int, epoch_rows: int) -> dict[str, Any]:
    flow = ps.Flow("memory")
    schema = {"serial": int, "key": int, "value": float}
    events = flow.source("events", ps.read.generate(Rows(keys), schema=schema, rows=rows))
    outputs = events.key_by("key").scan(running, (0, 0.0), name="running")
    outputs.sink("out", ps.write.parquet(str(work / "out")))
    with Watch() as watch:
        done = ps.run(flow, on=ps.Spark(spark, epoch_rows=epoch_rows), checkpoint=str(work / "checkpoint"))
    assert SparkContext._active_spark_context is not None
    state = {item.operator: item for item in ps.state.operators(str(work / "checkpoint"))}["running"]
    return {
        "epochs": len(done.epochs),
        "rows_out": sum(stats.rows_out["out"] for stats in done.epochs),
        "seconds": sum(stats.seconds for stats in done.epochs),
        "state_keys": state.keys,
        "state_bytes": state.bytes,
        "worker_peak_mb": round(max(watch.peaks.values(), default=0) / 1e6),
    }
