"""Sessions: how often, on how much and how long each person bids without a break of fifteen seconds."""

from market import market, show

import penstock as ps


def build() -> ps.Flow:
    (bids,) = market("sessions", "bids")
    sessions = (
        bids.key_by("bidder")
        .window(ps.session("15 s"))
        .aggregate(
            bids=ps.agg.count(),
            auctions=ps.agg.count_distinct("auction"),
            first=ps.agg.first("auction"),
            last=ps.agg.last("auction"),
            spent=ps.agg.sum("price"),
        )
    )
    return sessions.filter(ps.expr("bids > 1")).sink("sessions")


if __name__ == "__main__":
    show(build())
