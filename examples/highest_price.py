"""The highest price of each minute, who bid it, and how it compares with the others."""

from market import market, show

import penstock as ps


def build() -> ps.Flow:
    (bids,) = market("highest price", "bids")
    prices = bids.window("1 min").aggregate(
        highest=ps.agg.max("price"),
        bidder=ps.agg.argmax("bidder", by="price"),
        median=ps.agg.median("price"),
        bids=ps.agg.count(),
        high=ps.agg.count(where=ps.expr("price > 50000")),
    )
    return prices.sink("highest price")


if __name__ == "__main__":
    show(build())
