"""An auction house for the examples: people sign up, open auctions, and bid; all drawn from a seed."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import penstock as ps

BEGINS = dt.datetime(2024, 3, 1, 12, tzinfo=dt.UTC)
LASTS = dt.timedelta(minutes=10)
CITIES = ("Bonn", "Graz", "Lyon", "Oslo")
OPEN = 60
"""Seconds for which an auction takes bids."""

Rows = list[dict[str, Any]]


def rows(seed: int = 7, people: int = 60, auctions: int = 120, bids: int = 2000) -> dict[str, Rows]:
    """Draw the rows of all three streams, each in the order of its times."""
    draw = random.Random(seed)

    def moments(count: int) -> list[dt.datetime]:
        return sorted(BEGINS + LASTS * draw.random() for _ in range(count))

    signed_up: Rows = [
        {"at": at, "person": number, "city": draw.choice(CITIES)} for number, at in enumerate(moments(people))
    ]
    opened: Rows = [
        {"at": at, "auction": number, "seller": draw.randrange(people // 4), "category": draw.randrange(5)}
        for number, at in enumerate(moments(auctions))
    ]
    placed: Rows = []
    for at in moments(bids):
        running = [each["auction"] for each in opened if 0 <= (at - each["at"]).total_seconds() < OPEN]
        if running:
            # A few auctions are much hotter than the others.
            auction = running[int(len(running) * draw.random() ** 2)]
            bid = {"at": at, "auction": auction, "bidder": draw.randrange(people), "price": draw.randint(100, 99_999)}
            placed.append(bid)
    return {"people": signed_up, "auctions": opened, "bids": placed}


def market(name: str, *streams: str, seed: int = 7) -> list[ps.Stream]:
    """Begin a flow with some of the streams, merged in the order of their times."""
    flow, drawn = ps.Flow(name), rows(seed)
    return [flow.source(each, ps.read.items(drawn[each]), order_by="at", time="at") for each in streams]


def show(flow: ps.Flow, limit: int = 10) -> None:
    """Run a flow in this process, without Java, and print the first rows of each sink."""
    for sink, found in ps.run(flow, on=ps.Threads()).results.items():
        print(f"{sink}: {len(found)} rows")
        for row in found[:limit]:
            print("   ", ", ".join(f"{field}={value}" for field, value in row.asdict().items()))
