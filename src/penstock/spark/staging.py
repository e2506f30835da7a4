"""Keep the batches of streaming DataFrames in the checkpoint, where their rows may have to wait for those of others.

With `order_by` over several sources a row is taken once no other source can come before it. Of a batch that Spark hands
over, some rows can be taken and others not, and Spark does not hand over half a batch. So each is written to the
checkpoint, in order, and from there read like any other directory of files.
"""

from __future__ import annotations

import dataclasses

from penstock.ingress.feeds import Feed, FileFeed
from penstock.ingress.paths import list_files
from penstock.operators.base import Source
from penstock.plan import Plan
from penstock.read import Files
from penstock.spark.batches import place_order
from penstock.spark.frames import FrameFeeds, SparkBatch, is_streaming
from penstock.store.keeper import Keeper


def is_staged(plan: Plan) -> bool:
    """Tell whether the batches of streaming DataFrames are to be kept."""
    return plan.layout.sequence == "order" and len(plan.sources) > 1 and any(map(is_streaming, plan.sources))


def staged_plan(plan: Plan, checkpoint: str) -> Plan:
    """Return the plan that reads the batches of streaming DataFrames from the checkpoint."""
    nodes = {}
    for node in filter(is_streaming, plan.sources):
        source = node.operator
        assert isinstance(source, Source)
        reader = Files(f"{checkpoint}/{_name(node.name)}", "parquet", node.types[0], follow=True, by_name=True)
        nodes[node.name] = dataclasses.replace(node, operator=dataclasses.replace(source, reader=reader))
    return dataclasses.replace(plan, graph=plan.graph.replaced(nodes))


class Staging:
    """Writes what Spark hands over."""

    def __init__(self, plan: Plan, keeper: Keeper, frames: FrameFeeds) -> None:
        """Keep the streaming DataFrames of a plan that still has them."""
        self._plan, self._keeper, self._frames = plan, keeper, frames
        self._done: dict[str, set[str]] = {}
        """Batches of which all rows were taken when it was last asked."""

    def take(self, wait: float) -> None:
        """Write the batches that Spark hands over, if there are some, and let Spark go on."""
        handed = list(self._frames.poll(wait, {}).values())
        kept = False
        try:
            for each in handed:
                self._write(each)
            kept = True
        finally:
            for each in handed:
                self._frames.finish(each, keep=kept)

    def clean(self, feeds: dict[str, Feed]) -> None:
        """Remove batches of which all rows were taken long ago: an epoch that is run again may need newer ones."""
        for node in filter(is_streaming, self._plan.sources):
            feed, path = feeds[node.name], f"{self._keeper.checkpoint.path}/{_name(node.name)}"
            assert isinstance(feed, FileFeed)
            batches = {file.path.rsplit("/", 2)[-2] for file in list_files(path)}
            done = {name for name in batches if feed.has_taken(f"{path}/{name}")}
            for name in done & self._done.get(node.name, set()):
                self._keeper.forget(f"{_name(node.name)}/{name}")
            self._done[node.name] = done

    def _write(self, handed: SparkBatch) -> None:
        from pyspark.sql import functions as F

        source = self._plan.nodes[handed.source].operator
        assert isinstance(source, Source)
        ordered = [F.col("row")[field].asc_nulls_first() for field in source.order_by]
        frame, places = place_order(handed.frame, handed.places)
        rows = frame.orderBy(*ordered, *places).select("row.*")
        # After a crash Spark hands the same batch over again.
        self._keeper.keep(f"{_name(handed.source)}/{handed.batch:012d}", rows.write.mode("overwrite").parquet)


def _name(source: str) -> str:
    return f"sources/{source}"
