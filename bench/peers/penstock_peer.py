"""Penstock itself, in the table beside the others: on Spark and in one process."""

from functools import partial
from typing import Any

import penstock as ps
from bench.peers.apart import Outcome, Task
from bench.workload import Event, amount, large, look_up_later, lower, running, small


def w1(engine: str, task: Task) -> Outcome:
    """Scan by key."""
    flow = ps.Flow("w1")
    events = flow.source("events", ps.read.parquet(str(task.paths[0].parent), schema=Event))
    events.key_by("key").scan(running, (0, 0.0)).sink("out")
    return Outcome(*_run(flow, engine, task))


def w2(engine: str, task: Task) -> Outcome:
    """Chain the four operators and count."""
    counts = []
    flow = ps.Flow("w2")
    events = flow.source("events", ps.read.parquet(str(task.paths[0].parent), schema=Event))
    kept = events.map(amount).filter(large).map(lower).filter(small)
    kept.sink("count", ps.write.callback(lambda rows, _: counts.append(len(rows))))
    _, steady = _run(flow, engine, task)
    return Outcome(sum(counts), steady)


def w3(engine: str, task: Task) -> Outcome:
    """Ask for as many rows at once as Penstock finds right: the user chooses nothing."""
    flow = ps.Flow("w3")
    flow.source("rows", ps.read.items(list(range(task.rows)))).map(partial(look_up_later, seconds=task.wait)).sink(
        "out"
    )
    return Outcome(_run(flow, engine, task)[0])


def _run(flow: ps.Flow, engine: str, task: Task) -> tuple[list[Any], tuple[int, float] | None]:
    """Run a flow; on Spark the first epoch is the start, and does not count."""
    if engine == "threads":
        return ps.run(flow, on=ps.Threads()).results.get("out", []), None
    run = ps.run(flow, on=ps.Spark(epoch_rows=max(1, task.rows // max(1, len(task.paths)))))
    later = [epoch for epoch in run.epochs[1:] if epoch.rows_in] or run.epochs
    return run.results.get("out", []), (sum(e.rows_in for e in later), sum(e.seconds for e in later))


PACKAGE = "penstock"
WORKLOADS = {
    f"{name}-{engine}": partial(function, engine)
    for engine in ("spark", "threads")
    for name, function in (("w1", w1), ("w2", w2), ("w3", w3))
}
