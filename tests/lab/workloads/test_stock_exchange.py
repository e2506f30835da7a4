"""The stock exchange against a plain order book and plain queries, on every engine; and its generator."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.lab.workloads.stock_exchange.flow import analyse
from penstock.lab.workloads.stock_exchange.orders import CYCLE, CYCLE_MICROS, SHUFFLE, Orders, orders
from penstock.lab.workloads.stock_exchange.transactor import transactor

from ...counting import calls_of
from ...spark.running import Workers, run_inline
from . import plain_queries as plain
from .plain_book import Exchange, Order

MADE = Orders(stocks=12, seed=11)
STARTS = {0: 300, 9_950: 200, 19_950: 100, 130_000: 200, 265_000: 100, 410_000: 200, 800_000: 100}
"""So many orders from these on: calm and rush hours, before and after shuffles of popularity, over six minutes."""


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.concat_tables([MADE(start, start + count) for start, count in STARTS.items()])


@pytest.fixture(scope="module")
def exchange(table: pa.Table) -> Exchange:
    made = Exchange()
    for row in table.drop_columns(["reference"]).to_pylist():
        made.take(Order(**row))
    return made


@pytest.fixture(scope="module")
def expected(exchange: Exchange) -> dict[str, list[Any]]:
    t, opening = plain.Trades(exchange.trades), MADE.opening_prices().tolist()
    return {
        "trades": exchange.trades,
        "moving_average": plain.moving_averages(t),
        "volume_weighted_price": plain.weighted_prices(t),
        "composite_index": plain.index_levels(t, opening),
        "candles": plain.candles(t),
        "volatility": plain.volatilities(t),
        "top_movers": plain.top_movers(t),
        "price_alarm": plain.alarms(t, [price * 103 // 100 for price in opening]),
        "circuit_breaker": plain.halts(t),
        "large_trade": plain.large_trades(t, 20_000_000),
        "spread": plain.spreads(t),
        "wash_trade": plain.washes(t),
    }


ROUNDED = {"composite_index", "volatility", "top_movers"}
"""Logarithms and quotients of other formulas: equal but for the rounding of a few operations."""


def test_the_orders_make_something_of_everything(expected: dict[str, list[Any]]):
    assert all(expected.values()), {name: len(rows) for name, rows in expected.items()}
    assert max(Counter(row[2] for row in expected["candles"]).values()) > 10, "no minute has more movers than are kept"


def test_every_trade_and_query_as_in_plain_python(
    table: pa.Table, exchange: Exchange, expected: dict[str, list[Any]], tmp_path: Path, results_of: Any
):
    pq.write_table(table, tmp_path / "orders.parquet")
    flow = ps.Flow("exchange")
    trades = flow.source("orders", ps.read.parquet(str(tmp_path / "orders.parquet")), time="at") >> transactor
    trades.sink("trades")
    for name, stream in analyse(trades, MADE.opening_prices().tolist()).items():
        stream.sink(name)
    found = results_of(flow, 700)
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        if name in ROUNDED:
            assert [row[:-1] for row in found[name]] == [row[:-1] for row in rows], name
            np.testing.assert_allclose([r[-1] for r in found[name]], [r[-1] for r in rows], rtol=1e-9, atol=1e-12)
        else:
            assert found[name] == rows, name
    check_balances(table, exchange, found["trades"])


def test_books_that_are_changed_in_place_survive_epochs_that_run_twice(
    table: pa.Table, exchange: Exchange, tmp_path: Path
):
    """A worker whose job was lost has books of orders that were never committed; they must not be used again."""
    pq.write_table(table, tmp_path / "orders.parquet")
    flow = ps.Flow("exchange")
    (flow.source("orders", ps.read.parquet(str(tmp_path / "orders.parquet")), time="at") >> transactor).sink("trades")
    workers = Workers(2, lambda epoch, task: (epoch + task) % 2, lost=[1, 3, 4])
    engine = run_inline(flow, tmp_path / "checkpoint", backend=workers, epoch_rows=200)
    assert engine.outputs is not None
    assert engine.outputs.results["trades"] == exchange.trades


def check_balances(table: pa.Table, exchange: Exchange, trades: list[Any]) -> None:
    """No share and no cent is lost: add up what the flow's trades moved, and hold it against the ledger."""
    cash: dict[int, int] = defaultdict(int)
    shares: dict[tuple[int, int], int] = defaultdict(int)
    filled: Counter[int] = Counter()
    for trade in trades:
        cash[trade.buyer] -= trade.price * trade.quantity
        cash[trade.seller] += trade.price * trade.quantity
        shares[trade.buyer, trade.stock] += trade.quantity
        shares[trade.seller, trade.stock] -= trade.quantity
        filled.update({trade.buy_order: trade.quantity, trade.sell_order: trade.quantity})
    assert cash == exchange.cash
    assert sum(cash.values()) == 0
    assert shares == exchange.shares
    left = {order.number: order.left for order in exchange.waiting}
    given = dict(zip(table["number"].to_pylist(), table["quantity"].to_pylist(), strict=True))
    assert {number: filled[number] + left.get(number, 0) for number in given} == given


class TestOrders:
    def test_any_piece_is_the_same_as_in_the_whole(self):
        made = Orders(stocks=50, seed=9)
        whole = made(0, 1_000)
        assert made(0, 1_000) == whole
        assert pa.concat_tables([made(0, 1), made(1, 337), made(337, 1_000)]) == whole
        assert Orders(stocks=50, seed=10)(0, 1_000) != whole

    def test_as_many_rows_as_asked_for_in_pieces(self, monkeypatch: pytest.MonkeyPatch):
        whole = orders(2_001)
        monkeypatch.setattr("penstock.lab.workloads.stock_exchange.orders.PIECE", 1_000)
        assert orders(2_001) == whole
        assert [orders(count).num_rows for count in (0, 1, 1_000)] == [0, 1, 1_000]

    def test_an_order_takes_about_96_bytes(self):
        assert 94 < orders(10_000).nbytes / 10_000 < 98

    def test_popularity_shifts_from_one_moment_to_the_next(self):
        made = orders(2 * SHUFFLE, seed=1)["stock"].to_numpy()
        before, behind = (set(popular(made[part], 20)) for part in (slice(0, SHUFFLE), slice(SHUFFLE, None)))
        assert len(before & behind) < 5
        calm = np.bincount(made[: CYCLE // 2], minlength=4_000)
        assert calm.max() > 50 * calm.mean(), "the popular stocks have many times the orders of an average one"

    def test_orders_come_in_bursts_of_one_stock(self):
        table = orders(CYCLE, seed=2)
        calm, rush = table.slice(0, CYCLE // 2), table.slice(CYCLE // 2)
        span = [part["at"][-1].as_py() - part["at"][0].as_py() for part in (calm, rush)]
        assert span[0] / span[1] == pytest.approx(4, rel=0.01)
        assert table["at"].to_numpy().max() < CYCLE_MICROS
        stocks = rush["stock"].to_numpy()
        assert 0.3 < (stocks == popular(stocks, 1)[0]).mean() < 0.5

    def test_time_never_goes_back(self):
        at = np.concatenate([orders(45_000)["at"].to_numpy(), Orders()(45_000, 50_000)["at"].to_numpy()])
        assert (np.diff(at) >= 0).all()

    def test_orders_are_made_by_whole_columns(self):
        """The generator must never be what a flow waits for: it calls nothing for single orders."""
        made = Orders()
        made(0, 1_000)
        assert calls_of(lambda: made(32_768, 2 * 32_768)) < 1_000


def popular(stocks: np.ndarray, count: int) -> list[int]:
    """Return the stocks with the most orders."""
    return [stock for stock, _ in Counter(stocks.tolist()).most_common(count)]
