"""TPCx-BB Q3: the items that people look at last before they buy an item in the web shop.

For each purchase the last five clicks of that user, at most ten days old, count if they are of items of some
categories. As in the benchmark's own reducer every click counts as a view, a purchase too.
Operators, as in the paper's table 1: clicks -> filter (stateless) -> last views before a purchase, by user
(partitioned) -> top 30 of the views, by purchased item (partitioned).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

import penstock as ps
from penstock.annotated import Count, Scale, checked
from penstock.lab.workloads.tpcx_bb.data import keys_where, numbers, prepare
from penstock.lab.workloads.tpcx_bb.tables import DAY, NAMED_ITEM, WEB_CLICKSTREAMS, columns
from penstock.lab.workloads.tpcx_bb.top import Top

FIELDS = ("wcs_click_ts", "wcs_user_sk", "wcs_item_sk", "wcs_sales_sk")
Views = tuple[tuple[int, int], ...]
"""Time and item of a user's last clicks, oldest first."""


@dataclass(frozen=True)
class LastViews:
    """Keep a user's last clicks; at a purchase give the items of those that are young enough and of the categories."""

    purchased: int
    """The item whose purchases count; 0 for every item."""
    views: int
    seconds: int
    viewable: frozenset[int]

    def __call__(self, last: Views, click: Any) -> tuple[Views, list[tuple[int, int]]]:
        at, _, item, sale = click
        seen = (*last, (at, item))[-self.views :]
        if sale is None or self.purchased not in (0, item):
            return seen, []
        viewed = [other for then, other in last if at - then <= self.seconds and other in self.viewable]
        return seen, [(item, other) for other in viewed]


@dataclass(frozen=True)
class TopViewed:
    """Make the list of one purchased item when its window closes."""

    top: Top

    def __call__(self, window: ps.Window, rows: list[Any]) -> dict[str, Any]:
        counts = Counter(row.lastviewed_item for row in rows)
        largest = self.top.largest(counts.values(), counts.keys())
        bounds = {"window_start": window.start, "window_end": window.end}
        return {"purchased_item": window.key, **bounds, "top": largest}


@checked
def flow(
    *,
    scale: Scale = 0.01,
    seed: int = 1,
    data: str = "tpcx-bb",
    out: str = "",
    follow: bool = False,
    item: int = NAMED_ITEM,
    categories: str = "2,3",
    views: Count = 5,
    lookback_days: Count = 10,
    days: Count = 1,
    limit: Count = 30,
) -> ps.Flow:
    """Find what people look at last before they buy an item, every day (TPCx-BB Q3)."""
    tables = prepare(data, scale, seed, "web_clickstreams", "item")
    viewable = keys_where(tables["item"], "i_item_sk", "i_category_id", numbers(categories))
    top = Top(("lastviewed_item",), limit)

    made = ps.Flow("tpcx-bb-q3")
    source = ps.read.parquet(tables["web_clickstreams"], schema=columns(WEB_CLICKSTREAMS, *FIELDS), follow=follow)
    clicks = made.source("web_clickstreams", source, time="wcs_click_ts")
    known = clicks.filter(pc.field("wcs_user_sk").is_valid() & pc.field("wcs_item_sk").is_valid())
    last_views = LastViews(item, views, lookback_days * DAY, frozenset(viewable))
    viewed = known.key_by("wcs_user_sk").flat_scan(
        last_views, (), schema={"purchased_item": int, "lastviewed_item": int}, name="last_views"
    )
    lists = (
        viewed.key_by("purchased_item")
        .window(days * DAY)
        .apply(TopViewed(top), schema=top.schema("purchased_item"), name="top")
    )
    lists.sink("top_viewed", ps.write.parquet(out) if out else None)
    return made
