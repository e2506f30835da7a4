"""The rules of the exchange at their edges, by hand: what random orders seldom meet."""

from __future__ import annotations

from typing import Any

from penstock.lab.workloads.stock_exchange.events import Watch, find_round_trip, hold_to_band, watch_gap
from penstock.lab.workloads.stock_exchange.orders import MINUTE
from penstock.lab.workloads.stock_exchange.transactor import Trade, empty_book, execute


def executed(*orders: tuple[bool, int, int]) -> tuple[list[tuple[int, ...]], Any]:
    """Execute orders (buy, price, quantity); return (price, quantity, buy and sell order) of trades, and the book."""
    book, made = empty_book(), []
    for number, (buy, price, quantity) in enumerate(orders):
        book, trades = execute(book, (number, number, 0, 100 + number, buy, price, quantity, "reference"))
        assert all((t.buyer, t.seller) == (100 + t.buy_order, 100 + t.sell_order) for t in trades)
        made += [(t.price, t.quantity, t.buy_order, t.sell_order) for t in trades]
    return made, book


class TestTransactor:
    def test_the_best_price_first_then_the_earliest_order_at_the_price_of_who_waited(self):
        made, book = executed((False, 12, 5), (False, 10, 5), (False, 10, 5), (True, 12, 12))
        assert made == [(10, 5, 3, 1), (10, 5, 3, 2), (12, 2, 3, 0)]
        assert book == ([], [[12, 0, 100, 3]])

    def test_sellers_get_the_highest_bid(self):
        made, book = executed((True, 9, 5), (True, 11, 5), (True, 11, 1), (False, 9, 7))
        assert made == [(11, 5, 1, 3), (11, 1, 2, 3), (9, 1, 0, 3)]
        assert book == ([[-9, 0, 100, 4]], [])

    def test_equal_prices_trade_and_worse_ones_wait(self):
        assert executed((False, 10, 1), (True, 10, 1))[0] == [(10, 1, 1, 0)]
        made, book = executed((False, 10, 1), (True, 9, 1))
        assert made == []
        assert book == ([[-9, 1, 101, 1]], [[10, 0, 100, 1]])

    def test_an_order_that_was_filled_in_part_keeps_its_place(self):
        made, _ = executed((False, 10, 9), (False, 10, 9), (True, 10, 4), (True, 10, 9))
        assert made == [(10, 4, 2, 0), (10, 5, 3, 0), (10, 4, 3, 1)]


def trade(at: int, price: int = 1_000, *, quantity: int = 1, buyer: int = 1, seller: int = 2, **book: int) -> Trade:
    return Trade(at, 0, price, quantity, buyer, seller, 0, 0, book.get("bid", 0), book.get("ask", 0))


def events(function: Any, state: Any, trades: list[Trade]) -> list[Any]:
    found = []
    for each in trades:
        state, made = function(state, each)
        found += made
    return found


def test_an_alarm_rings_above_the_limit_and_again_only_after_it_was_not():
    rings = events(Watch([1_000]), False, [trade(n, p) for n, p in enumerate([1_000, 1_001, 1_002, 1_000, 1_001])])
    assert [(ring.at, ring.price) for ring in rings] == [(1, 1_001), (4, 1_001)]


class TestCircuitBreaker:
    def test_the_edge_of_the_band_is_inside(self):
        assert events(hold_to_band, None, [trade(0, 1_000), trade(1, 1_050), trade(2, 950)]) == []
        for price in (1_051, 949):
            [halt] = events(hold_to_band, None, [trade(0, 1_000), trade(1, price)])
            assert halt == (1, 0, 1_000, price, 1 + MINUTE)

    def test_nothing_more_while_trading_pauses_and_a_new_reference_behind_it(self):
        prices = {0: 1_000, 1: 1_100, 2: 900, MINUTE: 500, MINUTE + 1: 2_000, MINUTE + 2: 2_101}
        halts = events(hold_to_band, None, [trade(at, price) for at, price in prices.items()])
        assert [(halt.at, halt.reference) for halt in halts] == [(1, 1_000), (MINUTE + 2, 2_000)]

    def test_a_reference_lasts_five_minutes(self):
        late = [trade(0, 1_000), trade(5 * MINUTE - 1, 1_060)]
        assert len(events(hold_to_band, None, late)) == 1
        assert events(hold_to_band, None, [trade(0, 1_000), trade(5 * MINUTE, 1_060)]) == []


def test_a_gap_that_trembles_is_no_event():
    gaps = [100, 101, 99, 51, 50, 100, 101]
    found = events(watch_gap, False, [trade(n, bid=10_000, ask=10_000 + gap) for n, gap in enumerate(gaps)])
    assert [(each.at, each.wide) for each in found] == [(1, True), (4, False), (6, True)]
    assert events(watch_gap, False, [trade(0, bid=0, ask=5), trade(1, bid=5, ask=0)]) == []


class TestWashTrade:
    def found(self, *trades: Trade) -> list[tuple[int, int, int]]:
        return [(wash.trader, wash.other, wash.sold_at) for wash in events(find_round_trip, {}, list(trades))]

    def test_there_and_back_within_a_minute(self):
        assert self.found(trade(5), trade(5 + MINUTE, buyer=2, seller=1)) == [(2, 1, 5)]
        assert self.found(trade(5), trade(6 + MINUTE, buyer=2, seller=1)) == []

    def test_other_shares_or_the_same_way_are_none(self):
        assert self.found(trade(5), trade(6, quantity=2, buyer=2, seller=1)) == []
        assert self.found(trade(5), trade(6)) == []

    def test_the_latest_way_out_counts_and_counts_once(self):
        back = {"buyer": 2, "seller": 1}
        assert self.found(trade(5), trade(7), trade(8, **back), trade(9, **back)) == [(2, 1, 7)]
        assert self.found(trade(0), trade(MINUTE), trade(2 * MINUTE, **back)) == [(2, 1, MINUTE)]

    def test_with_oneself(self):
        assert self.found(trade(5, buyer=3, seller=3)) == [(3, 3, 5)]

    def test_old_trades_are_forgotten(self):
        state: dict[Any, Any] = {}
        for n in range(100):
            state, _ = find_round_trip(state, trade(n * MINUTE, buyer=n, seller=-1))
        assert len(state) == 2
