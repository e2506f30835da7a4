"""Event 3, large trade: more money changed hands at once than a limit.

One trade is all that it takes to know, so there is no state and no key, and the comparison runs on whole columns.
"""

from __future__ import annotations

import pyarrow.compute as pc

import penstock as ps

CENTS = 20_000_000


def large_trade(trades: ps.Stream) -> ps.Stream:
    """Keep the trades that are worth at least the limit."""
    value = pc.field("price") * pc.field("quantity")
    large = trades.select("at", "stock", "buyer", "seller", cents=value, name="value")
    return large.filter(pc.field("cents") >= CENTS, name="large")
