"""An order book as one would explain it at a blackboard: a list of orders, searched from end to end each time.

It shares nothing with the transactor but the rules: the best price first, of equal prices the earliest order, at the
price of the order that waited. Beside the trades it keeps a ledger: cents and shares of each trader.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Order:
    at: int
    number: int
    stock: int
    trader: int
    buy: bool
    price: int
    quantity: int
    left: int = -1

    def __post_init__(self) -> None:
        self.left = self.quantity


@dataclass
class Exchange:
    """All books at once."""

    waiting: list[Order] = field(default_factory=list)
    """In the order in which they came."""
    cash: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Cents of each trader."""
    shares: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    """Shares by (trader, stock)."""
    trades: list[tuple[int, ...]] = field(default_factory=list)
    """(at, stock, price, quantity, buyer, seller, buy order, sell order, best bid, best ask)."""

    def take(self, order: Order) -> None:
        """Execute one order."""
        made = []
        while order.left > 0 and (best := self._best(order.stock, not order.buy)) is not None:
            if (best.price > order.price) if order.buy else (best.price < order.price):
                break
            quantity = min(order.left, best.left)
            order.left -= quantity
            best.left -= quantity
            buy, sell = (order, best) if order.buy else (best, order)
            made.append((order.at, order.stock, best.price, quantity, buy.trader, sell.trader, buy.number, sell.number))
            self.cash[buy.trader] -= best.price * quantity
            self.cash[sell.trader] += best.price * quantity
            self.shares[buy.trader, order.stock] += quantity
            self.shares[sell.trader, order.stock] -= quantity
            self.waiting = [each for each in self.waiting if each.left > 0]
        if order.left > 0:
            self.waiting.append(order)
        bid, ask = (self._best(order.stock, buy) for buy in (True, False))
        self.trades += [(*trade, bid.price if bid else 0, ask.price if ask else 0) for trade in made]

    def _best(self, stock: int, buy: bool) -> Order | None:
        side = [order for order in self.waiting if order.stock == stock and order.buy == buy]
        # Of equal prices min gives the first, which is the earliest.
        return min(side, key=lambda order: -order.price if buy else order.price, default=None)
