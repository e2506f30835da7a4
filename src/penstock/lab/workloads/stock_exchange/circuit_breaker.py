"""Event 2, circuit breaker: a stock's price leaves the band around its reference price, and trading should pause.

The reference is at most five minutes old: it is taken anew from the first trade after that time, and after a pause. The
event says until when to pause; whoever runs the exchange would send it back to the transactor.
"""

from __future__ import annotations

from typing import NamedTuple

import penstock as ps
from penstock.lab.workloads.stock_exchange.orders import MINUTE
from penstock.lab.workloads.stock_exchange.transactor import Trade

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
    """Hold a trade against the band."""
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
