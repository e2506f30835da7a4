"""The three auctions of each minute with the highest turnover."""

from market import market, show

import penstock as ps


def build() -> ps.Flow:
    (bids,) = market("top per window", "bids")
    turnover = bids.key_by("auction").window("1 min").aggregate(turnover=ps.agg.sum("price"))
    best = turnover.window("1 min").top(3, by="turnover")
    return best.select("window_start", "rank", "auction", "turnover").sink("top per window")


if __name__ == "__main__":
    show(build())
