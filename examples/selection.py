"""Bids on some auctions, prices in another currency (expressions as text)."""

from market import market, show

import penstock as ps


def build() -> ps.Flow:
    (bids,) = market("selection", "bids")
    some = bids.filter(ps.expr("auction % 10 in (0, 5) and price >= 1000"))
    return some.select("at", "auction", "bidder", cents=ps.expr("price * 92 // 100")).sink("selection")


if __name__ == "__main__":
    show(build())
