"""Write TPCx-BB Q3 with PySpark's transformWithState: the last views of a user are state that SQL cannot say."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from bench.peers.tpcx_bb_sql import start, timed, top

OUTPUT_DDL = "purchased_item long, lastviewed_item long, bought timestamp"
STATE_DDL = "views array<struct<at: long, item: long>>"

Output = Row("purchased_item", "lastviewed_item", "bought")


class LastViews(StatefulProcessor):  # type: ignore[misc]
    """Keep a user's last views; at a purchase yield those that are young enough and of the categories."""

    def __init__(self, item: int, views: int, seconds: int, viewable: frozenset[int]) -> None:
        self.item, self.views, self.seconds, self.viewable = item, views, seconds, viewable

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.state = handle.getValueState("views", STATE_DDL)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Take the clicks of one user in one micro-batch, which come in any order."""
        held = self.state.get()
        last = [(view[0], view[1]) for view in held[0]] if held is not None else []
        for row in sorted(rows, key=lambda row: row.seconds):
            if row.wcs_sales_sk is not None and self.item in (0, row.wcs_item_sk):
                for at, viewed in last:
                    if row.seconds - at <= self.seconds and viewed in self.viewable:
                        yield Output(row.wcs_item_sk, viewed, row.at)
            last = [*last, (row.seconds, row.wcs_item_sk)][-self.views :]
        self.state.update((last,))

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def q3(clicks: DataFrame, tables: dict[str, DataFrame], options: dict[str, Any]) -> DataFrame:
    """Return what people look at last before they buy an item, every day."""
    items = tables["item"].where(f.col("i_category_id").isin(options["categories"]))
    viewable = frozenset(row[0] for row in items.select("i_item_sk").collect())
    known = timed(clicks, "wcs_click").where("wcs_user_sk IS NOT NULL AND wcs_item_sk IS NOT NULL")
    seconds = (f.col("wcs_click_date_sk") * 86_400 + f.col("wcs_click_time_sk")).alias("seconds")
    processor = LastViews(options["item"], options["views"], options["lookback"], viewable)
    viewed = (
        known.select("at", seconds, "wcs_user_sk", "wcs_item_sk", "wcs_sales_sk")
        .groupBy("wcs_user_sk")
        .transformWithState(
            statefulProcessor=processor,
            outputStructType=OUTPUT_DDL,
            outputMode="append",
            timeMode="EventTime",
            eventTimeColumnName="bought",
        )
    )
    counts = viewed.groupBy(f.window("bought", "1 day"), "purchased_item", "lastviewed_item").agg(
        f.count("*").alias("cnt")
    )
    lists = counts.groupBy(f.window("window", "1 day"), "purchased_item").agg(top(options["limit"], "lastviewed_item"))
    return lists.select("purchased_item", start(), "top")
