"""A flow whose rows have the time at which they arrive, for a checkpoint that was written when that was a watermark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock as ps

BEGAN = 1_700_000_000
ROWS = [{"n": n, "k": (7 * n + n // 5) % 5} for n in range(120)]
NUMBERS = {"k": int, "n": int}


class Quiet(ps.Process):
    """Say when a key had no row for three seconds, and how many rows it has had."""

    def on_row(self, row: Any, context: ps.ProcessContext) -> None:
        count, due = context.state or (0, None)
        if due is not None:
            context.cancel_timer(due)
        due = context.time + dt.timedelta(seconds=3)
        context.set_timer(due)
        context.state = (count + 1, due)

    def on_timer(self, time: Any, context: ps.ProcessContext) -> None:
        context.emit((context.key, context.state[0]))
        context.state = (context.state[0], None)


def flow_of(data: Path, out: Path) -> ps.Flow:
    flow = ps.Flow("old arrivals")
    rows = flow.source("rows", ps.read.parquet(str(data), schema=NUMBERS), time=ps.arrival)

    def write(stream: ps.Stream, name: str) -> None:
        stream.sink(name, ps.write.parquet(str(out / name)))

    write(rows.key_by("k").window("4 s").aggregate(n=ps.agg.sum("n"), name="windows"), "in windows")
    write(rows.key_by("k").window(ps.session("3 s")).count(name="sessions"), "in sessions")
    write(rows.key_by("k").process(Quiet, schema=NUMBERS, name="waiting"), "quiet")
    write(rows.key_by("k").aggregate(ttl="2 s", s=ps.agg.sum("n"), name="running"), "kept a while")
    third = rows.filter(lambda row: row.n % 3 == 0, name="third")
    joined = rows.key_by("k").join(
        third.key_by("k"), within=("-2 s", "2 s"), combine=lambda a, b: (a.n, b.n), schema=NUMBERS, name="joined"
    )
    write(joined, "pairs")
    return flow


def clock(start: float) -> Callable[[], float]:
    """Return a time of day that goes on by a second whenever somebody looks."""
    now = start

    def look() -> float:
        nonlocal now
        now += 1
        return now

    return look
