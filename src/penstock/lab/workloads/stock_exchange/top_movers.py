"""Statistic 6, top movers: the stocks whose price changed most in a minute.

Like the index it spans all stocks. It begins with the candles, which are made stock by stock, in parallel; what sees
all stocks gets one row a stock and minute, not one a trade.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from typing import NamedTuple

import penstock as ps
from penstock.lab.workloads.stock_exchange.candles import EVERY

COUNT = 10


class Mover(NamedTuple):
    """One of the stocks that moved most; change 0.01 is one per cent up."""

    at: int
    rank: int
    stock: int
    change: float


def change(candle: ps.Record) -> float:
    """Tell by what part of its first price a stock has moved."""
    moved: float = (candle.close - candle.open) / candle.open
    return moved


def largest(window: ps.Window, candles: list[ps.Record]) -> list[ps.Record]:
    """Keep the candles that moved most, up or down; of equal ones that of the smaller stock number."""
    return nsmallest(COUNT, candles, key=lambda candle: (-abs(change(candle)), candle.stock))


def rank(movers: list[ps.Record]) -> Iterator[Mover]:
    """Write one row a mover."""
    for place, candle in enumerate(movers, 1):
        yield Mover(candle.window_end, place, candle.stock, change(candle))


def top_movers(candles: ps.Stream) -> ps.Stream:
    """Rank the stocks of each minute; a candle belongs to the minute that it closes."""
    return candles.window(EVERY).apply(largest).flat_map(rank)
