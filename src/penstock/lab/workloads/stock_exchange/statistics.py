"""The six statistics of the stock exchange, each a stage of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import nsmallest
from math import log, sqrt
from typing import NamedTuple

import penstock as ps
from penstock.lab.workloads.stock_exchange.orders import MINUTE, SECOND
from penstock.lab.workloads.stock_exchange.transactor import Trade

# Statistic 1, moving average: the mean price of a stock's latest trades, after each of them.

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
    return trades.key_by("stock").scan(average, Latest)


# Statistic 2, volume-weighted average price: what a share of a stock has cost on average since the opening.

Totals = tuple[int, int]
"""Cents paid, and shares."""


class WeightedPrice(NamedTuple):
    """The volume-weighted price after a trade, in cents."""

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
    return trades.key_by("stock").scan(weigh, (0, 0))


# Statistic 3, composite index: what all stocks together are worth, once a second, 1,000 at the opening.
#
# The index spans all stocks, so its last step sees the whole stream and runs in one place. It is kept small: how a
# trade changes the worth of its own stock is found stock by stock, in parallel; the last step adds one number per
# second.

INDEX_EVERY = SECOND
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
        changed += second.change
        return changed, IndexPoint(second.window_end, BASE * (self.opening + changed) / self.opening)


def composite_index(trades: ps.Stream, opening: list[int], shares: list[int]) -> ps.Stream:
    """Follow the index over all stocks, given their opening prices and numbers of shares."""
    changes = trades.key_by("stock").scan(Revalue(opening, shares), 0, name="revalue")
    seconds = changes.window(INDEX_EVERY).aggregate(change=ps.agg.sum("change"), name="second")
    return seconds.scan(Level(opening, shares), 0, name="add_up")


# Statistic 4, candles: a stock's first, highest, lowest and last price of each minute, and its volume.

CANDLE_EVERY = MINUTE


def candles(trades: ps.Stream) -> ps.Stream:
    """Make a candle for each stock and minute in which it was traded; it comes out when the minute is over."""
    return (
        trades.key_by("stock")
        .window(CANDLE_EVERY)
        .aggregate(
            open=ps.agg.first("price"),
            high=ps.agg.max("price"),
            low=ps.agg.min("price"),
            close=ps.agg.last("price"),
            volume=ps.agg.sum("quantity"),
            trades=ps.agg.count(),
            name="minute",
        )
    )


# Statistic 5, volatility: how much a stock's price jumps from trade to trade, later jumps counting more.
#
# This is the exponentially weighted estimate that risk departments use: the variance is 0.94 of what it was, and 0.06
# of the latest squared return.

DECAY = 0.94


class Volatility(NamedTuple):
    """The volatility after a trade: 0.01 is one per cent per trade."""

    at: int
    stock: int
    volatility: float


def estimate(state: tuple[int, float], trade: Trade) -> tuple[tuple[int, float], Volatility]:
    last, variance = state
    price = trade.price
    if last and price != last:
        variance = DECAY * variance + (1.0 - DECAY) * log(price / last) ** 2
    else:
        variance *= DECAY  # no return, or one of nothing: a logarithm less for most trades
    return (price, variance), Volatility(trade.at, trade.stock, sqrt(variance))


def volatility(trades: ps.Stream) -> ps.Stream:
    return trades.key_by("stock").scan(estimate, (0, 0.0))


# Statistic 6, top movers: the stocks whose price changed most in a minute.
#
# Like the index it spans all stocks. It begins with the candles, which are made stock by stock, in parallel; what sees
# all stocks gets one row per stock and minute, not one per trade.

COUNT = 10


class Mover(NamedTuple):
    """One of the stocks that moved most; change 0.01 is one per cent up."""

    at: int
    rank: int
    stock: int
    change: float


def change(candle: ps.Record) -> float:
    """Tell by what part of its first price a stock has moved."""
    moved: float = (candle.close - candle.open) / candle.open
    return moved


def largest(window: ps.Window, candles: list[ps.Record]) -> list[ps.Record]:
    """Keep the candles that moved most, up or down; of equal ones that of the smaller stock number."""
    return nsmallest(COUNT, candles, key=lambda candle: (-abs(change(candle)), candle.stock))


def rank(movers: list[ps.Record]) -> Iterator[Mover]:
    """Write one row per mover."""
    for place, candle in enumerate(movers, 1):
        yield Mover(candle.window_end, place, candle.stock, change(candle))


def top_movers(candles: ps.Stream) -> ps.Stream:
    """Rank the stocks of each minute; a candle belongs to the minute that it closes."""
    return candles.window(CANDLE_EVERY).apply(largest).flat_map(rank)
