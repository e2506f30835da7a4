"""Execute orders: the transactor keeps an order book for each stock and matches by price, then by time.

A new order trades with the best orders of the other side, at their prices, the earliest first, as long as its own limit
allows; what is left of it waits in the book. The book of a stock is the state of its key, so that stocks are served in
parallel, wherever the engine puts them.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import penstock as ps

Waiting = list[int]
"""[price, negative for a bid; number of the order; trader; shares left]: the smallest is the next to trade."""
Book = tuple[list[Waiting], list[Waiting]]
"""The bids and the asks that wait, each side a heap."""


class Trade(NamedTuple):
    """A transaction, and what the book offers after the order that made it."""

    at: int
    stock: int
    price: int
    quantity: int
    buyer: int
    seller: int
    buy_order: int
    sell_order: int
    bid: int
    """The best bid that waits now; 0 where there is none."""
    ask: int


def empty_book() -> Book:
    return [], []


def execute(book: Book, order: ps.Record) -> tuple[Book, list[Trade]]:
    """Execute one order against the book of its stock, which is changed in place: it may be large."""
    at, number, stock, trader, buy, limit, left, _ = order
    bids, asks = book
    fills: list[tuple[int, int, int, int]] = []
    if buy:
        while left and asks and asks[0][0] <= limit:
            price, other, seller, shares = asks[0]
            shares = _take(asks, min(left, shares))
            left -= shares
            fills.append((price, shares, seller, other))
        if left:
            heappush(bids, [-limit, number, trader, left])
    else:
        while left and bids and -bids[0][0] >= limit:
            price, other, buyer, shares = bids[0]
            shares = _take(bids, min(left, shares))
            left -= shares
            fills.append((-price, shares, buyer, other))
        if left:
            heappush(asks, [limit, number, trader, left])
    if not fills:
        return book, []
    bid, ask = -bids[0][0] if bids else 0, asks[0][0] if asks else 0
    if buy:
        return book, [Trade(at, stock, p, n, trader, who, number, other, bid, ask) for p, n, who, other in fills]
    return book, [Trade(at, stock, p, n, who, trader, other, number, bid, ask) for p, n, who, other in fills]


def _take(side: list[Waiting], shares: int) -> int:
    """Take shares from the first order of a side; it leaves the book once it has none left."""
    first = side[0]
    if first[3] == shares:
        heappop(side)
    else:
        first[3] -= shares  # its place in the heap does not depend on its shares
    return shares


def transactor(orders: ps.Stream) -> ps.Stream:
    return orders.key_by("stock").flat_scan(execute, empty_book)
