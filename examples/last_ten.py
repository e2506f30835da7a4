"""The average price at which each seller's last ten auctions were sold."""

from market import market, show

import penstock as ps


def last_ten(prices, sale):
    prices = (*prices, sale.price)[-10:]
    return prices, {"seller": sale.seller, "auction": sale.auction, "average": sum(prices) / len(prices)}


def build() -> ps.Flow:
    auctions, bids = market("last ten", "auctions", "bids")
    offers = auctions.join(bids, on="auction", within=("0 s", "60 s"))
    # The bids of an auction are less than a minute apart, so one session has them all.
    sold = offers.key_by("auction", "seller").window(ps.session("60 s")).aggregate(price=ps.agg.max("price"))
    schema = {"seller": int, "auction": int, "average": float}
    return sold.key_by("seller").scan(last_ten, (), schema=schema).sink("last ten")


if __name__ == "__main__":
    show(build())
