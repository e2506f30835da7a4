"""Make limit orders: a few thousand stocks, of which other ones are popular from one moment to the next.

Every order is a function of its number and the seed alone, so that any task can make any piece of the stream, and make
it again after a crash. An order takes about 96 bytes in memory, as in the paper. Prices are whole cents.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.lab.workloads.scatter import Floats, Ints, Numbers, scatter, unit

SECOND, MINUTE = 1_000_000, 60_000_000
"""Exchanges stamp orders with an integer since the beginning of the day: here microseconds since the opening."""
CYCLE = 20_000
"""Orders of a calm half and a half in which they come four times as fast, one stock having a third of them."""
CYCLE_MICROS = 9 * SECOND
"""8 million orders an hour, as the exchange of the paper had."""
SHUFFLE = 100_000
"""After so many orders the popularity of all stocks is dealt anew: the paper's key shuffles."""
SKEW = 0.9
"""The n-th most popular stock has 1 / n ** SKEW of the orders of the first."""
KNOT_MICROS = MINUTE
"""What a stock is worth moves in a straight line from one draw to the next, so often."""
MOST_STOCKS = 10_000
"""With more, the least popular would have no share of the 16 bits that draw a stock."""
TRADERS, RINGS = 50_000, 50
"""Two traders of a ring sell each other the same shares to and fro: what the wash-trade query looks for."""

_KINDS = {"buy": pa.bool_(), "reference": pa.string()}
_NAMES = ("at", "number", "stock", "trader", "buy", "price", "quantity", "reference")
SCHEMA = pa.schema([(name, _KINDS.get(name, pa.int64())) for name in _NAMES])
PIECE = 1 << 16
"""Orders that are made at once: few enough for the processor's cache."""


def orders(rows: int, seed: int = 0) -> pa.Table:
    made = Orders(seed=seed)
    pieces = [made(start, min(start + PIECE, rows)) for start in range(0, rows, PIECE)]
    return pa.concat_tables(pieces) if pieces else SCHEMA.empty_table()


@dataclass(frozen=True)
class Orders:
    """Make the orders with the numbers [start, stop)."""

    stocks: int = 4_000
    seed: int = 0

    def __call__(self, start: int, stop: int) -> pa.Table:
        number = np.arange(start, stop, dtype=np.int64)
        cycle, within = np.divmod(number, CYCLE)
        rush = within >= CYCLE // 2
        micros = cycle * CYCLE_MICROS + _elapsed(within, rush)
        first, second = (scatter(number, self.seed, salt) for salt in (1, 2))
        burst = rush & (unit(second, 48) < 1 / 3)
        stock = np.where(burst, scatter(cycle, self.seed, 3) % np.uint64(self.stocks), self._popular(number, first))
        trader = (second % np.uint64(TRADERS)).astype(np.int64) + 2 * RINGS
        buy = (first >> np.uint64(63)).astype(bool)
        quantity = _quantity(second)
        stock, trader, buy, quantity, ring = self._wash(number, stock.astype(np.int64), trader, buy, quantity)
        # A burst comes with news: the price of its stock jumps, and is back when the burst is over.
        news = np.where(burst, 0.16 * unit(scatter(cycle, self.seed, 4)) - 0.08, 0.0)
        haste = np.where(ring, 0.0, 0.01 * (unit(first, 20) + unit(first, 36) - 1.0))
        price = np.rint(self._worth(stock, micros) * (1.0 + news + haste)).astype(np.int64)
        columns = [micros, number, stock, trader, buy, price, quantity, _references(number, self.seed)]
        return pa.table([pa.array(c) for c in columns], names=SCHEMA.names).cast(SCHEMA)

    def opening_prices(self) -> Ints:
        """Return what each stock is worth about, in cents."""
        return self._opening(np.arange(self.stocks))

    def _opening(self, stock: Ints) -> Ints:
        return 500 + (scatter(stock, self.seed, 5) % np.uint64(20_000)).astype(np.int64)

    def _popular(self, number: Ints, noise: Numbers) -> Ints:
        rank = _ranks(self.stocks)[(noise & np.uint64(0xFFFF)).astype(np.intp)]
        deal = number // SHUFFLE
        dealt = np.stack([_deal(self.stocks, self.seed, turn) for turn in range(int(deal[0]), int(deal[-1]) + 1)])
        popular: Ints = dealt[deal - deal[0], rank]
        return popular

    def _worth(self, stock: Ints, micros: Ints) -> Floats:
        knot, behind = np.divmod(micros, KNOT_MICROS)
        # The number of a knot and its stock in one integer: a draw of its own for each pair.
        one, two = (unit(scatter((knot + n) * self.stocks + stock, self.seed, 6)) for n in (0, 1))
        drift = 0.06 * (one + (two - one) * (behind / KNOT_MICROS)) - 0.03
        return self._opening(stock) * (1.0 + drift)

    def _wash(self, number: Ints, stock: Ints, trader: Ints, buy: Any, quantity: Ints) -> tuple[Any, ...]:
        """Give some groups of four orders to a ring: one sells to the other, and then the other way round."""
        group, turn = np.divmod(number, 4)
        noise = scatter(group, self.seed, 7)
        ring = unit(noise, 0, 10) < 0.01
        pair = 2 * ((noise >> np.uint64(10)) % np.uint64(RINGS)).astype(np.int64)
        target = ((noise >> np.uint64(20)) % np.uint64(self.stocks)).astype(np.int64)
        return (
            np.where(ring, target, stock),
            np.where(ring, pair + ((turn == 1) | (turn == 2)), trader),
            np.where(ring, turn % 2 == 1, buy),
            np.where(ring, 100 + 100 * (pair % 7), quantity),
            ring,
        )


def _elapsed(within: Ints, rush: npt.NDArray[np.bool_]) -> Ints:
    half, calm = CYCLE // 2, CYCLE_MICROS * 4 // 5
    return np.where(rush, calm + (within - half) * (CYCLE_MICROS - calm) // half, within * calm // half)


def _quantity(noise: Numbers) -> Ints:
    """Draw round lots: most are small, and one in a thousand is a block."""
    lots = 1 + (20 * unit(noise, 20) ** 3).astype(np.int64)
    return 100 * np.where(unit(noise, 36, 12) < 0.001, 50 * lots, lots)


def _references(number: Ints, seed: int) -> pa.Array:
    """Write the sender's own reference: 44 hexadecimal digits that are not read here."""
    draws = np.stack([scatter(number, seed, salt) for salt in (8, 9, 10)], axis=1)
    digits = _HEX[draws.view(np.uint8).reshape(len(number), 24)[:, :22]]
    ends = np.arange(0, 44 * len(number) + 1, 44, dtype=np.int32)
    return pa.StringArray.from_buffers(len(number), pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(digits)))


_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)


@lru_cache(maxsize=8)
def _ranks(stocks: int) -> Ints:
    """Tabulate ranks so that a uniform draw of 16 bits finds one with the probability that it should have."""
    weights = np.cumsum(np.arange(1, stocks + 1) ** -SKEW)
    return np.searchsorted(weights / weights[-1], (np.arange(1 << 16) + 0.5) / (1 << 16))


@lru_cache(maxsize=64)
def _deal(stocks: int, seed: int, turn: int) -> Ints:
    return np.random.default_rng([seed, turn]).permutation(stocks)
