"""Answer the TPCx-BB queries in batch Spark SQL, over the whole tables and without a word of the flows.

Each text is a format string of its query's parameters and gives one row for each line of a report, in its order.
`at` is the time of a row in seconds, computed as the specification does, and `place` its place in the stream.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

CLICKS = """
SELECT *, wcs_click_date_sk * 86400 + wcs_click_time_sk AS at, struct(_metadata.file_name, _metadata.row_index) AS place
FROM parquet.`{}`
"""
SALES = "SELECT *, ss_sold_date_sk * 86400 + ss_sold_time_sk AS at FROM parquet.`{}`"

Q1 = """
WITH line AS (
  SELECT DISTINCT ss_ticket_number AS ticket, ss_item_sk AS item, floor(at / {span}) * {span} AS start
  FROM store_sales JOIN item ON ss_item_sk = i_item_sk
  WHERE i_category_id IN ({categories}) AND ss_store_sk IN ({stores})
), counted AS (
  SELECT a.start, a.item AS item_1, b.item AS item_2, count(*) AS cnt
  FROM line a JOIN line b ON a.ticket = b.ticket AND a.item < b.item
  GROUP BY ALL
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY start ORDER BY cnt DESC, item_1, item_2) AS rank
  FROM counted WHERE cnt >= {least}
)
SELECT start, start + {span}, item_1, item_2, cnt FROM ranked WHERE rank <= {limit} ORDER BY start, rank
"""

SESSIONS = """
  SELECT *, sum(begins) OVER (PARTITION BY wcs_user_sk ORDER BY at) AS session
  FROM (
    SELECT *,
      CASE WHEN at - lag(at) OVER (PARTITION BY wcs_user_sk ORDER BY at) <= {timeout} THEN 0 ELSE 1 END AS begins
    FROM clicks
  )
"""

Q2 = f"""
WITH clicks AS (
  SELECT * FROM web_clickstreams WHERE wcs_user_sk IS NOT NULL AND wcs_item_sk IS NOT NULL
), session AS (
  SELECT floor((max(at) + {{timeout}}) / {{span}}) * {{span}} AS start, collect_set(wcs_item_sk) AS items
  FROM ({SESSIONS}) GROUP BY wcs_user_sk, session
), counted AS (
  SELECT start, viewed, count(*) AS cnt
  FROM (SELECT start, explode(items) AS viewed FROM session WHERE array_contains(items, {{item}}))
  WHERE viewed <> {{item}} GROUP BY ALL
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY start ORDER BY cnt DESC, viewed) AS rank FROM counted
)
SELECT start, start + {{span}}, viewed, cnt FROM ranked WHERE rank <= {{limit}} ORDER BY start, rank
"""

Q2_ALL_PAIRS = f"""
WITH clicks AS (
  SELECT * FROM web_clickstreams WHERE wcs_user_sk IS NOT NULL AND wcs_item_sk IS NOT NULL
), visited AS (
  SELECT DISTINCT wcs_user_sk, session, wcs_item_sk AS item,
    floor((max(at) OVER (PARTITION BY wcs_user_sk, session) + {{timeout}}) / {{span}}) * {{span}} AS start
  FROM ({SESSIONS})
), counted AS (
  SELECT a.start, a.item AS item_1, b.item AS item_2, count(*) AS cnt
  FROM visited a JOIN visited b ON a.wcs_user_sk = b.wcs_user_sk AND a.session = b.session AND a.item < b.item
  GROUP BY ALL
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY start ORDER BY cnt DESC, item_1, item_2) AS rank FROM counted
)
SELECT start, start + {{span}}, item_1, item_2, cnt FROM ranked WHERE rank <= {{limit}} ORDER BY start, rank
"""

Q3 = """
WITH clicks AS (
  SELECT * FROM web_clickstreams WHERE wcs_user_sk IS NOT NULL AND wcs_item_sk IS NOT NULL
), before AS (
  SELECT bought.wcs_item_sk AS purchased, bought.at, seen.wcs_item_sk AS viewed, seen.at AS seen_at,
    row_number() OVER (PARTITION BY bought.place ORDER BY seen.at DESC, seen.place DESC) AS back
  FROM clicks bought JOIN clicks seen ON bought.wcs_user_sk = seen.wcs_user_sk
    AND (seen.at < bought.at OR seen.at = bought.at AND seen.place < bought.place)
  WHERE bought.wcs_sales_sk IS NOT NULL
), counted AS (
  SELECT purchased, floor(at / {span}) * {span} AS start, viewed, count(*) AS cnt
  FROM before JOIN item ON viewed = i_item_sk
  WHERE back <= {views} AND at - seen_at <= {lookback} AND i_category_id IN ({categories})
    AND {item} IN (0, purchased)
  GROUP BY ALL
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY start, purchased ORDER BY cnt DESC, viewed) AS rank FROM counted
)
SELECT purchased, start, start + {span}, viewed, cnt FROM ranked WHERE rank <= {limit} ORDER BY start, purchased, rank
"""

Q4 = f"""
WITH clicks AS (
  SELECT web_clickstreams.*, wp_type FROM web_clickstreams JOIN web_page ON wcs_web_page_sk = wp_web_page_sk
  WHERE wcs_user_sk IS NOT NULL AND wcs_sales_sk IS NULL
), session AS (
  SELECT floor((max(at) + {{timeout}}) / {{span}}) * {{span}} AS start, count(*) AS pages,
    max(CASE WHEN wp_type = 'dynamic' THEN struct(at, place) END) AS filled,
    max(CASE WHEN wp_type = 'order' THEN struct(at, place) END) AS ordered
  FROM ({SESSIONS}) GROUP BY wcs_user_sk, session
)
SELECT start, start + {{span}}, count(*), avg(pages) FROM session
WHERE filled IS NOT NULL AND (ordered IS NULL OR filled > ordered)
GROUP BY start ORDER BY start
"""

Q15 = """
WITH daily AS (
  SELECT i_category_id AS category, ss_sold_date_sk AS x, sum(ss_net_paid) AS y
  FROM store_sales JOIN item ON ss_item_sk = i_item_sk
  WHERE ss_store_sk = {store}
    AND date_add(DATE'1900-01-01', CAST(ss_sold_date_sk AS INT)) BETWEEN DATE'{start}' AND DATE'{end}'
  GROUP BY ALL
), fitted AS (
  SELECT category, regr_slope(y, x) AS slope, regr_intercept(y, x) AS intercept FROM daily GROUP BY category
)
SELECT * FROM fitted WHERE slope <= 0 ORDER BY category
"""


def answer(spark: Any, data: Path, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """Ask a query of the tables in a directory."""
    # A session of its own, for its settings and views: so little data needs no 200 tasks a shuffle.
    spark = spark.newSession()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.sql(CLICKS.format(data / "web_clickstreams")).createOrReplaceTempView("web_clickstreams")
    spark.sql(SALES.format(data / "store_sales")).createOrReplaceTempView("store_sales")
    for table in ("item", "web_page"):
        spark.read.parquet(str(data / table)).createOrReplaceTempView(table)
    return [tuple(row) for row in spark.sql(query.format(**parameters)).collect()]
