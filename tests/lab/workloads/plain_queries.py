"""The eleven queries over all trades at once, column by column: each in another way than the flow does it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

SECOND, MINUTE = 1_000_000, 60_000_000
NAMES = ["at", "stock", "price", "quantity", "buyer", "seller", "buy_order", "sell_order", "bid", "ask"]


class Trades:
    """Trades as columns, and the row numbers of each stock's."""

    def __init__(self, rows: list[tuple[int, ...]]) -> None:
        self.columns = dict(zip(NAMES, np.array(rows, np.int64).T, strict=True))
        self.count = len(rows)

    def __getattr__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def by_stock(self) -> Iterator[np.ndarray]:
        for stock in np.unique(self.stock):
            yield np.flatnonzero(self.stock == stock)


def in_order(pairs: list[tuple[int, Any]]) -> list[Any]:
    """Bring (row number, result) pairs of different stocks into the order of the trades."""
    return [result for _, result in sorted(pairs, key=lambda pair: pair[0])]


def moving_averages(t: Trades) -> list[tuple[Any, ...]]:
    found = []
    for rows in t.by_stock():
        for n, i in enumerate(rows):
            latest = t.price[rows[max(0, n - 19) : n + 1]]
            found.append((i, (t.at[i], t.stock[i], latest.mean())))
    return in_order(found)


def weighted_prices(t: Trades) -> list[tuple[Any, ...]]:
    found = []
    for rows in t.by_stock():
        shares = np.cumsum(t.quantity[rows])
        cents = np.cumsum(t.quantity[rows] * t.price[rows])
        found += [(i, (t.at[i], t.stock[i], s, c / s)) for i, s, c in zip(rows, shares, cents, strict=True)]
    return in_order(found)


def index_levels(t: Trades, opening: list[int]) -> list[tuple[Any, ...]]:
    """There are as many shares of each stock, so prices alone will do."""
    found = []
    for second in np.unique(t.at // SECOND):
        prices = list(opening)
        for i in np.flatnonzero(t.at // SECOND <= second):
            prices[t.stock[i]] = int(t.price[i])
        found.append(((second + 1) * SECOND, 1000.0 * sum(prices) / sum(opening)))
    return found


def candles(t: Trades) -> list[tuple[Any, ...]]:
    """By minute, and inside it by the first trade of the stock."""
    found = []
    for rows in t.by_stock():
        for minute in np.unique(t.at[rows] // MINUTE):
            inside = rows[t.at[rows] // MINUTE == minute]
            price = t.price[inside]
            start = minute * MINUTE
            ends = (t.stock[inside[0]], start, start + MINUTE)
            candle = (*ends, price[0], price.max(), price.min(), price[-1], t.quantity[inside].sum(), len(inside))
            found.append((inside[0], candle))
    return in_order(found)


def volatilities(t: Trades) -> list[tuple[Any, ...]]:
    """The closed form of the recursion: a weighted sum over all returns so far."""
    found = []
    for rows in t.by_stock():
        squares = np.concatenate([[0.0], np.diff(np.log(t.price[rows])) ** 2])
        for n, i in enumerate(rows):
            weights = 0.06 * 0.94 ** np.arange(n, -1, -1)
            found.append((i, (t.at[i], t.stock[i], math.sqrt((weights * squares[: n + 1]).sum()))))
    return in_order(found)


def top_movers(t: Trades) -> list[tuple[Any, ...]]:
    table = pa.table(
        dict(
            zip(
                ["stock", "end", "open", "close"],
                zip(*[(c[0], c[2], c[3], c[6]) for c in candles(t)], strict=True),
                strict=True,
            )
        )
    )
    found = []
    for end in sorted(set(table["end"].to_pylist())):
        rows = [row for row in table.to_pylist() if row["end"] == end]
        moves = sorted([(-abs(r["close"] / r["open"] - 1), r["stock"], r["close"] / r["open"] - 1) for r in rows])
        found += [(end, place, stock, move) for place, (_, stock, move) in enumerate(moves[:10], 1)]
    return found


def alarms(t: Trades, limits: list[int]) -> list[tuple[Any, ...]]:
    found = []
    for rows in t.by_stock():
        limit = limits[t.stock[rows[0]]]
        above = t.price[rows] > limit
        rings = rows[above & ~np.concatenate([[False], above[:-1]])]
        found += [(i, (t.at[i], t.stock[i], t.price[i], limit)) for i in rings]
    return in_order(found)


def halts(t: Trades) -> list[tuple[Any, ...]]:
    """From one reference trade to the next."""
    found = []
    for rows in t.by_stock():
        at, price, first = t.at[rows], t.price[rows], 0
        while first < len(rows):
            end = np.searchsorted(at, at[first] + 5 * MINUTE)
            outside = np.flatnonzero(abs(price[first:end] - price[first]) * 20 > price[first])
            if len(outside):
                hit = first + outside[0]
                until = at[hit] + MINUTE
                found.append((rows[hit], (at[hit], t.stock[rows[hit]], price[first], price[hit], until)))
                end = np.searchsorted(at, until)
            first = end
    return in_order(found)


def large_trades(t: Trades, least: int) -> list[tuple[Any, ...]]:
    cents = t.price * t.quantity
    return [(t.at[i], t.stock[i], t.buyer[i], t.seller[i], cents[i]) for i in np.flatnonzero(cents >= least)]


def spreads(t: Trades) -> list[tuple[Any, ...]]:
    """Where the gap is wide, where it is narrow, and between the two whatever it was."""
    found = []
    for all_rows in t.by_stock():
        rows = all_rows[(t.bid[all_rows] > 0) & (t.ask[all_rows] > 0)]
        points = 10_000 * (t.ask[rows] - t.bid[rows]) / t.bid[rows]
        known = np.where(points > 100, 1, np.where(points <= 50, 0, -1))
        latest = np.maximum.accumulate(np.where(known >= 0, np.arange(len(rows)), -1))
        wide = np.where(latest >= 0, known[latest], 0)
        for n in np.flatnonzero(np.diff(wide, prepend=0)):
            i = rows[n]
            found.append((i, (t.at[i], t.stock[i], t.bid[i], t.ask[i], bool(wide[n]))))
    return in_order(found)


def washes(t: Trades) -> list[tuple[Any, ...]]:
    """Each trade against all before it."""
    found: list[tuple[Any, ...]] = []
    rows = list(zip(*(t.columns[name].tolist() for name in NAMES[:6]), strict=True))
    open_legs: list[int] = []
    for j, (at, stock, _, quantity, buyer, seller) in enumerate(rows):
        if buyer == seller:
            found.append((at, stock, buyer, seller, quantity, at))
            continue
        out = [i for i in open_legs if rows[i][1] == stock and rows[i][3:] == (quantity, seller, buyer)]
        if out and at - rows[out[-1]][0] <= MINUTE:
            found.append((at, stock, buyer, seller, quantity, rows[out[-1]][0]))
            open_legs = [i for i in open_legs if i not in out]
        else:
            open_legs.append(j)
    return found
