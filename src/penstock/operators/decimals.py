"""Sums and means of decimals: exact, in types that SQL would give them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa

_EXACT = Context(prec=200)
"""Python rounds to 28 digits by itself; columns have up to 76."""


def add(total: Decimal | None, value: Decimal | None) -> Decimal | None:
    """Add a value, if there is one."""
    if value is None:
        return total
    return value if total is None else _EXACT.add(total, value)


def add_one(state: tuple[Any, int], value: Decimal | None) -> tuple[Any, int]:
    """Add a value to the total, and one to the count."""
    return state if value is None else (_EXACT.add(state[0], value), state[1] + 1)


def sum_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of sums: ten digits more, as far as there are any."""
    return _decimal(min(_most(kind), kind.precision + 10), kind.scale, _most(kind))


def mean_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of means: four more places behind the point, as far as there are any."""
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
