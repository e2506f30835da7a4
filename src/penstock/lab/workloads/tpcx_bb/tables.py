"""Say what the tables of TPCx-BB hold: their columns, their sizes at a scale factor, and the small ones whole.

Column names and types are the specification's; keys are its surrogate keys, and a date key counts days from
1900-01-01. The two large tables have one column more than it gives them, the time in seconds (`wcs_click_ts`,
`ss_sold_ts`): its queries compute it from date and time in their first line, and a stream needs it as its event time.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.annotated import Scale, checked
from penstock.errors import FlowError

Ints = npt.NDArray[np.int64]

DAY = 86_400
FIRST_DATE_SK = 36_890
"""2001-01-01, the first day of the specification's sales and clicks."""
DAYS = 1827
"""Its sales go from 2001-01-01 to 2006-01-02."""

CATEGORIES = (
    "Home & Kitchen",
    "Music",
    "Books",
    "Clothing & Accessories",
    "Electronics",
    "Tools & Home Improvement",
    "Toys & Games",
    "Movies & TV",
    "Sports & Outdoors",
    "Others",
)
"""In the order of their numbers, which begin with 1."""
CATEGORY_WEIGHTS = (0.08, 0.22, 0.2, 0.08, 0.08, 0.07, 0.07, 0.08, 0.07, 0.05)
PAGE_TYPES = ("dynamic", "general", "ad", "welcome", "dynamic", "feedback", "protected", "general", "review", "order")
"""Types of pages 1, 2, ... and over again: a cart is filled on dynamic pages and checked out on order pages."""
NAMED_ITEM = 10_001
"""The item that the specification's parameters name; it is a popular one, so that small data has answers too."""

WEB_CLICKSTREAMS = pa.schema(
    [
        ("wcs_click_ts", pa.int64()),
        ("wcs_click_date_sk", pa.int64()),
        ("wcs_click_time_sk", pa.int64()),
        ("wcs_sales_sk", pa.int64()),
        ("wcs_item_sk", pa.int64()),
        ("wcs_web_page_sk", pa.int64()),
        ("wcs_user_sk", pa.int64()),
    ]
)
STORE_SALES = pa.schema(
    [
        ("ss_sold_ts", pa.int64()),
        ("ss_sold_date_sk", pa.int64()),
        ("ss_sold_time_sk", pa.int64()),
        ("ss_item_sk", pa.int64()),
        ("ss_customer_sk", pa.int64()),
        ("ss_store_sk", pa.int64()),
        ("ss_ticket_number", pa.int64()),
        ("ss_quantity", pa.int32()),
        ("ss_net_paid", pa.float64()),
    ]
)


def columns(table: pa.Schema, *names: str) -> pa.Schema:
    """Return the schema of some columns of a table; a source with it reads no others."""
    return pa.schema([table.field(name) for name in names])


def date_sk(day: str) -> int:
    """Return the key of a date such as "2001-09-02"."""
    try:
        return (dt.date.fromisoformat(day) - dt.date(1900, 1, 1)).days
    except ValueError:
        raise FlowError(f"{day!r} is no date; write for example 2001-09-02") from None


@dataclass(frozen=True)
class Sizes:
    """How many rows the tables have. Those of facts grow with the scale factor, those of dimensions with its root."""

    clicks: int
    sales: int
    items: int
    users: int
    stores: int
    pages: int


@checked
def sizes(scale: Scale) -> Sizes:
    """Return the sizes at a scale factor; 1 is about 1 GB of the whole benchmark.

    Dimensions are never smaller than at 1, because the specification's parameters name one item and one store.
    """
    root = max(1.0, math.sqrt(scale))
    return Sizes(
        clicks=max(1, round(6_770_000 * scale)),
        sales=max(1, round(820_000 * scale)),
        items=round(18_000 * root),
        users=max(10, round(99_000 * math.sqrt(scale))),
        stores=round(12 * root),
        pages=round(60 * root),
    )


def item_categories(scale: float, seed: int) -> Ints:
    """Return the category number of each item, from item 1 on."""
    rng = np.random.default_rng([seed, 1])
    numbers = np.arange(1, len(CATEGORIES) + 1)
    return rng.choice(numbers, sizes(scale).items, p=CATEGORY_WEIGHTS).astype(np.int64)


def item_prices(scale: float, seed: int) -> npt.NDArray[np.float64]:
    """Return the price of each item, from item 1 on."""
    return np.round(np.random.default_rng([seed, 2]).lognormal(2.5, 0.8, sizes(scale).items), 2)


def item(scale: float, seed: int) -> pa.Table:
    numbers = np.arange(1, sizes(scale).items + 1)
    categories = item_categories(scale, seed)
    return pa.table(
        {
            "i_item_sk": pa.array(numbers, pa.int64()),
            "i_item_id": [f"AAAAAAAA{number:08d}" for number in numbers.tolist()],
            "i_current_price": item_prices(scale, seed),
            "i_category_id": categories,
            "i_category": [CATEGORIES[number - 1] for number in categories.tolist()],
        }
    )


def web_page(scale: float, seed: int) -> pa.Table:
    """Make the table of web pages; it is the same for every seed."""
    numbers = np.arange(1, sizes(scale).pages + 1)
    return pa.table(
        {
            "wp_web_page_sk": pa.array(numbers, pa.int64()),
            "wp_web_page_id": [f"AAAAAAAA{number:08d}" for number in numbers.tolist()],
            "wp_type": [PAGE_TYPES[(number - 1) % len(PAGE_TYPES)] for number in numbers.tolist()],
        }
    )
