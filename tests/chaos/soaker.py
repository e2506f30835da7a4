"""The run of the soak, which is killed. Usage: soaker.py SOURCES TESTS WORK MASTER SIZE ("" as MASTER: without Spark).

Lines of JSON come in as files, some of them malformed; each row is looked up in a service that fails one time in fifty,
and always for some; what comes out goes to files that roll at SIZE bytes. A line is printed when the flow begins
("ready"), after each epoch ("epoch 7") and in the end ("done"): once the file `stop` is there.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from pathlib import Path
from typing import Any

KEYS, WINDOW = 37, 40
LINE = {"n": int, "k": int, "t": int}
NAMED = {**LINE, "name": str}
COUNTED = {"n": int, "k": int, "count": int, "name": str}
PERMANENT, MALFORMED = 997, 101
"""One in so many rows is never found, and one in so many lines cannot be read."""


def line(n: int) -> str:
    """Return line `n` of the input."""
    text = json.dumps({"n": n, "k": n * 31 % KEYS, "t": n // 100})
    return text[:-1] if malformed(n) else text


def malformed(n: int) -> bool:
    return n % MALFORMED == 7


def unknown(n: int) -> bool:
    return n % PERMANENT == 3


class Service:
    """Looks names up, and now and then does not answer."""

    def name(self, row: Any) -> str:
        if unknown(row.n):
            raise LookupError(f"row {row.n} has no name")
        if random.random() < 1 / 50:
            raise ConnectionError("no answer")
        return f"name {row.k}"


def looked_up(row: Any, service: Service) -> tuple[int, int, int, str]:
    return (row.n, row.k, row.t, service.name(row))


def counted(state: int, row: Any) -> tuple[int, tuple[int, int, int, str]]:
    return state + 1, (row.n, row.k, state + 1, row.name)


def flow(work: Path, size: int) -> Any:
    """Build the flow."""
    import penstock as ps

    def files(kind: Any, name: str) -> Any:
        return kind(str(work / name), file_size=size, roll_every=3600)

    built = ps.Flow("soak")
    reader = ps.read.json(str(work / "data"), schema=LINE, follow=True)
    lines = built.source("lines", reader, time="t", on_error="dead_letter")
    patient: dict[str, Any] = {"retries": 8, "backoff": 0.0001, "setup": Service, "on_error": "dead_letter"}
    named = lines.map(looked_up, schema=NAMED, name="lookup", **patient)
    by_key = named.key_by("k")
    by_key.scan(counted, 0, schema=COUNTED, name="count").sink("counted", files(ps.write.parquet, "counted"))
    windows = by_key.window(WINDOW).aggregate(rows=ps.agg.count(), last=ps.agg.max("n"), name="window")
    windows.sink("windows", files(ps.write.json, "windows"))
    lines.errors.union(named.errors, name="letters").sink("errors", files(ps.write.json, "errors"))
    return built


def main(work: Path, master: str, size: int) -> None:
    """Go on with the flow until somebody says stop."""
    import penstock as ps

    run: Any
    if master:
        from penstock.spark.session import make_session

        settings = {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}
        session = make_session("soak", master=master, settings=settings)
        run = ps.start(flow(work, size), on=ps.Spark(session), checkpoint=str(work / "ck"), on_epoch=tell)
    else:
        from penstock.store import lease as leases
        from tests.spark.running import make_engine

        leases._exists = lambda pid: False  # type: ignore[assignment]  # the driver before was killed
        run = make_engine(flow(work, size), work / "ck", epoch_rows=200)
        run._listener = tell
        run.await_end = run.run
    threading.Thread(target=stop_in_the_end, args=(work, run), daemon=True).start()
    print("ready", flush=True)
    run.await_end()
    print("done", flush=True)


def stop_in_the_end(work: Path, run: Any) -> None:
    waits = threading.Event()
    while not (work / "stop").exists():
        waits.wait(0.05)
    run.stop()


def tell(stats: Any) -> None:
    print(f"epoch {stats.epoch}", flush=True)


if __name__ == "__main__":
    sys.path[:0] = sys.argv[1:3]
    main(Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
