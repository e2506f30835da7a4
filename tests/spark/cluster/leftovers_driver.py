"""Run a flow on `local-cluster`, and tell what is left behind. Usage: leftovers_driver.py SOURCES WORK MODE.

MODE is "fixed", two executors; "dynamic", where Spark gives back those that are idle for three seconds; or "local",
local mode, where a second flow then reads a streaming DataFrame. A line of JSON is printed after each epoch, and when
nothing changes any more.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

EPOCHS, EPOCH_ROWS = 4, 60
PATIENCE = 300.0
"""Seconds that all waiting takes at the most, for what does not go by itself."""
MOST_FILES = {"fixed": 6, "dynamic": 6, "frame": 2, "local": 4}
"""Once Spark has removed what it is told to, which it does in its own time.

On a cluster three of the two anchors, and three of the epoch just done; four epochs would leave twelve.
"""


def count(state: int, row: Any) -> tuple[int, int]:
    return state + 1, row.n


def main(sources: str, work: Path, mode: str) -> None:
    """Run the flow to its end, and wait for what is to go."""
    sys.path.insert(0, sources)
    import penstock as ps
    from penstock.spark.session import make_session

    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    allocation = "spark.dynamicAllocation."
    settings = {
        "spark.ui.enabled": "false",
        "spark.local.dir": str(work / "local"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.level=ERROR {quick}",
        "spark.executor.extraJavaOptions": quick,
        "spark.executor.memory": "600m",
        allocation + "enabled": str(mode == "dynamic").lower(),
        allocation + "shuffleTracking.enabled": "true",
        allocation + "executorIdleTimeout": "3s",
        allocation + "minExecutors": "0",
        allocation + "initialExecutors": "2",
    }
    master = "local[2,4]" if mode == "local" else "local-cluster[2,1,900]"
    session = make_session("leftovers", master=master, settings=settings)
    scala = session.sparkContext._jsc.sc()

    def left() -> dict[str, int]:
        files = [*work.glob("local/**/shuffle_*.data"), *work.glob("workers/**/shuffle_*.data")]
        executors = int(scala.getExecutorIds().size())
        return {"files": len(files), "cached": int(scala.getPersistentRDDs().size()), "executors": executors}

    patience = PATIENCE

    def settle(name: str, wanted: int) -> None:
        nonlocal patience
        while left()[name] > wanted and patience > 0:
            time.sleep(0.1)
            patience -= 0.1

    def run_flow(of: str) -> None:
        def tell(when: str) -> None:
            print(json.dumps({"mode": of, "when": when, **left()}), flush=True)

        flow = ps.Flow("leftovers")
        if of == "frame":
            frame = session.readStream.format("rate-micro-batch").option("rowsPerBatch", str(EPOCH_ROWS)).load()
            rows = flow.source("in", frame.selectExpr("value as n", "value % 7 as k"))
        else:
            rows = flow.source("in", [{"n": n, "k": n % 7} for n in range(EPOCHS * EPOCH_ROWS)])
        rows.key_by("k").scan(count, 0, name="counts").sink("out")

        def after(stats: Any) -> None:
            settle("files", MOST_FILES[of])
            tell(f"epoch {stats.epoch}")
            if of == "frame" and stats.epoch == EPOCHS:
                run.stop()

        on = ps.Spark(session, tasks=2, epoch_rows=EPOCH_ROWS)
        run = ps.start(flow, on=on, checkpoint=str(work / of), on_epoch=after)
        run.await_end()
        assert len(run.results["out"]) >= EPOCHS * EPOCH_ROWS
        settle("files", 0)
        tell("ended")
        if of == "dynamic":
            settle("executors", 0)
            tell("idle")

    for of in ("local", "frame") if mode == "local" else (mode,):
        run_flow(of)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
