"""TPCx-BB Q2: the items that are viewed most often together with a given one in the web shop.

Viewed together means in one session of a known user; a session ends when a user is silent for longer than an hour.
Operators, as in the paper's table 1: clicks -> filter (stateless) -> sessions of a user (partitioned) -> what was
viewed with the item (stateless) -> count of each (partitioned) -> top 30 (stateful). The specification asks about one
item; the paper counts all pairs of a session, which makes many rows of one (`pairs="all"`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import pyarrow.compute as pc

import penstock as ps
from penstock.annotated import Amount, Count, Scale, checked
from penstock.lab.workloads.tpcx_bb.data import prepare
from penstock.lab.workloads.tpcx_bb.tables import DAY, NAMED_ITEM, WEB_CLICKSTREAMS, columns
from penstock.lab.workloads.tpcx_bb.top import Top

FIELDS = ("wcs_click_ts", "wcs_user_sk", "wcs_item_sk")


@dataclass(frozen=True)
class ViewedWith:
    """Give the other items of a session in which an item was viewed."""

    item: int

    def __call__(self, session: Any) -> list[tuple[int]]:
        return [(other,) for other in session.items if other != self.item] if self.item in session.items else []


def all_pairs(session: Any) -> list[tuple[int, int]]:
    """Give every two items of a session, the smaller key first."""
    return list(combinations(sorted(session.items), 2))


@checked
def flow(
    *,
    scale: Scale = 0.01,
    seed: int = 1,
    data: str = "tpcx-bb",
    out: str = "",
    follow: bool = False,
    pairs: Literal["item", "all"] = "item",
    item: int = NAMED_ITEM,
    timeout: Amount = 3600,
    days: Count = 1,
    limit: Count = 30,
) -> ps.Flow:
    """Find the items that are viewed most often together, with a given one or all pairs, every day (TPCx-BB Q2)."""
    tables = prepare(data, scale, seed, "web_clickstreams")
    fields = ("item_1", "item_2") if pairs == "all" else ("item_sk",)
    top = Top(fields, limit)

    made = ps.Flow("tpcx-bb-q2")
    source = ps.read.parquet(tables["web_clickstreams"], schema=columns(WEB_CLICKSTREAMS, *FIELDS), follow=follow)
    clicks = made.source("web_clickstreams", source, time="wcs_click_ts")
    known = clicks.filter(pc.field("wcs_user_sk").is_valid() & pc.field("wcs_item_sk").is_valid())
    # A new session begins when *more* than the time-out has passed; a gap of g parts clicks that are g apart.
    visits = known.key_by("wcs_user_sk").window(ps.session(timeout + 1))
    sessions = visits.aggregate(items=ps.agg.distinct("wcs_item_sk"), name="sessions")
    together: Callable[[Any], list[Any]] = all_pairs if pairs == "all" else ViewedWith(item)
    others = sessions.flat_map(together, schema=dict.fromkeys(fields, int), name="viewed_with")
    # A session counts on the day on which it ends.
    counts = others.key_by(*fields).window(days * DAY).count()
    best = counts.window(days * DAY).apply(top, schema=top.schema(), name="top")
    best.sink("top_items", ps.write.parquet(out) if out else None)
    return made
