"""Functions that wait."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from penstock.operators import aggregates as agg

from .cases import EVENTS, ZEROS, Sources, case


async def late_inverse(row: Any) -> float:
    """Wait longer for earlier rows; fail where v is 0."""
    await asyncio.sleep(0.0002 * (7 - row.t % 7))
    return 60 / row.v


def slow_inverse(row: Any) -> float:
    """Wait longer for earlier rows; fail where v is 0."""
    time.sleep(0.0002 * (7 - row.t % 7))
    return 60 / row.v


async def is_large(row: Any) -> bool:
    """Wait for some rows only."""
    if row.v % 2:
        await asyncio.sleep(0.0005)
    return bool(row.v > 4)


async def pieces(row: Any) -> list[int]:
    """Wait, then give several rows."""
    await asyncio.sleep(0.0002 * (row.v % 3))
    return list(range(row.v % 4))


async def yielded(row: Any) -> Any:
    """Yield rows with waits between them."""
    for number in range(row.v % 3):
        await asyncio.sleep(0.0001)
        yield row.t, number


@case([{"t": t, "v": t} for t in range(1, 6)], (2,), expects=[60.0, 30.0, 20.0, 15.0, 12.0])
def waiting_keeps_order(s: Sources) -> None:
    s().map(late_inverse).sink("out")


@case(EVENTS)
def waiting_functions_of_all_kinds(s: Sources) -> None:
    stream = s(time="t")
    stream.map(slow_inverse, waits=True, on_error="skip").sink("plain")
    stream.map(late_inverse, in_flight=2, on_error="skip").sink("async")
    stream.filter(is_large).map(lambda r: r.t).sink("filter")
    stream.filter(lambda r: time.sleep(0.0003) or r.v % 2, in_flight=3).sink("plain filter")
    stream.flat_map(pieces).sink("flat_map")
    stream.flat_map(yielded).sink("generator")
    stream.flat_map(lambda r: (r.v, r.t), waits=True).sink("plain flat_map")


@case(EVENTS)
def waiting_functions_among_others(s: Sources) -> None:
    stream = s(time="t")

    async def record(row: Any) -> Any:
        await asyncio.sleep(0.0003 * (row.v % 2))
        return {"k": row.k, "v": row.v}

    looked_up = stream.map(record, schema={"k": int, "v": int})
    looked_up.key_by("k").aggregate(n=agg.count(), total=agg.sum("v")).sink("running")
    looked_up.map(lambda r: r.v).union(stream.flat_map(pieces, in_flight=1), looked_up.map(lambda r: -r.v)).sink("both")
    looked_up.key_by("k").window(6).aggregate(total=agg.sum("v")).sink("windows")


@case(ZEROS)
def waiting_dead_letters(s: Sources) -> None:
    stream = s(time="t")
    for name, function, options in (("async", late_inverse, {}), ("plain", slow_inverse, {"in_flight": 4})):
        mapped = stream.map(function, name=name, on_error="dead_letter", **options)
        mapped.union(mapped.errors.map(lambda e: f"{e.error} {e.where} {e.row}")).sink(f"{name} both")
        mapped.errors.sink(f"{name} errors")


@case(ZEROS, (20,), fails=True)
def fails_in_an_async_function(s: Sources) -> None:
    s().map(late_inverse, name="inv").sink("out")


@case(ZEROS, (20,), fails=True)
def fails_in_a_plain_function_that_waits(s: Sources) -> None:
    s().map(slow_inverse, name="inv", waits=True).sink("out")


@case(ZEROS, (20,), fails=True)
def fails_in_several_functions_that_wait(s: Sources) -> None:
    stream = s(time="t")
    stream.filter(lambda r: r.t > 9).map(late_inverse, name="later").sink("a")
    stream.filter(lambda r: r.t > 5).map(slow_inverse, name="earlier", in_flight=3).sink("b")
