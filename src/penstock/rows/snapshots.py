"""Rows as they were when a function gave them away: it may keep what is in them, and change it with the next row."""

from __future__ import annotations

import copy
import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

_FIXED = frozenset(
    {int, float, str, bool, bytes, complex, type(None), Decimal, UUID, dt.datetime, dt.date, dt.time, dt.timedelta}
)


def is_fixed(value: Any) -> bool:
    """Tell at little cost that nothing in a value can be changed in place; False where that is not known."""
    return type(value) in _FIXED or (isinstance(value, tuple) and _FIXED.issuperset(map(type, value)))


def snapshot(value: Any) -> Any:
    """Return a value as it is now, whatever is done later to what it holds; itself where nothing can be done."""
    if is_fixed(value):
        return value
    if type(value) is dict and _FIXED.issuperset(map(type, value.values())):
        return value.copy()
    try:
        return copy.deepcopy(value)
    except Exception:
        return value  # a file, a lock: what cannot be copied is what it is
