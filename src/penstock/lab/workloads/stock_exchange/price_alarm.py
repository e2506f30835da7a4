"""Event 1, price alarm: a stock trades above the price that somebody has set for it.

The alarm rings when the price rises above the limit, and again only once it has been at or below it in between.
"""

from __future__ import annotations

from typing import NamedTuple

import penstock as ps
from penstock.lab.workloads.stock_exchange.transactor import Trade


class Alarm(NamedTuple):
    """A price above its limit, both in cents."""

    at: int
    stock: int
    price: int
    limit: int


class Watch:
    """Compare each trade with the limit of its stock; `limits[stock]` is in cents."""

    def __init__(self, limits: list[int]) -> None:
        self.limits = limits

    def __call__(self, above: bool, trade: Trade) -> tuple[bool, list[Alarm]]:
        """Ring on the way up."""
        limit = self.limits[trade.stock]
        if trade.price <= limit:
            return False, []
        return True, [] if above else [Alarm(trade.at, trade.stock, trade.price, limit)]


def price_alarm(trades: ps.Stream, limits: list[int]) -> ps.Stream:
    """Ring when a stock trades above its limit."""
    return trades.key_by("stock").flat_scan(Watch(limits), False, name="watch")
