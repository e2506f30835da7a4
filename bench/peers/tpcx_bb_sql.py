"""Write the TPCx-BB queries that Spark's own operators can express: Q1, Q2, Q4 and Q15 in Structured Streaming.

As its guide has them: a watermark, time and session windows, aggregations one behind the other in append mode. A list
of the largest counts is an aggregation too, because `row_number` is not to be had on streams.
"""

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f


def q1(sales: DataFrame, tables: dict[str, DataFrame], options: dict[str, Any]) -> DataFrame:
    """Return the pairs of items that are sold together most often, every hour."""
    span = f"{options['hours']} hours"
    items = tables["item"].where(f.col("i_category_id").isin(options["categories"])).select("i_item_sk")
    wanted = timed(sales, "ss_sold").where(f.col("ss_store_sk").isin(options["stores"]))
    lines = wanted.join(f.broadcast(items), f.col("ss_item_sk") == f.col("i_item_sk"))
    baskets = lines.groupBy(f.window("at", span), "ss_ticket_number").agg(
        f.array_sort(f.collect_set("ss_item_sk")).alias("items")
    )
    second = "transform(slice(items, i + 2, 9999), b -> struct(a, b))"
    pair = f.expr(f"explode(flatten(transform(items, (a, i) -> {second})))")
    pairs = baskets.select("window", pair.alias("pair"))
    counts = pairs.groupBy(
        f.window("window", span), f.col("pair.a").alias("item_sk_1"), f.col("pair.b").alias("item_sk_2")
    ).agg(f.count("*").alias("cnt"))
    lists = counts.groupBy(f.window("window", span)).agg(top(options["limit"], "item_sk_1", "item_sk_2"))
    return lists.select(start(), "top")


def q2(clicks: DataFrame, tables: dict[str, DataFrame], options: dict[str, Any]) -> DataFrame:
    """Return the items that are viewed most often together with a given one, every day."""
    known = timed(clicks, "wcs_click").where("wcs_user_sk IS NOT NULL AND wcs_item_sk IS NOT NULL")
    sessions = known.groupBy(f.session_window("at", f"{options['timeout'] + 1} seconds"), "wcs_user_sk").agg(
        f.collect_set("wcs_item_sk").alias("items")
    )
    others = sessions.where(f.array_contains("items", options["item"])).select(
        f.window_time("session_window").alias("ended"), f.explode("items").alias("item_sk")
    )
    others = others.where(f.col("item_sk") != options["item"])
    counts = others.groupBy(f.window("ended", "1 day"), "item_sk").agg(f.count("*").alias("cnt"))
    lists = counts.groupBy(f.window("window", "1 day")).agg(top(options["limit"], "item_sk"))
    return lists.select(start(), "top")


def q4(clicks: DataFrame, tables: dict[str, DataFrame], options: dict[str, Any]) -> DataFrame:
    """Return the average number of pages of sessions with an abandoned cart, every day."""
    known = timed(clicks, "wcs_click").where("wcs_user_sk IS NOT NULL AND wcs_sales_sk IS NULL")
    pages = tables["web_page"].select("wp_web_page_sk", "wp_type")
    typed = known.join(f.broadcast(pages), f.col("wcs_web_page_sk") == f.col("wp_web_page_sk"))
    sessions = typed.groupBy(f.session_window("at", f"{options['timeout'] + 1} seconds"), "wcs_user_sk").agg(
        f.count("*").alias("pages"),
        f.max(f.when(f.col("wp_type") == "dynamic", f.col("at"))).alias("filled"),
        f.max(f.when(f.col("wp_type") == "order", f.col("at"))).alias("ordered"),
    )
    abandoned = sessions.where("filled IS NOT NULL AND (ordered IS NULL OR filled > ordered)")
    ended = abandoned.select(f.window_time("session_window").alias("ended"), "pages")
    average = ended.groupBy(f.window("ended", "1 day")).agg(
        f.count("*").alias("sessions"), f.avg("pages").alias("average_pages")
    )
    return average.select(start(), "sessions", "average_pages")


def q15(sales: DataFrame, tables: dict[str, DataFrame], options: dict[str, Any]) -> DataFrame:
    """Return the categories whose sales are flat or go down between two dates, as keys."""
    first, last = options["first"], options["last"]
    items = tables["item"].select("i_item_sk", "i_category_id")
    wanted = timed(sales, "ss_sold").where(
        (f.col("ss_store_sk") == options["store"]) & f.col("ss_sold_date_sk").between(first, last)
    )
    typed = wanted.join(f.broadcast(items), f.col("ss_item_sk") == f.col("i_item_sk"))
    daily = typed.groupBy(f.window("at", "1 day"), "i_category_id", "ss_sold_date_sk").agg(
        f.sum("ss_net_paid").alias("paid")
    )
    # Windows are counted from 1970-01-01, and a key of a date from 1900-01-01: both are days of so many seconds.
    year = f.window("window", f"{last - first + 1} days", startTime=f"{first % (last - first + 1)} days")
    lines = daily.groupBy(year, "i_category_id").agg(
        f.regr_slope("paid", "ss_sold_date_sk").alias("slope"),
        f.regr_intercept("paid", "ss_sold_date_sk").alias("intercept"),
    )
    return lines.where("slope <= 0").select(f.col("i_category_id").alias("category"), "slope", "intercept")


def timed(rows: DataFrame, prefix: str) -> DataFrame:
    at = f.timestamp_seconds(f.col(f"{prefix}_date_sk") * 86_400 + f.col(f"{prefix}_time_sk"))
    return rows.withColumn("at", at).withWatermark("at", "0 seconds")


def top(limit: int, *fields: str) -> Column:
    """Return the largest counts in the order of the specification."""
    ordered = f.array_sort(f.collect_list(f.struct((-f.col("cnt")).alias("less"), *fields)))
    return f.transform(f.slice(ordered, 1, limit), lambda entry: _entry(entry, fields)).alias("top")


def _entry(entry: Column, fields: tuple[str, ...]) -> Column:
    return f.struct(*(entry[field].alias(field) for field in fields), (-entry["less"]).alias("cnt"))


def start() -> Column:
    return f.unix_seconds("window.start").alias("window_start")
