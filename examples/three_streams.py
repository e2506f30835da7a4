"""Three streams joined: each bid with its auction, and the city of the seller who signed up before or after."""

from market import market, show

import penstock as ps


def build() -> ps.Flow:
    people, auctions, bids = market("three streams", "people", "auctions", "bids")
    offered = auctions.join(people, on={"seller": "person"}, ttl="1 day")
    named = offered.select("auction", "seller", "city", "category", opened=ps.expr("at"))
    sold = bids.join(named, on="auction", ttl="1 day")
    return sold.select("at", "auction", "price", "seller", "city", "category").sink("three streams")


if __name__ == "__main__":
    show(build())
