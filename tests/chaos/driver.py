"""The run that is killed. Usage: driver.py SOURCES WORK MASTER TASKS (0 for as many as Penstock likes) [FAULTS].

FAULTS, as in `tests.faults`, make single reads and writes of tasks fail.

A line is printed when Spark is there ("ready"), behind each epoch ("epoch 7") and in the end ("done").
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

EPOCH_ROWS, FILE_ROWS, KEYS = 100, 70, 23
PAUSE = 0.0
"""Seconds that each row takes: a run that is over at once is hard to kill."""
FAULTS = str(Path(__file__).resolve().parents[1] / "faults.py")
SCANNED = {"n": int, "k": int, "count": int, "total": float}


def running(state: tuple[int, float], row: Any) -> tuple[tuple[int, float], tuple[int, int, int, float]]:
    """Count and add up a key's values: wrong as soon as a row is lost, doubled or out of order."""
    if "PENSTOCK_TEST_FAULTS" in os.environ:
        break_files()
    time.sleep(PAUSE)
    count, total = state[0] + 1, state[1] / 2 + row.v
    return (count, total), (row.n, row.k, count, total)


def break_files() -> None:
    """Let reads and writes of this worker fail now and then, from its first row on."""
    if "faults" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location("faults", FAULTS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["faults"] = module
    spec.loader.exec_module(module)
    module.from_environment()


def flow(work: Path) -> Any:
    """Build the flow: a keyed scan and keyed windows, each to a Parquet sink, from a directory of Parquet files."""
    import penstock as ps

    built = ps.Flow("chaos")
    rows = built.source("rows", ps.read.parquet(str(work / "data")), time="t", slack=3)
    rows.key_by("k").scan(running, (0, 0.0), schema=SCANNED, name="running").sink(
        "scanned",
        ps.write.parquet(str(work / "scanned"), roll_every=0),  # so that each epoch is published
    )
    counts = rows.key_by("k").window(ps.sliding(60, 20))
    counts.aggregate(c=ps.agg.count(), s=ps.agg.sum("v"), name="windows").sink(
        "windowed",
        ps.write.parquet(str(work / "windowed"), file_size=8_000),  # some epochs are one file
    )
    return built


def main(sources: str, work: Path, master: str, tasks: int, faults: str = "") -> None:
    """Run the flow, or go on with it, to its end."""
    sys.path.insert(0, sources)
    import penstock as ps
    from penstock.spark.session import make_session

    # A JVM that lives for seconds has no time to optimize.
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.level=ERROR {quick}",
        "spark.executor.extraJavaOptions": quick,
        **({"spark.executorEnv.PENSTOCK_TEST_FAULTS": faults} if faults else {}),
    }
    session = make_session("chaos", master=master, settings=settings)
    print("ready", flush=True)
    ps.run(
        flow(work),
        on=ps.Spark(session, tasks=tasks or None, epoch_rows=EPOCH_ROWS),
        checkpoint=str(work / "ck"),
        on_epoch=lambda stats: print(f"epoch {stats.epoch}", flush=True),
    )
    print("done", flush=True)


if __name__ == "__main__":
    PAUSE = 0.001
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
