"""Numbers computed exactly: sums and means of decimals, quantiles, division of whole numbers and its rest.

Sums and means of decimals have the types that SQL would give them. A quantile keeps all numbers, and puts them in order
when its result is asked for. Division is as in Python, by functions that are registered with Arrow: not every supported
version has its own, and its division of whole numbers truncates. Here `-7 // 2` is -4 and `-7 % 2` is 1; by the whole
number 0 both are null.
"""

from __future__ import annotations

import contextlib
import math
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import FlowError

_EXACT = Context(prec=200)
"""By default Python rounds to 28 digits; columns have up to 76."""


def add(total: Decimal | None, value: Decimal | None) -> Decimal | None:
    if value is None:
        return total
    return value if total is None else _EXACT.add(total, value)


def add_one(state: tuple[Any, int], value: Decimal | None) -> tuple[Any, int]:
    return state if value is None else (_EXACT.add(state[0], value), state[1] + 1)


def sum_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of sums: ten more digits, up to the most that there are."""
    return _decimal(min(_most(kind), kind.precision + 10), kind.scale, _most(kind))


def mean_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of means: four more decimal places, up to the most digits that there are."""
    more = min(4, _most(kind) - kind.precision)
    return _decimal(kind.precision + more, kind.scale + more, _most(kind))


def _most(kind: pa.DataType) -> int:
    return 76 if pa.types.is_decimal256(kind) else 38


def _decimal(precision: int, scale: int, most: int) -> pa.DataType:
    return pa.decimal256(precision, scale) if most == 76 else pa.decimal128(precision, scale)


@dataclass(frozen=True)
class Fitting:
    """Return a sum; refuse one that its type cannot hold."""

    kind: pa.DataType

    def __call__(self, total: Decimal | None) -> Decimal | None:
        if total is not None and total.copy_abs() >= Decimal(1).scaleb(self.kind.precision - self.kind.scale):
            raise OverflowError(f"the sum {total} does not fit {self.kind}, the type of its field")
        return total


@dataclass(frozen=True)
class Average:
    """Return the mean of a (total, count), rounded half up to the places of its type."""

    kind: pa.DataType

    def __call__(self, state: tuple[Any, int]) -> Decimal | None:
        if not state[1]:
            return None
        average = _EXACT.divide(state[0], Decimal(state[1]))
        return average.quantize(Decimal(1).scaleb(-self.kind.scale), ROUND_HALF_UP, _EXACT)


Interpolation = Literal["linear", "lower", "higher", "nearest"]
KINDS: tuple[str, ...] = get_args(Interpolation)
FEW = 8
"""Up to this many new numbers are inserted one by one; more are sorted in."""


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
    """Return a number; refuse other values, and numbers too large for a float."""
    if value is None:
        return None
    if not isinstance(value, (int, float, Decimal)):
        raise TypeError(f"quantile() takes numbers, not {value!r}")
    float(value)
    return value


def no_number(kind: pa.DataType) -> bool:
    return not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


@dataclass(frozen=True)
class Quantile:
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


_KINDS = {"int64": pa.int64(), "double": pa.float64()}
_OPERATIONS: dict[str, Callable[..., Any]] = {"floor_divide": np.floor_divide, "modulo": np.mod}


def division(operation: str, left: pc.Expression, right: pc.Expression, whole: bool) -> pc.Expression:
    """Divide numbers ("floor_divide"), or find the rest ("modulo"), of whole numbers or floats."""
    kind = "int64" if whole else "double"
    arguments = [side.cast(_KINDS[kind], safe=whole) for side in (left, right)]
    return pc.Expression._call(f"penstock_{operation}_{kind}", arguments)


def _function(operation: Callable[..., Any], kind: pa.DataType) -> Callable[..., pa.Array]:
    def compute(context: Any, left: Any, right: Any) -> pa.Array:
        count = context.batch_length
        (a, a_valid), (b, b_valid) = (_numbers(side, count) for side in (left, right))
        valid = a_valid & b_valid
        if kind == pa.int64():
            valid &= b != 0
            b = np.where(valid, b, 1)
            if ((a == np.iinfo(np.int64).min) & (b == -1)).any():
                raise OverflowError("the smallest whole number divided by -1 does not fit int64")
        with np.errstate(all="ignore"):
            return pa.array(operation(a, b), kind, mask=~valid)

    return compute


def _numbers(side: Any, count: int) -> tuple[Any, Any]:
    """Return the numbers of an argument, and which are not null."""
    column = pa.repeat(side, count) if isinstance(side, pa.Scalar) else side
    return column.fill_null(1).to_numpy(zero_copy_only=False), column.is_valid().to_numpy(zero_copy_only=False)


def _register() -> None:
    for name, operation in _OPERATIONS.items():
        for kind, arrow in _KINDS.items():
            with contextlib.suppress(pa.ArrowKeyError):  # there already: this module was loaded again
                pc.register_scalar_function(
                    _function(operation, arrow),
                    f"penstock_{name}_{kind}",
                    {"summary": f"{name} of two numbers", "description": "as Python computes it"},
                    {"left": arrow, "right": arrow},
                    arrow,
                )


_register()  # wherever expressions are computed: see stateless.py
