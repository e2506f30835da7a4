"""Run a flow on `local-cluster[2,1,1024]`; the workers' Python has neither Penstock nor the user's module.

Usage: driver.py SOURCES WORK. Epochs of 50 rows: 1 to 12 with one table, 13 to 18 with its tasks changed round, and in
epoch 21 an executor is killed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

EPOCHS, ROWS, MOVED_AT, KILL_AT = 24, 50, 12, 20 * 50 + 25


def main() -> None:
    sources, work = sys.argv[1], Path(sys.argv[2])
    sys.path.insert(0, sources)
    import shop

    import penstock as ps
    from penstock.keys import SHARDS
    from penstock.spark.session import make_session

    rows = [{"n": n, "t": n // 2, "k": (7 * n + n // 5) % 37, "v": n / 7} for n in range(EPOCHS * ROWS)]
    flow = ps.Flow("cluster")
    stream = flow.source("rows", ps.read.items(rows), time="t")
    running = shop.Running(KILL_AT, str(work / "killed"))
    stream.key_by("k").scan(running, (0, 0.0), schema=shop.OUT, name="running").sink(
        "scanned", ps.write.parquet(str(work / "scanned"))
    )
    stream.key_by("k").window(40).count(name="counts").sink("counted", ps.write.parquet(str(work / "counted")))
    session = make_session("cluster", master="local-cluster[2,1,1024]", settings={"spark.ui.enabled": "false"})
    tracker = session.sparkContext.statusTracker()
    first = [shard % 2 for shard in range(SHARDS)]

    def after(stats: Any) -> None:
        jobs = len(tracker.getJobIdsForGroup(None))
        print(json.dumps({"epoch": stats.epoch, "seconds": stats.seconds, "jobs": jobs, "tries": stats.attempts}))
        sys.stdout.flush()
        if stats.epoch == MOVED_AT:
            for operator in ("running", "counts"):
                run.set_table(operator, [1 - task for task in first])

    from penstock.plan import make_plan  # noqa: F401

    run = ps.start(flow, spark=session, checkpoint=str(work / "ck"), tasks=2, epoch_rows=ROWS, on_epoch=after)
    run.set_table("running", first)
    run.set_table("counts", first)
    run.await_end()
    session.stop()


if __name__ == "__main__":
    main()
    os._exit(0)
