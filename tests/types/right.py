"""What users write, and a type checker must take. Read by test_types.py, never run."""

from typing import Any

import penstock as ps
from penstock import lab
from penstock.statistics import FlowStats
from penstock.testing import run_list


def say(stats: FlowStats) -> None:
    print(stats.rows_in)


def running(state: int, row: Any) -> tuple[int, int]:
    return state + 1, state + 1


flow = ps.Flow("typed")
rows = flow.source("rows", ps.read.items([{"k": 1, "v": 2.0}]))
kept: ps.Stream = rows.key_by("k").scan(running, 0, schema={"n": int}, name="count")
kept.sink("out")
rows.key_by("k").window(ps.count_window(3)).sum("v", name="sums").sink("sums")
(rows >> ps.map(lambda row: row.v, name="values") >> ps.sink("values"))

done: ps.Run = ps.run(flow)
ps.run(flow, on=ps.Spark(tasks=4, every="2 s"), checkpoint="state/typed", latency="2 s", page=True, on_epoch=say)
ps.run(flow, on=ps.Threads(workers=2, model="bound", binding=lab.Greedy()), history="seen")
ps.run(flow, on=ps.Threads(workers=lab.StreamsRules(), policy="min-latency", replicas={"count": 2}))
ps.run(flow, on=ps.Threads(workers="utilization", replicas="auto", reorder=lab.Locked(), quantum=0.01))
ps.run(flow, on=ps.Sequential(epoch_rows=10), end=False)
started = ps.start(flow, on=ps.Threads(), page=0, page_host="127.0.0.1", page_token=None, name_keys=True)
started.set_replicas("count", 2)
numbers: list[str] = started.queries
epochs: list[FlowStats] = started.epochs
run_list(lambda stream: stream.sort(), [1, 2], on=ps.Threads(), time="at", slack=2)
