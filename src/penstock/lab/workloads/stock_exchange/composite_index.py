"""Statistic 3, composite index: what all stocks together are worth, once a second, 1,000 at the opening.

The index spans all stocks, so its last step sees the whole stream and runs in one place. It is kept small: how a trade
changes the worth of its own stock is found stock by stock, in parallel; the last step adds one number a second.
"""

from __future__ import annotations

from typing import NamedTuple

import penstock as ps
from penstock.lab.workloads.stock_exchange.orders import SECOND
from penstock.lab.workloads.stock_exchange.transactor import Trade

EVERY = SECOND
BASE = 1_000.0


class Change(NamedTuple):
    """By how many cents a trade changed what its stock is worth."""

    at: int
    change: int


class IndexPoint(NamedTuple):
    """The index at the end of a second in which there were trades."""

    at: int
    level: float


class Revalue:
    """Find the change of a stock's worth: a stock of the index has as many shares as `shares` says."""

    def __init__(self, opening: list[int], shares: list[int]) -> None:
        self.opening, self.shares = opening, shares

    def __call__(self, last: int, trade: Trade) -> tuple[int, Change]:
        """Compare a trade with the price before it, at first the opening price."""
        stock, price = trade.stock, trade.price
        last = last or self.opening[stock]
        return price, Change(trade.at, (price - last) * self.shares[stock])


class Level:
    """Add up the changes; the sum is kept in whole cents, so that it never drifts."""

    def __init__(self, opening: list[int], shares: list[int]) -> None:
        self.opening = sum(price * count for price, count in zip(opening, shares, strict=True))

    def __call__(self, changed: int, second: ps.Record) -> tuple[int, IndexPoint]:
        """Take one second in."""
        changed += second.change
        return changed, IndexPoint(second.window_end, BASE * (self.opening + changed) / self.opening)


def composite_index(trades: ps.Stream, opening: list[int], shares: list[int]) -> ps.Stream:
    """Follow the index over all stocks, given their opening prices and numbers of shares."""
    changes = trades.key_by("stock").scan(Revalue(opening, shares), 0, name="revalue")
    seconds = changes.window(EVERY).aggregate(change=ps.agg.sum("change"), name="second")
    return seconds.scan(Level(opening, shares), 0, name="add_up")
