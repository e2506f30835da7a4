"""Run a flow on `local-cluster[2,1,1024]`. Usage: driver.py SOURCES WORK.

The tasks change places behind epoch `MOVED_AT`, and in the middle of epoch `KILLED_IN` an executor is killed. Behind
epoch `RETURNED_AT` an executor is given back, and behind `ASKED_AT` one is asked for. Each epoch prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

EPOCHS, EPOCH_ROWS, KEYS = 20, 50, 37
MOVED_AT, KILLED_IN, RETURNED_AT, ASKED_AT = 4, 7, 12, 15


def rows() -> list[dict[str, Any]]:
    """Make the input."""
    return [{"n": n, "t": n // 2, "k": (7 * n + n // 5) % KEYS, "v": n / 7} for n in range(EPOCHS * EPOCH_ROWS)]


def flow(work: Path) -> Any:
    """Build the flow: a keyed scan that tells where it ran, and windows; two sinks."""
    import shop

    import penstock as ps

    built = ps.Flow("cluster")
    stream = built.source("rows", ps.read.items(rows()), time="t")
    running = shop.Running(KILLED_IN * EPOCH_ROWS - EPOCH_ROWS // 2, str(work / "killed"))
    stream.key_by("k").scan(running, (0, 0.0), schema=shop.OUT, name="running").sink(
        "scanned", ps.write.parquet(str(work / "scanned"))
    )
    stream.key_by("k").window(40).count(name="counts").sink("counted", ps.write.parquet(str(work / "counted")))
    return built


def main(sources: str, work: Path) -> None:
    """Run the flow to its end."""
    sys.path.insert(0, sources)
    import penstock as ps
    from penstock.rows.keys import SHARDS
    from penstock.spark.session import Executors, make_session

    # A JVM that lives for seconds has no time to optimize.
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {
        "spark.ui.enabled": "false",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.level=ERROR {quick}",
        "spark.executor.extraJavaOptions": quick,
    }
    session = make_session("cluster", master="local-cluster[2,1,1024]", settings=settings)
    context = session.sparkContext
    tables = [[(shard + turned) % 2 for shard in range(SHARDS)] for turned in (0, 1)]

    def wait_for_executors() -> None:
        """Run a stage whose two tasks must begin together: for that both executors must be there."""
        context.parallelize([0, 1], 2).barrier().mapPartitions(list).count()

    def after(stats: Any) -> None:
        jobs = len(context.statusTracker().getJobIdsForGroup(None))
        line = {"epoch": stats.epoch, "seconds": round(stats.seconds, 3), "jobs": jobs, "found": executors.found()}
        print(json.dumps(line), flush=True)
        if stats.epoch == MOVED_AT:
            for operator in ("running", "counts"):
                run.set_table(operator, tables[1])
        if stats.epoch == KILLED_IN:
            wait_for_executors()
        if stats.epoch in (RETURNED_AT, ASKED_AT):
            executors.change(1 if stats.epoch == RETURNED_AT else 2)
            while executors.changing:
                time.sleep(0.05)

    wait_for_executors()
    executors = Executors(context)
    run = ps.start(
        flow(work), on=ps.Spark(session, tasks=2, epoch_rows=EPOCH_ROWS), checkpoint=str(work / "ck"), on_epoch=after
    )
    for operator in ("running", "counts"):
        run.set_table(operator, tables[0])
    run.await_end()
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
