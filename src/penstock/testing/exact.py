"""Compare outputs exactly, and look at the order of rows."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any

from penstock.rows.records import Record, Row, any_getter


def exact(value: Any) -> Any:
    """Describe a value so that two descriptions are equal only where the values are the same."""
    if isinstance(value, float):
        return "float", value.hex()
    if isinstance(value, dt.datetime):
        return "datetime", value.isoformat()
    if isinstance(value, Record):
        return "record", value._fields, [exact(part) for part in value]
    name = type(value).__qualname__
    if isinstance(value, (list, tuple)):
        return name, [exact(part) for part in value]
    if isinstance(value, dict):
        return name, [(key, exact(part)) for key, part in value.items()]
    if dataclasses.is_dataclass(value):
        return name, [(field.name, exact(getattr(value, field.name))) for field in dataclasses.fields(value)]
    if hasattr(value, "__dict__"):
        return name, exact(vars(value))
    return name, value


def assert_same(expected: dict[str, list[Any]], found: dict[str, list[Any]]) -> None:
    """Compare the rows of all sinks; the message shows the first that differs."""
    assert set(found) == set(expected)
    for sink, rows in expected.items():
        want, have = [exact(row) for row in rows], [exact(row) for row in found[sink]]
        if want == have:
            continue
        at = next((i for i, (a, b) in enumerate(zip(want, have, strict=False)) if a != b), min(len(want), len(have)))
        raise AssertionError(
            f"sink {sink!r} has {len(have)} rows, expected {len(want)}; they differ at row {at}:\n"
            f"  expected {rows[at : at + 6]}\n  found    {found[sink][at : at + 6]}\n"
            f"  all expected {rows}\n  all found    {found[sink]}"
        )


By = str | Callable[[Row], Any]


def assert_in_order(rows: Iterable[Row], by: By | None = None, *, key: By | None = None, strict: bool = False) -> None:
    """Fail where rows go back: by a field or a function of the row, or by the rows themselves.

    With `key` only rows of one key are compared with each other; with `strict` equal ones are wrong too.
    """
    value, group = _getter(by), _getter(key) if key is not None else lambda row: None
    last: dict[Any, tuple[int, Any]] = {}
    for index, row in enumerate(rows):
        which, now = group(row), value(row)
        if which in last:
            before, then = last[which]
            if now < then or (strict and now == then):
                of_key = "" if key is None else f" of key {which!r}"
                verb = "repeats" if now == then else "goes back behind"
                raise AssertionError(
                    f"row {index}{of_key} {verb} row {before}: {now!r} comes after {then!r}; row {index} is {row!r}"
                )
        last[which] = (index, now)


def _getter(by: By | None) -> Callable[[Row], Any]:
    if by is None:
        return lambda row: row
    return by if callable(by) else any_getter([by])
