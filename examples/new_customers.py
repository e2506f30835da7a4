"""New customers: how many people bid with a seller for the first time, per seller and minute."""

from market import market, show

import penstock as ps


def build() -> ps.Flow:
    auctions, bids = market("new customers", "auctions", "bids")
    offers = auctions.join(bids, on="auction", within=("0 s", "60 s"))
    first = offers.distinct("seller", "bidder")
    return first.key_by("seller").window("1 min").aggregate(customers=ps.agg.count()).sink("new customers")


if __name__ == "__main__":
    show(build())
