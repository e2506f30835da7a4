"""Event 5, wash trade: shares go from one trader to another and back, so that a stock looks busier than it is.

The pattern: A sells B some shares of a stock, and within a minute B sells A as many. Somebody who trades with
themselves does so at once.
"""

from __future__ import annotations

from typing import NamedTuple

import penstock as ps
from penstock.lab.workloads.stock_exchange.orders import MINUTE
from penstock.lab.workloads.stock_exchange.transactor import Trade

WITHIN = MINUTE

Recent = dict[tuple[int, int, int], int]
"""When (seller, buyer, shares) was traded last; the earliest first, because a dict keeps the order of its entries."""


class Wash(NamedTuple):
    """Shares that came back."""

    at: int
    stock: int
    trader: int
    """Who has the shares again."""
    other: int
    quantity: int
    sold_at: int


def find_round_trip(recent: Recent, trade: Trade) -> tuple[Recent, list[Wash]]:
    """Look for the same shares on their way out, and remember this trade for their way back."""
    at, buyer, seller, quantity = trade.at, trade.buyer, trade.seller, trade.quantity
    while recent and next(iter(recent.values())) < at - WITHIN:
        del recent[next(iter(recent))]
    if buyer == seller:
        return recent, [Wash(at, trade.stock, buyer, seller, quantity, at)]
    sold_at = recent.pop((buyer, seller, quantity), None)
    if sold_at is not None:
        return recent, [Wash(at, trade.stock, buyer, seller, quantity, sold_at)]
    recent.pop((seller, buyer, quantity), None)  # so that it goes to the end
    recent[seller, buyer, quantity] = at
    return recent, []


def wash_trade(trades: ps.Stream) -> ps.Stream:
    """Find shares that go to and fro."""
    return trades.key_by("stock").flat_scan(find_round_trip, dict)
