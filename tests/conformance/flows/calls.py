"""Calls that are tried again, take too long, come at a rate, or are remembered."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pyarrow as pa

import penstock as ps

from .cases import EVENTS, ZEROS, Sources, case

LAST, TASKS = threading.local(), {}
"""The row that was last asked for in each thread, or task, and how often: all attempts of a row are made in one."""


def count_attempt(row: Any, fails: int, retries: int | None = None) -> None:
    """Fail at the first attempts of a row, so many.

    With `retries` the row is forgotten at its last attempt: the same object may come again as another row.
    """
    LAST.count = LAST.count + 1 if getattr(LAST, "row", None) is row else 1
    LAST.row = row
    if LAST.count > fails or LAST.count == (None if retries is None else 1 + retries):
        LAST.row = None
    if LAST.count <= fails:
        raise ConnectionError(f"attempt {LAST.count}")


def flaky(row: Any) -> float:
    """Fail as often as v mod 3 says before it answers; always where v is 0."""
    count_attempt(row, row.v % 3)
    return 60 / row.v


async def flaky_async(row: Any) -> float:
    """Do the same, in a task."""
    task = asyncio.current_task()
    last, count = TASKS.get(task, (None, 0))
    count = count + 1 if last is row else 1
    TASKS[task] = row, count
    await asyncio.sleep(0.0002 * (row.t % 3))
    if count <= row.v % 3:
        raise ConnectionError(f"attempt for {row.v}")
    del TASKS[task]
    return 60 / row.v


AGAIN: Any = {"retries": 2, "backoff": ("1 ms", "2 ms")}


@case([{"t": t, "v": t} for t in range(1, 6)], (2,), expects=[60.0, 30.0, 20.0, 15.0, 12.0])
def retried_calls_keep_order(s: Sources) -> None:
    s().map(flaky, **AGAIN).sink("out")


@case(EVENTS)
def retried_calls_of_all_kinds(s: Sources) -> None:
    stream = s(time="t").filter(lambda r: r.v)
    stream.map(flaky, in_flight=3, **AGAIN).sink("plain")
    stream.map(flaky_async, **AGAIN).sink("async")
    stream.filter(lambda r: flaky(r) > 9, **AGAIN).sink("filter")
    stream.flat_map(lambda r: (n for n in range(int(flaky(r)) % 4)), **AGAIN).sink("flat_map")


@case(ZEROS)
def exhausted_calls_are_dead_letters_in_their_place(s: Sources) -> None:
    stream = s(time="t")
    for name, function in (("plain", flaky), ("async", flaky_async)):
        made = stream.map(function, name=name, on_error="dead_letter", retries=1, backoff="1 ms")
        made.union(made.errors.map(lambda e: f"{e.error} {e.where} {e.row} {e.attempts}")).sink(f"{name} both")
        made.errors.sink(f"{name} errors")
        stream.map(function, name=f"{name} skipped", on_error="skip", **AGAIN).sink(f"{name} out")


@case(ZEROS, (20,), fails=True)
def fails_when_attempts_are_exhausted(s: Sources) -> None:
    s().map(flaky_async, name="inv", **AGAIN).sink("out")


@case(ZEROS, (20,), fails=True)
def fails_in_a_plain_call_when_attempts_are_exhausted(s: Sources) -> None:
    s().map(flaky, name="inv", **AGAIN).sink("out")


@case(EVENTS)
def calls_that_take_too_long(s: Sources) -> None:
    async def hangs(row: Any) -> None:
        await asyncio.sleep(3600)

    stream = s(time="t")
    some = stream.filter(lambda r: r.t % 7 == 0)
    late = some.map(hangs, timeout="2 ms", retries=1, backoff="1 ms", on_error="dead_letter")
    slow = some.map(lambda r: time.sleep(0.05), name="slow", timeout="2 ms", on_error="dead_letter")
    late.union(late.errors, slow.errors, stream.map(lambda r: r.v)).sink("all")


@case(EVENTS)
def calls_that_are_remembered(s: Sources) -> None:
    stream = s(time="t")
    stream.map(lambda r: r.v * 2, cache=ps.Cache(2, by="v")).sink("by field")
    stream.map(lambda r: (r.v, r.t), cache=ps.Cache(100, ttl="1 hour", by=("v", "t")), rate=5000.0).sink("by fields")
    stream.flat_map(lambda r: [{"n": r.v}] * (r.v % 3), cache=3, schema={"n": int}).sink("rows")
    stream.filter(lambda r: 6 // r.v > 2, cache=8, on_error="skip").sink("filter")


def table() -> Any:
    """Make what a function looks up in."""
    yield {v: f"<{v}>" for v in range(-10, 10)}


async def table_async() -> dict[int, str]:
    """Make the same in the event loop."""
    await asyncio.sleep(0)
    return {v: f"[{v}]" for v in range(-10, 10)}


async def look_up(row: Any, known: Any) -> Any:
    """Look up, with a wait."""
    await asyncio.sleep(0.0002 * (row.t % 3))
    return known[row.v]


@case(EVENTS)
def calls_of_a_client(s: Sources) -> None:
    stream = s(time="t")
    stream.map(lambda r, known: known[r.v], setup=table).sink("plain")
    stream.map(lambda r, known: known[r.v], setup=table, retries=1, in_flight=3).sink("waiting")
    stream.map(look_up, setup=table_async, cache=20).sink("async")
    stream.flat_map(lambda r, known: list(known[r.v]), setup=table, setup_per="thread", waits=True).sink("letters")
    stream.filter(lambda r, known: len(known[r.v]) > 3, setup=table).sink("filter")


def doubled(batch: Any) -> Any:
    """Give every row twice as many, and rows of odd v two times."""
    v = batch.column("v")
    index = [i for i, value in enumerate(v.to_pylist()) for _ in range(1 + value % 2)]
    return pa.RecordBatch.from_pydict({"v": [v[i].as_py() * 2 for i in index]}), index


def refused(batch: Any) -> Any:
    """Fail where v is 0."""
    return pa.RecordBatch.from_pydict({"v": [60 // v for v in batch.column("v").to_pylist()]})


TYPED = {"t": int, "k": int, "v": int}


@case(EVENTS)
def batches_of_so_many_rows(s: Sources) -> None:
    stream = s(time="t").map(lambda r: r, schema=TYPED, name="typed")
    for rows in (1, 3, 100):
        small = stream.map_batches(doubled, schema={"v": int}, rows=rows, name=f"{rows} at once")
        small.sink(f"{rows} rows")
        patient = stream.map_batches(doubled, schema={"v": int}, rows=rows, wait="1 ms", name=f"{rows} patiently")
        patient.union(stream.map(lambda r: {"v": r.v}, schema={"v": int}, name=f"beside {rows}")).sink(f"{rows} both")
    kept = stream.map_batches(lambda b, n: b.slice(0, b.num_rows), setup=lambda: 3, rows=5, wait="1 ms", name="client")
    kept.sink("kept")
    none = stream.map_batches(lambda b: (b.slice(0, 0), []), rows=4, wait="1 ms", name="none")
    none.sink("nothing")


@case(ZEROS, (20,), fails=True)
def fails_in_a_batch_of_several(s: Sources) -> None:
    stream = s(time="t").map(lambda r: r, schema=TYPED, name="typed")
    stream.map_batches(refused, schema={"v": int}, rows=6, wait="5 ms", name="inv").sink("out")
