"""Statistic 1, moving average: the mean price of a stock's latest trades, after each of them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import penstock as ps
from penstock.lab.workloads.stock_exchange.transactor import Trade

TRADES = 20


class MovingAverage(NamedTuple):
    """The mean of a stock's last prices, in cents."""

    at: int
    stock: int
    average: float


class Latest:
    """The latest prices of a stock and their sum: adding one price must not cost as much as adding all."""

    __slots__ = ("prices", "total")

    def __init__(self) -> None:
        self.prices: deque[int] = deque()
        self.total = 0


def average(latest: Latest, trade: Trade) -> tuple[Latest, MovingAverage]:
    """Take a price in, and the oldest out."""
    prices = latest.prices
    prices.append(trade.price)
    latest.total += trade.price
    if len(prices) > TRADES:
        latest.total -= prices.popleft()  # whole cents: the sum stays exact for ever
    return latest, MovingAverage(trade.at, trade.stock, latest.total / len(prices))


def moving_average(trades: ps.Stream) -> ps.Stream:
    """Follow each stock's moving average."""
    return trades.key_by("stock").scan(average, Latest)
