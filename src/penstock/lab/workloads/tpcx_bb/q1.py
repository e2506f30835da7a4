"""TPCx-BB Q1: the pairs of items that are sold together most often in given stores, every hour.

Sold together means on one ticket. Only items of some categories count. Operators, as in the paper's table 1:
sales -> filter (stateless) -> items of a ticket (partitioned), and their pairs (stateless) -> count of a pair
(partitioned) -> top 100 (stateful).
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pyarrow.compute as pc

import penstock as ps
from penstock.annotated import Amount, Count, Scale, checked
from penstock.lab.workloads.tpcx_bb.data import keys_where, numbers, prepare
from penstock.lab.workloads.tpcx_bb.tables import STORE_SALES, columns
from penstock.lab.workloads.tpcx_bb.top import Top

HOUR = 3600
FIELDS = ("ss_sold_ts", "ss_ticket_number", "ss_item_sk", "ss_store_sk")
PAIR = {"item_sk_1": int, "item_sk_2": int}


def pairs(ticket: Any) -> list[tuple[int, int]]:
    """Return the pairs of different items on a ticket, the smaller one first."""
    return list(combinations(sorted(ticket.items), 2))


@checked
def flow(
    *,
    scale: Scale = 0.01,
    seed: int = 1,
    data: str = "tpcx-bb",
    out: str = "",
    follow: bool = False,
    stores: str = "10,20,33,40,50",
    categories: str = "1,2,3",
    hours: Count = 1,
    limit: Count = 100,
    least: Amount = 1,
) -> ps.Flow:
    """Find the pairs of items that are sold together most often, every hour (TPCx-BB Q1)."""
    tables = prepare(data, scale, seed, "store_sales", "item")
    # The table of items is small: joining it is a set of keys, known before the first sale.
    items = keys_where(tables["item"], "i_item_sk", "i_category_id", numbers(categories))
    top = Top(("item_sk_1", "item_sk_2"), limit, least)

    made = ps.Flow("tpcx-bb-q1")
    # The schema is that of these columns, so no others are read from the files.
    source = ps.read.parquet(tables["store_sales"], schema=columns(STORE_SALES, *FIELDS), follow=follow)
    sales = made.source("store_sales", source, time="ss_sold_ts")
    # An expression runs over whole columns, and it comes first, so that few rows become Python objects.
    wanted = pc.field("ss_store_sk").isin(numbers(stores)) & pc.field("ss_item_sk").isin(items)
    tickets = sales.filter(wanted).key_by("ss_ticket_number").window(hours * HOUR)
    baskets = tickets.aggregate(items=ps.agg.distinct("ss_item_sk"), name="tickets")
    # What a window gives has the last time that belongs to it, so the same window follows, twice.
    sold_together = baskets.flat_map(pairs, schema=PAIR)
    counts = sold_together.key_by("item_sk_1", "item_sk_2").window(hours * HOUR).count()
    best = counts.window(hours * HOUR).apply(top, schema=top.schema(), name="top")
    best.sink("top_pairs", ps.write.parquet(out) if out else None)
    return made
