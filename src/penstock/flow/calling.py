"""Options of functions that call somebody, as streams take them."""

from __future__ import annotations

from typing import Any

from penstock import checks
from penstock.errors import FlowError
from penstock.operators.calls import CallOptions, Calls, make_calls
from penstock.operators.stateless import is_async_function, rows_in_flight
from penstock.rows import RowType


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
    if calls is not None and is_async_function(calls.setup) and not is_async_function(function):
        raise FlowError(
            f"operator {name!r}: its setup= is an async def, and its function is none; make both async def, or neither"
        )
    return rows_in_flight(function, waits, in_flight, name, yields=yields), calls
