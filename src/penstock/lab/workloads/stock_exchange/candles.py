"""Statistic 4, candles: a stock's first, highest, lowest and last price of each minute, and its volume."""

from __future__ import annotations

import penstock as ps
from penstock.lab.workloads.stock_exchange.orders import MINUTE

EVERY = MINUTE


def candles(trades: ps.Stream) -> ps.Stream:
    """Make a candle for each stock and minute in which it was traded; it comes out when the minute is over."""
    return (
        trades.key_by("stock")
        .window(EVERY)
        .aggregate(
            open=ps.agg.first("price"),
            high=ps.agg.max("price"),
            low=ps.agg.min("price"),
            close=ps.agg.last("price"),
            volume=ps.agg.sum("quantity"),
            trades=ps.agg.count(),
            name="minute",
        )
    )
