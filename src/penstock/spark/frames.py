"""Spark DataFrames as sources: their rows get positions, and a streaming query hands over one batch after the other."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import FlowError, SourceError
from penstock.graph import Node
from penstock.ingress.splits import Piece, cast_table
from penstock.operators.base import Source
from penstock.plan import Plan
from penstock.read import Frame
from penstock.rows import normalize_schema

_TAKE_ALL = re.compile(r"FileSource\[|(kafka|rate|socket)$")
"""Sources of Spark's own whose batches have all rows that are there, unless an option bounds them."""
_BOUNDS = re.compile(r"per(trigger|batch)", re.IGNORECASE)
_SHUFFLES = re.compile(r"\b(Aggregate|Join|Repartition\w*|RebalancePartitions|Deduplicate\w*|Sort|Window)\b")


def frame_schema(frame: Any) -> pa.Schema:
    """Return the Arrow schema of a DataFrame's rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return normalize_schema(to_arrow_schema(frame.schema, timezone="UTC"))


def place_columns(frame: Any) -> list[Any]:
    """Return the columns that tell a row's place in a streaming DataFrame, in order of weight.

    Kafka's topic, partition and offset; a file's time, name and row; a rate stream's value. Otherwise partition and
    row, which hold for one run only: None stands for them, because Spark numbers the rows of a batch but not those of
    a stream (see `numbered`).
    """
    from pyspark.sql import functions as F

    names = set(frame.columns)
    if {"topic", "partition", "offset"} <= names:
        return [F.xxhash64("topic"), F.col("partition").cast("long"), F.col("offset").cast("long")]
    if has_metadata(frame):
        meta = "_metadata."
        when = F.unix_micros(F.col(meta + "file_modification_time"))
        file = [when, F.xxhash64(meta + "file_path")]
        if "row_index" in metadata_fields(frame):
            return [*file, F.col(meta + "row_index")]
        return [*file, F.col(meta + "file_block_start"), None]
    if names == {"timestamp", "value"} and dict(frame.dtypes)["value"] == "bigint":
        return [F.col("value")]
    return [None]


def has_metadata(frame: Any) -> bool:
    """Tell whether a DataFrame comes straight from files."""
    return bool(metadata_fields(frame))


def metadata_fields(frame: Any) -> list[str]:
    """Return the names in a DataFrame's hidden `_metadata` column."""
    try:
        return list(frame.select("_metadata").schema[0].dataType.fieldNames())
    except Exception:  # an AnalysisException: there is no such column
        return []


def check_frame(node: Node) -> None:
    """Refuse a streaming DataFrame whose rows have no order of their own and were given none."""
    source = node.operator
    assert isinstance(source, Source)
    frame = source.reader.frame
    plan = frame._jdf.queryExecution().logical().toString()
    if source.reader.streaming and not source.order_by and (match := _SHUFFLES.search(plan)):
        raise FlowError(
            f"source {node.name!r}: the streaming DataFrame contains a shuffle ({match[1]}), behind which its rows "
            f"have no "
            f"order; give order_by="
        )


def combined(plan: Plan) -> Any:
    """Return one streaming DataFrame with the rows of all streaming sources: (source, place..., one struct a
    source)."""
    from pyspark.sql import functions as F

    nodes = [node for node in plan.sources if is_streaming(node)]
    wide = max(node.operator.reader.own_width for node in nodes)  # type: ignore[attr-defined]
    parts = []
    for node in nodes:
        check_frame(node)
        frame = node.operator.reader.frame  # type: ignore[attr-defined]
        places = [F.lit(0).cast("long") if c is None else c.cast("long") for c in place_columns(frame)]
        places += [F.lit(0).cast("long")] * (wide - len(places))
        names = [f"`{name}`" for name in frame.columns]
        structs = [
            F.struct(*names).alias(f"row{plan.sources.index(other)}")
            if other is node
            else F.lit(None).cast(_struct_type(other)).alias(f"row{plan.sources.index(other)}")
            for other in nodes
        ]
        parts.append(
            frame.select(
                F.lit(plan.sources.index(node)).alias("source"),
                *[place.alias(f"place{i}") for i, place in enumerate(places)],
                *structs,
            )
        )
    made = parts[0]
    for part in parts[1:]:
        made = made.unionAll(part)
    return made


def numbered(plan: Plan, batch: Any) -> Any:
    """Return a batch of the combined DataFrame with the numbers of rows whose sources do not tell them."""
    from pyspark.sql import functions as F

    for node in filter(is_streaming, plan.sources):
        for index, column in enumerate(place_columns(node.operator.reader.frame)):  # type: ignore[attr-defined]
            if column is None:
                mine, place = F.col("source") == plan.sources.index(node), f"place{index}"
                batch = batch.withColumn(place, F.when(mine, F.monotonically_increasing_id()).otherwise(F.col(place)))
    return batch


def _struct_type(node: Node) -> Any:
    return node.operator.reader.frame.schema  # type: ignore[attr-defined]


def is_streaming(node: Node) -> bool:
    """Tell whether a source is a streaming DataFrame."""
    reader = getattr(node.operator, "reader", None)
    return isinstance(reader, Frame) and reader.streaming


def takes_all(frame: Any) -> bool:
    """Tell whether each batch of a streaming DataFrame has all rows that are there, so that none are left over."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        if not leaf.isStreaming():
            continue
        kind = leaf.getClass().getSimpleName()
        if kind not in ("StreamingRelation", "StreamingRelationV2") or not _TAKE_ALL.match(leaf.sourceName()):
            return False
        if kind == "StreamingRelation":
            options = leaf.dataSource().options().keySet().mkString(" ")
        else:
            options = " ".join(leaf.extraOptions().asCaseSensitiveMap().keySet())
        if _BOUNDS.search(options):
            return False
    return True


def frame_pieces(plan: Plan, batch: pa.RecordBatch) -> Iterator[tuple[Node, Piece]]:
    """Divide a batch of the combined DataFrame by source."""
    sources = batch.column("source").to_numpy()
    places = [name for name in batch.schema.names if name.startswith("place")]
    for number in np.unique(sources).tolist():
        node = plan.sources[number]
        index = pa.array(np.flatnonzero(sources == number))
        part = batch if len(index) == batch.num_rows else batch.take(index)
        rows = pa.RecordBatch.from_struct_array(part.column(f"row{number}"))
        own = np.stack([part.column(name).to_numpy() for name in places])
        assert node.types[0] is not None
        yield node, Piece(own, cast_table(node.types[0], rows, node.name, None), None, in_order=False)


@dataclass
class Handed:
    """A batch that Spark's stream has handed over, and waits to have done."""

    frame: Any
    batch: int
    done: threading.Event
    keep: bool = True
    """Whether Spark may count the batch as done."""


class _Stopped(Exception):
    """Ends a streaming query from inside; short, because Spark prints it."""


class FrameFeed:
    """The streaming query of all streaming DataFrames of a flow."""

    def __init__(self, plan: Plan, checkpoint: str) -> None:
        self._plan, self._frame = plan, combined(plan)
        self._checkpoint = f"{checkpoint}/spark"
        self._handed: queue.Queue[Handed] = queue.Queue()
        self._query: Any = None
        self._stopping = False
        self._current: Handed | None = None

    def start(self, every: float | None, available_now: bool) -> None:
        """Start the query."""
        quiet_streams(self._frame.sparkSession)
        writer = self._frame.writeStream.foreachBatch(self._take).option("checkpointLocation", self._checkpoint)
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif every:
            writer = writer.trigger(processingTime=f"{int(every * 1000)} milliseconds")
        self._query = writer.start()

    def poll(self, timeout: float) -> Handed | None:
        """Return the batch that waits, if there is one; raise what ended the query."""
        try:
            self._current = self._handed.get(timeout=timeout) if timeout > 0 else self._handed.get_nowait()
            return self._current
        except queue.Empty:
            pass
        if self._query is not None and not self._query.isActive and not self._stopping:
            problem = self._query.exception()
            if problem is not None:
                raise SourceError(f"Spark's stream has failed: {str(problem).splitlines()[0]}")
        return None

    def finish(self, handed: Handed, keep: bool) -> None:
        """Let Spark go on behind a batch."""
        self._current = None
        handed.keep = keep
        handed.done.set()

    def spark_seconds(self) -> float:
        """Return what Spark itself took for the last batch that it told of: to plan it and to log it."""
        spent: dict[str, int] = (self._query.lastProgress or {}).get("durationMs", {})
        return max(0, spent.get("triggerExecution", 0) - spent.get("addBatch", 0)) / 1000

    def ended(self) -> bool:
        """Tell whether the query has come to its end (a bounded run)."""
        return self._query is not None and not self._query.isActive and self._handed.empty()

    def stop(self) -> None:
        """End the query without interrupting a job: the next batch, or the one that waits, is refused."""
        self._stopping = True
        if self._current is not None:
            self.finish(self._current, keep=False)
        while True:
            try:
                self.finish(self._handed.get_nowait(), keep=False)
            except queue.Empty:
                break
        if self._query is not None and self._query.isActive:
            self._query.stop()

    def _take(self, frame: Any, batch: int) -> None:
        """Hand a batch over; runs in a thread of Spark's."""
        if self._stopping:
            raise _Stopped("stopped")
        handed = Handed(numbered(self._plan, frame), batch, threading.Event())
        self._handed.put(handed)
        handed.done.wait()
        if not handed.keep:
            raise _Stopped("stopped")


def quiet_streams(session: Any) -> None:
    """Keep Spark from printing a thousand lines for a query that ends by our own hand."""
    jvm = session._jvm
    configurator = jvm.org.apache.logging.log4j.core.config.Configurator
    for name in (
        "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
        "org.apache.spark.sql.execution.streaming.MicroBatchExecution",
        "org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchHelper",
    ):
        configurator.setLevel(name, jvm.org.apache.logging.log4j.Level.OFF)
