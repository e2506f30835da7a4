"""Division of whole numbers and its rest, as Python has them: functions of Arrow's for expressions.

Not every version of Arrow that is supported has them, and its own division of whole numbers cuts off. Here `-7 // 2` is
-4 and `-7 % 2` is 1; by the whole number 0 both are null.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
