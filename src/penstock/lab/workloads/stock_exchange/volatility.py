"""Statistic 5, volatility: how much a stock's price jumps from trade to trade, later jumps counting more.

This is the exponentially weighted estimate that risk departments use: the variance is 0.94 of what it was, and 0.06 of
the latest squared return.
"""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

import penstock as ps
from penstock.lab.workloads.stock_exchange.transactor import Trade

DECAY = 0.94


class Volatility(NamedTuple):
    """The volatility behind a trade: 0.01 is one per cent a trade."""

    at: int
    stock: int
    volatility: float


def estimate(state: tuple[int, float], trade: Trade) -> tuple[tuple[int, float], Volatility]:
    """Take the return from the last price to this one in."""
    last, variance = state
    price = trade.price
    if last and price != last:
        variance = DECAY * variance + (1.0 - DECAY) * log(price / last) ** 2
    else:
        variance *= DECAY  # no return, or one of nothing: a logarithm less for most trades
    return (price, variance), Volatility(trade.at, trade.stock, sqrt(variance))


def volatility(trades: ps.Stream) -> ps.Stream:
    """Follow each stock's volatility."""
    return trades.key_by("stock").scan(estimate, (0, 0.0))
