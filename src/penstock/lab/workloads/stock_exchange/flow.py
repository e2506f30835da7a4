"""The stock exchange of the Elasticutor paper: orders, a transactor, six statistics and five kinds of event."""

from __future__ import annotations

from typing import Annotated

import penstock as ps
from penstock.annotated import Amount, Limits, Rate, checked
from penstock.lab.workloads.outputs import writer
from penstock.lab.workloads.stock_exchange.events import circuit_breaker, large_trade, price_alarm, spread, wash_trade
from penstock.lab.workloads.stock_exchange.orders import MOST_STOCKS, SCHEMA, Orders
from penstock.lab.workloads.stock_exchange.statistics import (
    candles,
    composite_index,
    moving_average,
    top_movers,
    volatility,
    volume_weighted_price,
)
from penstock.lab.workloads.stock_exchange.transactor import transactor

SHARES = 1_000_000
"""How many shares of each stock there are, for the index."""
ALARM_PERCENT = 103
"""Alarms are set at so much of the opening price."""


def analyse(trades: ps.Stream, opening: list[int]) -> dict[str, ps.Stream]:
    """Hang the eleven queries under the trades; `opening` has the opening price of each stock."""
    minutes = trades >> candles
    return {
        "moving_average": trades >> moving_average,
        "volume_weighted_price": trades >> volume_weighted_price,
        "composite_index": composite_index(trades, opening, [SHARES] * len(opening)),
        "candles": minutes,
        "volatility": trades >> volatility,
        "top_movers": minutes >> top_movers,
        "price_alarm": price_alarm(trades, [price * ALARM_PERCENT // 100 for price in opening]),
        "circuit_breaker": trades >> circuit_breaker,
        "large_trade": trades >> large_trade,
        "spread": trades >> spread,
        "wash_trade": trades >> wash_trade,
    }


@checked
def stock_exchange(
    *,
    orders: Amount = 200_000,
    stocks: Annotated[int, Limits(1, MOST_STOCKS)] = 4_000,
    seed: int = 0,
    rate: Rate = 0.0,
    out: str = "",
) -> ps.Flow:
    """Trade stocks by limit orders; six statistics, five kinds of event.

    `rate` is the number of orders a second, 0 for as fast as they are executed; `out` is the directory that the results
    are written to as Parquet; without it some of them are printed.
    """
    made = Orders(stocks, seed)
    flow = ps.Flow("stock-exchange")
    source = ps.read.generate(made, schema=SCHEMA, rows_per_second=rate or None, rows=orders)
    trades = flow.source("orders", source, time="at") >> transactor
    trades.sink("trades", writer(out, "trades"))
    for name, results in analyse(trades, made.opening_prices().tolist()).items():
        results.sink(name, writer(out, name))
    return flow
