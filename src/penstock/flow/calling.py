"""Options of functions that call somebody, as streams take them."""

from __future__ import annotations

from typing import Any

from penstock.errors import FlowError
from penstock.flow import checks
from penstock.operators.calls import CallOptions, Calls, WallTime, make_calls, positive_seconds
from penstock.operators.stateless import is_async_function, rows_in_flight
from penstock.rows.records import RowType


def arguments_of(options: CallOptions) -> tuple[str, ...]:
    """Return what a function is called with."""
    return ("row", "client") if {"setup", "setup_per"} & options.keys() else ("row",)


def calls_of(
    row: RowType | None,
    function: Any,
    waits: bool | None,
    in_flight: int | None,
    options: CallOptions,
    name: str,
    *,
    yields: bool = False,
) -> tuple[int | None, Calls | None]:
    """Return how many rows of a function to wait for at once, and how its calls are made; refuse what is wrong."""
    calls = make_calls(options, waits, name)
    if calls is not None and calls.cache is not None:
        for field in calls.cache.fields:
            checks.field(row, field, name, "the cache")
    if calls is not None and calls.waits:
        waits = True
    if calls is not None and calls.setup is not None:
        checks.called_with(calls.setup, name, (), "its setup=")
    if calls is not None and is_async_function(calls.setup) and not is_async_function(function):
        raise FlowError(
            f"operator {name!r}: its setup= is an async def, and its function is none; make both async def, or neither"
        )
    return rows_in_flight(function, waits, in_flight, name, yields=yields), calls


def batch_calls(
    rows: int | None, wait: WallTime | None, setup: Any, setup_per: Any, name: str
) -> tuple[int | None, float | None, Calls | None]:
    """Return how many rows a call over batches gets, how long they may wait for others, and its set-up."""
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 1):
        raise FlowError(f"operator {name!r}: rows={rows!r}; give a whole number of rows, 1 or more")
    if wait is not None and rows is None:
        raise FlowError(f"operator {name!r}: wait={wait!r} without rows=; say how many rows to wait for")
    if is_async_function(setup):
        raise FlowError(f"operator {name!r}: its setup= is an async def, and its function is none; make it a plain one")
    given: Any = {"setup": setup, "setup_per": setup_per}
    seconds = None if wait is None else positive_seconds(wait, name, "wait")
    calls = make_calls(given, None, name)
    if setup is not None:
        checks.called_with(setup, name, (), "its setup=")
    return rows, seconds, calls
