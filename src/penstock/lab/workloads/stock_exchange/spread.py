"""Event 4, spread: the gap between the best bid and the best ask of a stock becomes wide, or narrow again."""

from __future__ import annotations

from typing import NamedTuple

import penstock as ps
from penstock.lab.workloads.stock_exchange.transactor import Trade

WIDE, NARROW = 100, 50
"""In ten-thousandths of the bid. Two limits: a gap that trembles about one of them is not an event a trade."""


class Spread(NamedTuple):
    """A gap that has become wide, or narrow again."""

    at: int
    stock: int
    bid: int
    ask: int
    wide: bool


def watch_gap(wide: bool, trade: Trade) -> tuple[bool, list[Spread]]:
    """Look at the book behind a trade; one side may be empty, and then there is no gap to speak of."""
    bid, ask = trade.bid, trade.ask
    if not bid or not ask:
        return wide, []
    points = 10_000 * (ask - bid)
    now = points > (NARROW if wide else WIDE) * bid
    return now, [] if now == wide else [Spread(trade.at, trade.stock, bid, ask, now)]


def spread(trades: ps.Stream) -> ps.Stream:
    """Say when the gap of a stock becomes wide, and when it is narrow again."""
    return trades.key_by("stock").flat_scan(watch_gap, False)
