"""Look at the order of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.rows import Row, any_getter

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
