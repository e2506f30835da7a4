"""Run a flow on a cluster with a latency target and nothing else. Usage: elastic_driver.py SOURCES WORK MASTER.

The run starts at once, whether or not an executor is there. Rows of the first epochs are quick, those behind them wait
so long that one executor cannot meet the target. A line of JSON is printed when the run has begun, then for each epoch,
and the decisions about executors at the end.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

EPOCH_ROWS, KEYS = 28, 37
QUICK_EPOCHS, SLOW_EPOCHS = 14, 10
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
        "spark.driver.extraJavaOptions": "-Dlog4j2.level=ERROR -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    session = make_session("elastic", master=master, settings=settings)
    context = session.sparkContext
    application = context.applicationId

    def count() -> int:
        return int(context._jsc.sc().getExecutorIds().size())

    def after(stats: Any) -> None:
        decided = [line.after for line in run.decisions if line.what == "executors"]
        # The first epoch needs one executor, and the slow ones are to begin with one.
        expected = 2 if stats.epoch == 1 else 1 if decided == [1] and stats.epoch == QUICK_EPOCHS else None
        while expected is not None and count() != expected:
            time.sleep(0.1)
        found = count()
        print(json.dumps({"epoch": stats.epoch, "seconds": round(stats.seconds, 3), "executors": found}), flush=True)
        if decided[-1:] == [2] and found == 2:
            run.stop()

    run = ps.start(
        flow(work),
        on=ps.Spark(session, epoch_rows=EPOCH_ROWS),
        checkpoint=str(work / "ck"),
        latency=TARGET,
        on_epoch=after,
    )
    while not run.decisions and not run.await_end(0.05):
        pass  # the controllers have not started
    print(json.dumps({"begun_with": count()}), flush=True)
    run.await_end()
    decisions = [[line.before, line.after, line.why] for line in run.decisions if line.what == "executors"]
    same = replay(run.decisions).same
    # What was seen of how many tasks and executors there may be.
    seen = [line.statistics["most"] for line in run.decisions if "most" in (line.statistics or {})]
    restarted = context.applicationId != application
    print(json.dumps({"decisions": decisions, "most": seen, "same": same, "restarted": restarted}))
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
