"""Of a table of tests, run one of each row by `make test`, and the others by `make chaos`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def one_of_each(rows: Iterable[Any], columns: Sequence[Any]) -> list[Any]:
    """Return all pairs as parameters: each row's first one is the next column in turn, and the others are `slow`.

    So each row and each column is run each time, as long as there are as many rows as columns.
    """
    return [
        pytest.param(
            row,
            column,
            id=f"{_name(row)}-{_name(column)}",
            marks=[] if place == number % len(columns) else [pytest.mark.slow],
        )
        for number, row in enumerate(rows)
        for place, column in enumerate(columns)
    ]


def few_of(seeds: Sequence[int], count: int) -> list[Any]:
    """Return seeds as parameters: the first ones, and the others as `slow`."""
    return [*seeds[:count], *(pytest.param(seed, marks=pytest.mark.slow) for seed in seeds[count:])]


def _name(value: Any) -> str:
    """Return a name that is the same in every process."""
    return str(getattr(value, "name", getattr(value, "__name__", value)))
