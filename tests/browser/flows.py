"""The rows of the flows whose pages are visited."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def orders(start: int, stop: int) -> pa.Table:
    number = np.arange(start, stop)
    return pa.table({"n": number, "k": number % 97})


def total(state: int | None, row: Any) -> tuple[int, dict[str, int]]:
    return (state or 0) + row.n, {"k": row.k, "total": (state or 0) + row.n}
