"""Statistic 2, volume-weighted average price: what a share of a stock has cost on average since the opening."""

from __future__ import annotations

from typing import NamedTuple

import penstock as ps
from penstock.lab.workloads.stock_exchange.transactor import Trade

Totals = tuple[int, int]
"""Cents paid, and shares."""


class WeightedPrice(NamedTuple):
    """The volume-weighted price behind a trade, in cents."""

    at: int
    stock: int
    shares: int
    price: float


def weigh(totals: Totals, trade: Trade) -> tuple[Totals, WeightedPrice]:
    """Add a trade; both sums are integers, and only what comes out is divided."""
    cents, shares = totals
    cents += trade.price * trade.quantity
    shares += trade.quantity
    return (cents, shares), WeightedPrice(trade.at, trade.stock, shares, cents / shares)


def volume_weighted_price(trades: ps.Stream) -> ps.Stream:
    """Follow each stock's volume-weighted price."""
    return trades.key_by("stock").scan(weigh, (0, 0))
