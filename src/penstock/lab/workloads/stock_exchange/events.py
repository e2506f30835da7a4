"""The five kinds of event of the stock exchange, each a stage of its own."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow.compute as pc

import penstock as ps
from penstock.lab.workloads.stock_exchange.orders import MINUTE
from penstock.lab.workloads.stock_exchange.transactor import Trade

# Event 1, price alarm: a stock trades above the price that was set for it.
#
# The alarm rings when the price rises above the limit, and again only once it has been at or below it in between.


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
        limit = self.limits[trade.stock]
        if trade.price <= limit:
            return False, []
        return True, [] if above else [Alarm(trade.at, trade.stock, trade.price, limit)]


def price_alarm(trades: ps.Stream, limits: list[int]) -> ps.Stream:
    """Ring when a stock trades above its limit."""
    return trades.key_by("stock").flat_scan(Watch(limits), False, name="watch")


# Event 2, circuit breaker: a stock's price leaves the band around its reference price, and trading should pause.
#
# The reference is at most five minutes old: it is taken again from the first trade after that time, and after a pause.
# The event says until when to pause; the exchange would send it back to the transactor.

BAND_PERCENT = 5
SPAN = 5 * MINUTE
PAUSE = MINUTE

State = tuple[int, int, int] | None
"""The reference price, when it ends, and until when trading pauses."""


class Halt(NamedTuple):
    """A price outside of the band."""

    at: int
    stock: int
    reference: int
    price: int
    until: int


def hold_to_band(state: State, trade: Trade) -> tuple[State, list[Halt]]:
    at, price = trade.at, trade.price
    if state is None:
        return (price, at + SPAN, at), []
    reference, ends, paused = state
    if at < paused:
        return state, []
    if at >= ends:
        return (price, at + SPAN, at), []
    # In whole numbers, so that a price at the very edge is inside on every machine.
    if 100 * abs(price - reference) <= BAND_PERCENT * reference:
        return state, []
    until = at + PAUSE
    return (reference, until, until), [Halt(at, trade.stock, reference, price, until)]


def circuit_breaker(trades: ps.Stream) -> ps.Stream:
    """Say when trading in a stock should pause."""
    return trades.key_by("stock").flat_scan(hold_to_band, None)


# Event 3, large trade: more money changed hands at once than a limit.
#
# One trade is all that it takes to know, so there is no state and no key, and the comparison runs on whole columns.

CENTS = 20_000_000


def large_trade(trades: ps.Stream) -> ps.Stream:
    """Keep the trades that are worth at least the limit."""
    value = pc.field("price") * pc.field("quantity")
    large = trades.select("at", "stock", "buyer", "seller", cents=value, name="value")
    return large.filter(pc.field("cents") >= CENTS, name="large")


# Event 4, spread: the gap between the best bid and the best ask of a stock becomes wide, or narrow again.

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
    """Look at the book after a trade; one side may be empty, and then there is no gap to speak of."""
    bid, ask = trade.bid, trade.ask
    if not bid or not ask:
        return wide, []
    points = 10_000 * (ask - bid)
    now = points > (NARROW if wide else WIDE) * bid
    return now, [] if now == wide else [Spread(trade.at, trade.stock, bid, ask, now)]


def spread(trades: ps.Stream) -> ps.Stream:
    """Say when the gap of a stock becomes wide, and when it is narrow again."""
    return trades.key_by("stock").flat_scan(watch_gap, False)


# Event 5, wash trade: shares go from one trader to another and back, so that a stock looks busier than it is.
#
# The pattern: A sells B some shares of a stock, and within a minute B sells A as many. Somebody who trades with
# themselves does so at once.

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
    return trades.key_by("stock").flat_scan(find_round_trip, dict)
