"""Quantiles of numbers: all are kept, and put in order when the result is asked for."""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

import pyarrow as pa

from penstock.errors import FlowError

Interpolation = Literal["linear", "lower", "higher", "nearest"]
KINDS: tuple[str, ...] = get_args(Interpolation)
FEW = 8
"""New numbers up to so many find their places one by one."""


def nothing() -> list[Any]:
    """Begin a quantile: numbers in order, numbers that came since, how many are NaN."""
    return [[], [], 0]


def quantile_step(state: list[Any], value: Any) -> list[Any]:
    """Note a number; it is put in order when the result is asked for."""
    if value is None:
        return state
    if value != value:  # noqa: PLR0124 (NaN)
        state[2] += 1
    else:
        state[1].append(value)
    return state


def number(value: Any) -> Any:
    """Return a number; refuse what is none, and one that is too large for a float."""
    if value is None:
        return None
    if not isinstance(value, (int, float, Decimal)):
        raise TypeError(f"quantile() takes numbers, not {value!r}")
    float(value)
    return value


def no_number(kind: pa.DataType) -> bool:
    """Tell of a type that its values are no numbers."""
    return not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


@dataclass(frozen=True)
class Quantile:
    """Find a quantile of the numbers in a state."""

    q: float
    interpolation: Interpolation

    def __post_init__(self) -> None:
        if isinstance(self.q, bool) or not isinstance(self.q, (int, float)) or not 0 <= self.q <= 1:
            raise FlowError(f"ps.agg.quantile: q={self.q!r}; give a number from 0 to 1, 0.5 for the median")
        if self.interpolation not in KINDS:
            raise FlowError(f"ps.agg.quantile: interpolation={self.interpolation!r}; use one of {', '.join(KINDS)}")

    def __call__(self, state: list[Any]) -> Any:
        numbers, new, nans = state
        if len(new) <= FEW:
            for each in new:
                insort(numbers, each)
        else:
            numbers += new
            numbers.sort()  # stable, so that it gives what `insort` gives
        new.clear()
        count = len(numbers) + nans
        if count == 0:
            return None
        place = (count - 1) * self.q
        low = math.floor(place)
        part = place - low
        if self.interpolation != "linear":
            up = self.interpolation == "higher" or (self.interpolation == "nearest" and part > 0.5)
            return self._at(numbers, low + (up and part > 0))
        below = float(self._at(numbers, low))
        if part == 0:
            return below
        above = float(self._at(numbers, low + 1))
        return below if above == below else below + (above - below) * part

    @staticmethod
    def _at(numbers: list[Any], place: int) -> Any:
        return numbers[place] if place < len(numbers) else math.nan
