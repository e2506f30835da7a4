"""Hot items: the auction with the most bids of the last minute, every twenty seconds."""

from market import market, show

import penstock as ps


def build() -> ps.Flow:
    (bids,) = market("hot items", "bids")
    counts = bids.key_by("auction").window(ps.sliding("60 s", every="20 s")).count()
    # Counts of windows that end together are together in a window of twenty seconds.
    hottest = counts.window("20 s").top(1, by="count")
    return hottest.select("window_start", "window_end", "auction", "count").sink("hot items")


if __name__ == "__main__":
    show(build())
