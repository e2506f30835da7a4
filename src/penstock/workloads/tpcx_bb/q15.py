"""TPCx-BB Q15: the categories whose sales in a store are flat or go down during a year.

For each category a line is fitted to the sums of its days by least squares, and reported if it does not rise.
Operators, as in the paper's table 1: sales -> filter (stateless) -> category of the item (stateless) -> line of a
category (partitioned).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock as ps
from penstock.workloads.options import Scale, checked
from penstock.workloads.tpcx_bb.data import prepare
from penstock.workloads.tpcx_bb.tables import DAY, STORE_SALES, columns, date_sk

FIELDS = ("ss_sold_ts", "ss_sold_date_sk", "ss_item_sk", "ss_store_sk", "ss_net_paid")
SALE = {"category": int, "day": int, "paid": float}
LINE = {"category": int, "slope": float, "intercept": float}


@dataclass(frozen=True)
class WithCategory:
    """Join the table of items, a whole batch at a time."""

    items: pa.Array
    categories: pa.Array

    def __call__(self, sales: pa.RecordBatch) -> pa.RecordBatch:
        """Take a batch of sales of known items."""
        category = self.categories.take(pc.index_in(sales["ss_item_sk"], value_set=self.items))
        return pa.RecordBatch.from_arrays([category, sales["ss_sold_date_sk"], sales["ss_net_paid"]], list(SALE))


class Sums(NamedTuple):
    """What a line needs of the days of a category: x is the day, counted from the first one, y what was paid on it."""

    days: int = 0
    latest: int = -1
    x: int = 0
    xx: int = 0
    y: float = 0.0
    xy: float = 0.0


@dataclass(frozen=True)
class Decline(ps.Process):
    """Fit a line to a category's days, and report it behind the last day if it does not rise."""

    first: int
    last: int

    def on_row(self, row: Any, context: ps.ProcessContext) -> None:
        """Take one sale. Sums of y and xy are the same by sale as by day; a new day counts once."""
        sums = context.state
        if sums is None:
            sums = Sums()
            context.set_timer((self.last + 1) * DAY)
        x = row.day - self.first
        days, latest, all_x, all_xx, y, xy = sums
        if x != latest:
            days, latest, all_x, all_xx = days + 1, x, all_x + x, all_xx + x * x
        context.state = Sums(days, latest, all_x, all_xx, y + row.paid, xy + x * row.paid)

    def on_timer(self, time: int, context: ps.ProcessContext) -> None:
        """Report at the end of the year."""
        days, _, x, xx, y, xy = context.state
        context.state = None
        if days < 2:
            return  # no line goes through one day
        slope = (days * xy - x * y) / (days * xx - x * x)
        if slope <= 0:
            # The specification's x is the date key itself: the same line, seen from another zero.
            context.emit((context.key, slope, (y - slope * x) / days - slope * self.first))


@checked
def flow(
    *,
    scale: Scale = 0.01,
    seed: int = 1,
    data: str = "tpcx-bb",
    out: str = "",
    follow: bool = False,
    store: int = 10,
    start: str = "2001-09-02",
    end: str = "2002-09-02",
) -> ps.Flow:
    """Find the categories whose sales in a store are flat or go down in a year (TPCx-BB Q15)."""
    tables = prepare(data, scale, seed, "store_sales", "item")
    items = pq.read_table(tables["item"], columns=["i_item_sk", "i_category_id"]).combine_chunks()
    first, last = date_sk(start), date_sk(end)

    made = ps.Flow("tpcx-bb-q15")
    source = ps.read.parquet(tables["store_sales"], schema=columns(STORE_SALES, *FIELDS), follow=follow)
    sales = made.source("store_sales", source, time="ss_sold_ts")
    day, item = pc.field("ss_sold_date_sk"), pc.field("ss_item_sk")
    wanted = (pc.field("ss_store_sk") == store) & (day >= first) & (day <= last)
    known = items["i_item_sk"].chunk(0)
    in_store = sales.filter(wanted & item.isin(known))
    by_category = in_store.map_batches(
        WithCategory(known, items["i_category_id"].chunk(0)), schema=SALE, name="category"
    )
    lines = by_category.key_by("category").process(Decline(first, last), schema=LINE, name="decline")
    lines.sink("declining", ps.write.parquet(out) if out else None)
    return made
