"""Draw rows of what goes wrong in keys, values and times: nulls, NaN, both zeros, ties, zones, decimals, large numbers.

A table has rows (t, k, v), each column of a kind that was drawn and with few values, so that keys and times meet.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock import read
from penstock.flow import Flow, Stream

from .engines import Epochs, cut

NOON = dt.datetime(2024, 3, 1, 12)
SOME = [NOON + dt.timedelta(seconds=s) for s in (0, 1, 7)]
DECIMALS = [Decimal("0.00"), Decimal("0.01"), Decimal("-7.25"), Decimal("999999.99")]
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [0, 1, -3, 2**62, -(2**62), 2**63 - 1, -(2**63)],
    pa.int32(): [0, 5, 2**31 - 1],
    pa.float64(): [0.0, -0.0, 0.1, 1.5, math.nan, math.inf, -math.inf, 1e16],
    pa.string(): ["", "a", "é"],
    pa.bool_(): [True, False],
    pa.binary(): [b"", b"\x00"],
    pa.decimal128(8, 2): DECIMALS,
    pa.decimal128(38, 2): [*DECIMALS, Decimal("12345678901234567890123456789012.34")],
    pa.timestamp("us"): SOME,
    pa.timestamp("us", "UTC"): [moment.replace(tzinfo=dt.UTC) for moment in SOME],
    pa.date32(): [moment.date() + dt.timedelta(days=n) for n, moment in enumerate(SOME)],
}
"""The values of each type that a column may have; null is one of each."""
NUMBERS = [
    kind for kind in VALUES if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
]
TIMES: dict[pa.DataType, Any] = {
    pa.int64(): lambda n: n,
    pa.timestamp("us"): lambda n: NOON + dt.timedelta(seconds=n),
    pa.timestamp("us", "UTC"): lambda n: (NOON + dt.timedelta(seconds=n)).replace(tzinfo=dt.UTC),
}


@dataclass(frozen=True)
class Table:
    """Rows with the types of their columns, and how they are cut."""

    time: pa.DataType
    key: pa.DataType
    value: pa.DataType
    rows: tuple[tuple[Any, Any, Any], ...]
    size: int
    """Rows of an epoch."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("t", self.time), ("k", self.key), ("v", self.value)])

    @property
    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip("tkv", row, strict=True)) for row in self.rows]

    @property
    def in_seconds(self) -> bool:
        """Tell whether durations are of time, not numbers."""
        return self.time != pa.int64()

    def span(self, number: int) -> Any:
        """Return a duration in the unit of the times."""
        return dt.timedelta(seconds=number) if self.in_seconds else number

    def source(self, flow: Flow, name: str = "in", **options: Any) -> Stream:
        """Bring the rows into a flow."""
        return flow.source(name, read.items(self.dicts, schema=self.schema), time="t", **options)

    def epochs(self, name: str = "in") -> Epochs:
        return cut({name: self.dicts}, [{name: self.size}] * (len(self.rows) // self.size))


@st.composite
def tables(
    draw: st.DrawFn,
    *,
    null_times: bool = False,
    numbers: bool = False,
    time: pa.DataType | None = None,
    key: pa.DataType | None = None,
) -> Table:
    """Draw a table; `numbers` says that its values can be added up."""
    time = draw(st.sampled_from(list(TIMES))) if time is None else time
    # Hypothesis likes what comes first in a list: floats, which can go wrong in most ways.
    kinds = sorted(VALUES, key=lambda kind: not pa.types.is_floating(kind))
    key = draw(st.sampled_from(kinds)) if key is None else key
    value = draw(st.sampled_from([kind for kind in kinds if not numbers or kind in NUMBERS]))
    times = st.integers(0, 30).map(TIMES[time])
    rows = draw(
        st.lists(
            st.tuples(
                times | st.none() if null_times else times,
                st.sampled_from([*VALUES[key][:5], None]),
                st.sampled_from([*VALUES[value], None]),
            ),
            min_size=1,
            max_size=40,
        )
    )
    if draw(st.booleans()):
        rows.sort(key=lambda row: (row[0] is not None, row[0] or 0))
    return Table(time, key, value, tuple(rows), draw(st.integers(1, 40)))


def canonical(value: Any) -> Any:
    """Return what stands for a value in a group: NaN is one, and both zeros are."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value + 0.0)
    return value
