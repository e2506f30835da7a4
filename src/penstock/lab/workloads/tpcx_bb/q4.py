"""TPCx-BB Q4: how many pages people visit in sessions in which they fill a cart and do not check out.

A cart is filled on pages of the type "dynamic" and checked out on pages of the type "order": it is abandoned where the
last dynamic page of a session comes after its last order page. Operators, as in the paper's table 1: clicks -> pages
with their type (stateless) -> sessions of a user (partitioned) -> abandoned ones (stateless) -> average (stateful).
"""

from __future__ import annotations

import pyarrow.compute as pc

import penstock as ps
from penstock.annotated import Amount, Count, Scale, checked
from penstock.lab.workloads.tpcx_bb.data import keys_where, prepare
from penstock.lab.workloads.tpcx_bb.tables import DAY, WEB_CLICKSTREAMS, columns

FIELDS = ("wcs_click_ts", "wcs_user_sk", "wcs_web_page_sk", "wcs_sales_sk")


@checked
def flow(
    *,
    scale: Scale = 0.01,
    seed: int = 1,
    data: str = "tpcx-bb",
    out: str = "",
    follow: bool = False,
    timeout: Amount = 3600,
    days: Count = 1,
) -> ps.Flow:
    """Find the average number of pages of sessions with an abandoned cart, every day (TPCx-BB Q4)."""
    tables = prepare(data, scale, seed, "web_clickstreams", "web_page")
    dynamic = keys_where(tables["web_page"], "wp_web_page_sk", "wp_type", ["dynamic"])
    order = keys_where(tables["web_page"], "wp_web_page_sk", "wp_type", ["order"])

    made = ps.Flow("tpcx-bb-q4")
    source = ps.read.parquet(tables["web_clickstreams"], schema=columns(WEB_CLICKSTREAMS, *FIELDS), follow=follow)
    clicks = made.source("web_clickstreams", source, time="wcs_click_ts")
    user, page, sale = pc.field("wcs_user_sk"), pc.field("wcs_web_page_sk"), pc.field("wcs_sales_sk")
    known = clicks.filter(user.is_valid() & page.is_valid() & sale.is_null())
    # One number instead of the type: a dynamic page fills the cart, an order page empties it, others change nothing.
    pages = known.select("wcs_user_sk", cart=pc.if_else(page.isin(dynamic), 1, pc.if_else(page.isin(order), 0, None)))
    visits = pages.key_by("wcs_user_sk").window(ps.session(timeout + 1))
    sessions = visits.aggregate(pages=ps.agg.count(), cart=ps.agg.last("cart", skip_nulls=True), name="sessions")
    abandoned = sessions.filter(pc.field("cart") == 1)
    # A session counts on the day on which it ends.
    average = abandoned.window(days * DAY).aggregate(
        sessions=ps.agg.count(), average_pages=ps.agg.mean("pages"), name="average"
    )
    average.sink("abandoned_carts", ps.write.parquet(out) if out else None)
    return made
