"""Make web clicks and store sales in the order of their time, a million rows per second, at any scale factor.

Everything is made block by block by whole columns (NumPy), from a seed and the block's number, so memory does not grow
with the scale. Users and items are skewed by a power law; visits and sales follow the hours of a day. A visit of the
web shop is a run of clicks, a minute apart on average, and may run into the next block's time: such clicks wait there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.lab.workloads.tpcx_bb import tables
from penstock.lab.workloads.tpcx_bb.tables import DAY, Ints

BLOCK_ROWS = 1_000_000
CLICKS_PER_VISIT = 8
SECONDS_PER_CLICK = 60.0
ANONYMOUS = 0.2
"""The share of visits without a known user."""
BUYING = 0.1
"""The share of visits that end with a purchase."""
NO_ITEM = 0.1
"""The share of clicks that show no item."""
LINES_PER_SALE = 9.1
SKEW_OF_ITEMS, SKEW_OF_USERS = 3, 2
"""Rank r of n has the probability (r + 1) / n to the power 1 / skew, less that of the ranks before it."""

_HOURS = np.array([2, 1, 1, 1, 1, 2, 3, 5, 6, 7, 8, 8, 8, 7, 7, 7, 8, 8, 9, 10, 10, 9, 6, 4], np.float64)
_DAYTIME = np.concatenate([[0.0], np.cumsum(_HOURS) / _HOURS.sum()])
TRENDS = np.array([0.0, 0.5, -0.4, 0.3, -0.2, 0.4, 0.1, -0.6, 0.2, 0.3, -0.1])
"""By how much the prices of each category (from number 1 on) change from the first to the last day."""


def web_clickstreams(scale: float, seed: int, days: int = tables.DAYS, rows: int = BLOCK_ROWS) -> Iterator[pa.Table]:
    """Make the clicks in tables of about so many rows, each in the order of time and none before the last."""
    size = tables.sizes(scale)
    visits, users, items = max(1, size.clicks // CLICKS_PER_VISIT), _users(size, seed), _items(size, seed)
    waiting: list[Ints] = []
    sales = 0
    for block, count, low, high in _blocks(visits, max(1, rows // CLICKS_PER_VISIT)):
        rng = np.random.default_rng([seed, 3, block])
        columns = _clicks(rng, _times(rng, count, low, high, days), users, items, size.pages, sales)
        sales = max(sales, int(columns[1].max()))
        if waiting:
            columns = [np.concatenate([held, made]) for held, made in zip(waiting, columns, strict=True)]
        due = np.flatnonzero(columns[0] < _moment(high, days)) if high < 1.0 else np.arange(len(columns[0]))
        waiting = [np.delete(column, due) for column in columns] if high < 1.0 else []
        order = due[_sorting(columns[0][due])]
        yield _clicks_table([column[order] for column in columns])


def _clicks(rng: np.random.Generator, starts: Ints, users: Ints, items: Ints, pages: int, sales: int) -> list[Ints]:
    """Make the clicks of visits: time, sale, item, page and user of each; 0 is null."""
    visits = len(starts)
    # At least two clicks: one that looks around and one that may buy.
    lengths = 1 + rng.geometric(1 / (CLICKS_PER_VISIT - 1), visits)
    firsts = np.cumsum(lengths) - lengths
    lasts = firsts + lengths - 1
    count = int(lengths.sum())
    passed = np.cumsum(1 + (rng.standard_exponential(count, np.float32) * SECONDS_PER_CLICK).astype(np.int64))
    times = passed + np.repeat(starts - passed[firsts], lengths)
    user = users[_skewed(rng, visits, len(users), SKEW_OF_USERS)]
    user[rng.random(visits) < ANONYMOUS] = 0
    item = items[_skewed(rng, count, len(items), SKEW_OF_ITEMS)]
    bought = item[firsts]
    item[rng.random(count, np.float32) < NO_ITEM] = 0
    page = rng.integers(1, pages + 1, count, np.int32).astype(np.int64)
    # A purchase goes by way of an order page, and is the last click; what is bought was looked at first.
    buys = np.flatnonzero((rng.random(visits) < BUYING) & (user > 0))
    order_page = tables.PAGE_TYPES.index("order") + 1
    page[lasts[buys] - 1] = page[lasts[buys]] = order_page
    item[lasts[buys]] = bought[buys]
    sale = np.zeros(count, np.int64)
    sale[lasts[buys]] = np.arange(sales + 1, sales + 1 + len(buys))
    return [times, sale, item, page, np.repeat(user, lengths)]


def _clicks_table(columns: list[Ints]) -> pa.Table:
    times, sale, item, page, user = columns
    dates = times // DAY
    arrays = [
        pa.array(times),
        pa.array(dates),
        pa.array(times - dates * DAY),
        pa.array(sale, mask=sale == 0),
        pa.array(item, mask=item == 0),
        pa.array(page),
        pa.array(user, mask=user == 0),
    ]
    return pa.Table.from_arrays(arrays, schema=tables.WEB_CLICKSTREAMS)


def store_sales(scale: float, seed: int, days: int = tables.DAYS, rows: int = BLOCK_ROWS) -> Iterator[pa.Table]:
    """Make the sales in tables of about so many rows, in the order of time; the lines of a ticket stand together."""
    size = tables.sizes(scale)
    users, items = _users(size, seed), _items(size, seed)
    prices, categories = tables.item_prices(scale, seed), tables.item_categories(scale, seed)
    tickets = 0
    for block, count, low, high in _blocks(
        max(1, round(size.sales / LINES_PER_SALE)), max(1, int(rows / LINES_PER_SALE))
    ):
        rng = np.random.default_rng([seed, 4, block])
        times = np.sort(_times(rng, count, low, high, days))
        lengths = 1 + rng.poisson(LINES_PER_SALE - 1, count)
        customer = users[_skewed(rng, count, len(users), SKEW_OF_USERS)]
        store = rng.integers(1, size.stores + 1, count)
        ticket = np.arange(tickets + 1, tickets + 1 + count)
        tickets += count
        of = np.repeat(np.arange(count), lengths)
        item = items[_skewed(rng, len(of), len(items), SKEW_OF_ITEMS)]
        quantity = rng.integers(1, 11, len(of), np.int32)
        progress = times / DAY - tables.FIRST_DATE_SK
        paid = quantity * prices[item - 1] * (1 + TRENDS[categories[item - 1]] * (progress / days)[of])
        dates = times // DAY
        arrays = [times[of], dates[of], (times - dates * DAY)[of], item, customer[of], store[of], ticket[of], quantity]
        yield pa.Table.from_arrays([*map(pa.array, arrays), pa.array(np.round(paid, 2))], schema=tables.STORE_SALES)


def _blocks(total: int, most: int) -> Iterator[tuple[int, int, float, float]]:
    """Divide so many visits or sales in blocks: their numbers, how many, and from where to where in the whole time."""
    blocks = max(1, round(total / most))
    edges = [total * number // blocks for number in range(blocks + 1)]
    for number in range(blocks):
        yield number, edges[number + 1] - edges[number], number / blocks, (number + 1) / blocks


def _moment(part: float | npt.NDArray[np.float64], days: int) -> Ints:
    """Return the second at which a part of all visits has begun: they are many by day and few by night."""
    whole, rest = np.divmod(np.asarray(part) * days, 1.0)
    seconds = np.interp(rest, _DAYTIME, np.linspace(0, DAY, len(_DAYTIME)))
    return ((tables.FIRST_DATE_SK + whole) * DAY + seconds).astype(np.int64)


def _times(rng: np.random.Generator, count: int, low: float, high: float, days: int) -> Ints:
    return _moment(low + rng.random(count) * (high - low), days)


def _skewed(rng: np.random.Generator, count: int, ranks: int, skew: int) -> npt.NDArray[np.int32]:
    """Draw ranks from 0 on, the smaller the more often."""
    drawn = rng.random(count, np.float32)
    # Of a product of float32, one may come out as 1.0 exactly.
    power = drawn * drawn if skew == 2 else drawn * drawn * drawn
    return np.minimum((power * ranks).astype(np.int32), ranks - 1)


def _users(size: tables.Sizes, seed: int) -> Ints:
    """Return the users by their rank: who is active is in no order of the keys."""
    return np.random.default_rng([seed, 5]).permutation(size.users) + 1


def _items(size: tables.Sizes, seed: int) -> Ints:
    """Return the items by their rank; the one that the specification names is the most popular."""
    ranked = np.random.default_rng([seed, 6]).permutation(size.items) + 1
    at = int(np.flatnonzero(ranked == tables.NAMED_ITEM)[0])
    ranked[[0, at]] = ranked[[at, 0]]
    return ranked


def _sorting(times: Ints) -> Ints:
    """Return the order of times, equal ones as they stand; sorting packed numbers is several times an argsort."""
    bits = max(1, len(times).bit_length())
    packed = np.sort(((times - times.min()) << bits) | np.arange(len(times)))
    return packed & ((1 << bits) - 1)
