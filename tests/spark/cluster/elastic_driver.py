"""Run a flow on a cluster with a latency target and nothing else. Usage: elastic_driver.py SOURCES WORK MASTER.

Rows of the first epochs are quick, those behind them wait so long that one executor cannot meet the target. A line of
JSON is printed for each epoch, and the decisions about executors at the end.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

EPOCH_ROWS, KEYS = 28, 37
QUICK_EPOCHS, SLOW_EPOCHS = 12, 10
TARGET = 60.0
SLOW_SECONDS = 1.5
"""Of a slow row: an epoch of 28 of them takes 42 s with one core, 21 s with two; half of the target is 30 s. So long
that other load on the machine does not decide what comes out."""


def rows() -> list[dict[str, Any]]:
    """Make the input."""
    count = EPOCH_ROWS * (QUICK_EPOCHS + SLOW_EPOCHS)
    quick = EPOCH_ROWS * QUICK_EPOCHS
    return [{"n": n, "k": (7 * n + n // 5) % KEYS, "wait": SLOW_SECONDS * (n >= quick)} for n in range(count)]


def counted(count: int, row: Any) -> tuple[int, tuple[int, int, int]]:
    """Count a key's rows, slowly where the row says so."""
    time.sleep(row.wait)
    return count + 1, (row.n, row.k, count + 1)


def flow(work: Path) -> Any:
    """Build the flow."""
    import penstock as ps

    built = ps.Flow("elastic")
    stream = built.source("rows", ps.read.items(rows()))
    schema = {"n": int, "k": int, "count": int}
    stream.key_by("k").scan(counted, 0, schema=schema, name="counted").sink("out", ps.write.parquet(str(work / "out")))
    return built


def main(sources: str, work: Path, master: str) -> None:
    """Run the flow until it has come down to one executor and up to two again, or to its end."""
    sys.path.insert(0, sources)
    import penstock as ps
    from penstock.elastic.decisions import replay
    from penstock.spark.session import make_session

    settings = {
        "spark.ui.enabled": "false",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.instances": "2",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.driver.extraJavaOptions": "-Dlog4j2.level=ERROR -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    session = make_session("elastic", master=master, settings=settings)
    context = session.sparkContext
    context.parallelize([0, 1], 2).barrier().mapPartitions(list).count()  # both executors are there
    application = context.applicationId

    def after(stats: Any) -> None:
        found = context._jsc.sc().getExecutorIds().size()
        print(json.dumps({"epoch": stats.epoch, "seconds": round(stats.seconds, 3), "executors": found}), flush=True)
        decided = [line.after for line in run.decisions if line.what == "executors"]
        if decided == [1] and found > 1 and stats.epoch == QUICK_EPOCHS:
            while context._jsc.sc().getExecutorIds().size() > 1:
                time.sleep(0.1)
        if decided[-1:] == [2] and found == 2:
            run.stop()

    run = ps.start(
        flow(work), spark=session, checkpoint=str(work / "ck"), tasks=2, epoch_rows=EPOCH_ROWS, latency=TARGET,
        on_epoch=after,
    )  # fmt: skip
    run.await_end()
    decisions = [[line.before, line.after, line.why] for line in run.decisions if line.what == "executors"]
    same = replay(run.decisions).same
    print(json.dumps({"decisions": decisions, "same": same, "restarted": context.applicationId != application}))
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
