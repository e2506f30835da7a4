"""TPCx-BB Q15: the categories whose sales in a store are flat or go down during a year.

For each category a line is fitted to the sums of its days by least squares, and reported if it does not rise.
Operators, as in the paper's table 1: sales -> filter (stateless) -> category of the item (stateless) -> sums
of a category (partitioned) -> its line (stateless).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock as ps
from penstock.annotated import Scale, checked
from penstock.lab.workloads.tpcx_bb.data import prepare
from penstock.lab.workloads.tpcx_bb.tables import DAY, STORE_SALES, columns, date_sk

FIELDS = ("ss_sold_ts", "ss_sold_date_sk", "ss_item_sk", "ss_store_sk", "ss_net_paid")
SALE = {"category": int, "x": int, "y": float, "xy": float}
"""For a line through days: x is the day, counted from the first one, and y what was paid."""
LINE = {"category": int, "slope": float, "intercept": float}


@dataclass(frozen=True)
class WithCategory:
    """Join the table of items, a whole batch at a time, and prepare the sums of the line."""

    items: pa.Array
    categories: pa.Array
    first: int
    """The first day."""

    def __call__(self, sales: pa.RecordBatch) -> pa.RecordBatch:
        category = self.categories.take(pc.index_in(sales["ss_item_sk"], value_set=self.items))
        x, y = pc.subtract(sales["ss_sold_date_sk"], self.first), sales["ss_net_paid"]
        return pa.RecordBatch.from_arrays([category, x, y, pc.multiply(x.cast(pa.float64()), y)], list(SALE))


def line(year: Any) -> list[tuple[int, float, float]]:
    """Fit a line to the days of a category when they are over; give it if it does not rise."""
    # Sums of y and of xy are the same by sale as by day; a day counts once, whatever was sold on it.
    days, x, xx = len(year.days), sum(year.days), sum(day * day for day in year.days)
    if days < 2:
        return []  # no line goes through one day
    slope = (days * year.xy - x * year.y) / (days * xx - x * x)
    first = year.window_start // DAY
    # The specification's x is the date key itself: the same line, seen from another zero.
    return [(year.category, slope, (year.y - slope * x) / days - slope * first)] if slope <= 0 else []


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
        WithCategory(known, items["i_category_id"].chunk(0), first), schema=SALE, name="category"
    )
    # One window, from the first day to the last; the sums of a category are folded a whole column at a time.
    year = by_category.key_by("category").window(ps.tumbling((last - first + 1) * DAY, offset=first * DAY))
    sums = year.aggregate(days=ps.agg.distinct("x"), y=ps.agg.sum("y"), xy=ps.agg.sum("xy"), name="year")
    lines = sums.flat_map(line, schema=LINE)
    lines.sink("declining", ps.write.parquet(out) if out else None)
    return made
