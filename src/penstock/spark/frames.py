"""Streaming DataFrames as sources: a streaming query for each hands over one batch after the other.

Each has a query, and a log of Spark's, of its own: Spark knows the streams of a query by their number in its log of
offsets, so that a flow could not get another source if they shared one.
"""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.clock import as_measured, waiting_time
from penstock.errors import CheckpointError, FlowError, SourceError
from penstock.plan.graph import SourceNode
from penstock.plan.plan import Plan
from penstock.rows.records import normalize_schema
from penstock.spark.places import PLACE, BatchPlaces, batch_places

STOP_SECONDS = 60.0
"""How long the end of a stream is waited for; a run whose epochs are committed does not wait for ever."""
TELL_SECONDS = 5.0
"""After how long the wait is reported."""
log = logging.getLogger(__name__)


@dataclass(eq=False)
class SparkBatch:
    """A batch of one streaming DataFrame that Spark's stream has handed over, and waits to have back."""

    frame: Any
    batch: int
    source: str = ""
    places: BatchPlaces = field(default_factory=lambda: BatchPlaces("content", True))
    keep: bool | None = None
    """Whether Spark may count the batch as done; None until it is given back."""


class HandOver:
    """Where streams leave batches, and the engine takes them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[SparkBatch] = []
        self._taken: list[SparkBatch] = []
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """Tell whether every batch is refused from now on."""
        return self._stopping

    def offer(self, handed: SparkBatch) -> bool:
        """Hand a batch over and wait until it is given back; tell whether Spark may count it as done."""
        with self._changed:
            if self._stopping:
                return False
            self._waiting.append(handed)
            self._changed.notify_all()
            self._changed.wait_for(lambda: handed.keep is not None)
            return bool(handed.keep)

    def take(self, timeout: float) -> SparkBatch | None:
        """Return the batch that has waited longest, once there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping, timeout)
            if not self._waiting:
                return None
            self._taken.append(self._waiting.pop(0))
            return self._taken[-1]

    def give_back(self, handed: SparkBatch, keep: bool) -> None:
        """Let Spark go on after a batch; the first time counts."""
        with self._changed:
            self._give_back(handed, keep)

    def stop(self) -> None:
        """Give every batch back undone, and refuse those that are still to come."""
        with self._changed:
            self._stopping = True
            for handed in [*self._waiting, *self._taken]:
                self._give_back(handed, keep=False)
            self._waiting.clear()

    def _give_back(self, handed: SparkBatch, keep: bool) -> None:
        if handed.keep is None:
            handed.keep = keep
        if handed in self._taken:
            self._taken.remove(handed)
        self._changed.notify_all()


def stop_query(query: Any, seconds: float = STOP_SECONDS, tell: float = TELL_SECONDS) -> bool:
    """End a streaming query; say what is waited for where that takes long, and leave it behind where it takes too long.

    Spark's own `stop` waits for the stream's thread without a bound, whatever that thread waits for.
    """
    ended = threading.Event()

    def stop() -> None:
        try:
            query.stop()
        except Exception as error:
            log.warning("Spark's stream %s could not be stopped: %s", query.id, str(error).splitlines()[0])
        finally:
            ended.set()

    threading.Thread(target=stop, daemon=True, name="penstock-stop-stream").start()
    if ended.wait(min(tell, seconds)):
        return True
    log.warning("stopping: waiting for Spark to end its stream %s (%s)", query.id, _doing(query))
    if ended.wait(max(0.0, seconds - tell)):
        return True
    log.warning(
        "Spark has not ended its stream %s within %.0f s (%s), and it is left behind: what was committed is whole, but "
        "start the flow again in another process",
        query.id,
        seconds,
        _doing(query),
    )
    return False


def _doing(query: Any) -> str:
    try:
        return str(query.status["message"])
    except Exception as error:  # it is asked for a message only
        return f"which does not tell what it does: {type(error).__name__}"


Json = dict[str, Any]

_TAKE_ALL = re.compile(r"FileSource\[|(kafka|rate|socket)$")
"""Sources of Spark's own whose batches have all rows that are there, unless an option bounds them."""
_BOUNDS = re.compile(r"per(trigger|batch)", re.IGNORECASE)


def frame_schema(frame: Any) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return normalize_schema(to_arrow_schema(frame.schema, timezone="UTC"))


def check_frame(node: SourceNode) -> None:
    """Refuse a streaming DataFrame whose rows have no order of their own and were given none."""
    source = node.operator
    if not source.order_by and (problem := source.reader.places.problem) is not None:
        raise FlowError(f"source {node.name!r}: {problem}; or give order_by=, which orders the rows of each batch")


def placed_frame(plan: Plan, node: SourceNode) -> Any:
    """Return the streaming DataFrame of a source as tasks get it: (source, place..., row)."""
    from pyspark.sql import functions as F

    reader = node.operator.reader
    names = [f"`{name}`" for name in reader.frame.columns]
    return reader.places.frame.select(
        F.lit(plan.sources.index(node)).alias("source"),
        *[f"{PLACE}{number}" for number in range(reader.places.columns)],
        F.struct(*names).alias("row"),
    )


def is_streaming(node: SourceNode) -> bool:
    return bool(node.operator.reader.needs_spark and node.operator.reader.goes_on)


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


class _Stopped(Exception):
    """Ends a streaming query from inside; short, because Spark prints it."""


class FrameFeed:
    """The streaming query of one streaming DataFrame; `batches` is where it leaves them."""

    def __init__(self, plan: Plan, node: SourceNode, checkpoint: str, batches: HandOver) -> None:
        self._source, self._frame = node.name, placed_frame(plan, node)
        self._places = node.operator.reader.places
        self._checkpoint = f"{checkpoint}/spark/{directory_name(node.name)}"
        self._batches = batches
        self._query: Any = None
        self._started = threading.Event()
        self._problem: str | None = None

    def start(self, every: float | None, available_now: bool) -> None:
        quiet_streams(self._frame.sparkSession)
        writer = self._frame.writeStream.foreachBatch(self._take).option("checkpointLocation", self._checkpoint)
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif every:
            writer = writer.trigger(processingTime=f"{int(every * 1000)} milliseconds")
        self._query = writer.start()
        self._started.set()

    def check(self) -> None:
        """Raise what ended the query, if it has failed."""
        if self._query is not None and not self._query.isActive and not self._batches.stopping:
            ended = self._query.exception()
            problem = self._problem or (None if ended is None else str(ended).splitlines()[0])
            if problem is not None:
                raise SourceError(f"source {self._source!r}: Spark's stream has failed: {problem}")

    def spark_seconds(self) -> float:
        """Return what Spark itself took for the last batch that it told of: to plan it and to log it."""
        spent: dict[str, int] = (self._query.lastProgress or {}).get("durationMs", {})
        return as_measured(max(0, spent.get("triggerExecution", 0) - spent.get("addBatch", 0)) / 1000)

    def stop(self) -> None:
        """End the query, whose batches are refused by now, without interrupting a job."""
        if self._query is not None and self._query.isActive:
            stop_query(self._query)

    def _take(self, frame: Any, batch: int) -> None:
        """Hand a batch over; runs in a thread of Spark's."""
        if self._batches.stopping:
            raise _Stopped("stopped")
        self._started.wait()
        try:
            places = batch_places(self._places, frame.sparkSession._jvm, self._query, batch)
        except Exception as error:
            # Spark would tell of it in a hundred lines, and without the name of the source.
            self._problem = f"the names in batch {batch} cannot be found: {type(error).__name__}: {error}"
            raise _Stopped("failed") from None
        if not self._batches.offer(SparkBatch(frame, batch, self._source, places)):
            raise _Stopped("stopped")


class FrameFeeds:
    """The streaming queries of a flow."""

    def __init__(self, plan: Plan, checkpoint: str) -> None:
        self._batches = HandOver()
        self._waiting: dict[str, SparkBatch] = {}
        """Batches that no epoch has taken yet."""
        nodes = [node for node in plan.sources if is_streaming(node)]
        self._feeds = {node.name: FrameFeed(plan, node, checkpoint, self._batches) for node in nodes}

    def start(self, every: float | None, available_now: bool) -> None:
        for feed in self._feeds.values():
            feed.start(every, available_now)

    def poll(self, timeout: float, done: dict[str, int]) -> dict[str, SparkBatch]:
        """Return the batches that wait, by source, once there are some; `done` is the last of each source."""
        self._receive(timeout, done)
        found, self._waiting = self._waiting, {}
        return found

    def again(self, batches: dict[str, Json], timeout: float, done: dict[str, int]) -> dict[str, SparkBatch] | None:
        """Return the batches that an epoch was begun with before a crash, as soon as Spark has handed over all."""
        missing = sorted(set(batches) - set(self._feeds))
        if missing:
            raise CheckpointError(
                f"an epoch that was begun reads the streaming DataFrame of {missing[0]!r}, which the flow no longer "
                f"has; put it back, or start with a new checkpoint"
            )
        self._receive(timeout, done)
        if not set(batches) <= set(self._waiting):
            return None
        found = {source: self._waiting.pop(source) for source in batches}
        for source, logged in batches.items():
            if found[source].batch != logged["batch"]:
                raise CheckpointError(
                    f"source {source!r}: the epoch that was begun reads batch {logged['batch']} of Spark's stream, "
                    f"whose log goes on with {found[source].batch}; restore the checkpoint from a copy, or start "
                    f"with a new one"
                )
            # Files may have been touched since: their order is the one of the first time.
            found[source].places = found[source].places.restored(logged)
        return found

    def _receive(self, timeout: float, done: dict[str, int]) -> None:
        """Take what the queries hand over; give back at once what was done before a crash without Spark's knowing."""
        until = waiting_time() + timeout
        while True:
            handed = self._batches.take(0.0 if self._waiting else max(0.0, until - waiting_time()))
            if handed is None:
                break
            if handed.batch <= done.get(handed.source, -1):
                self.finish(handed, keep=True)
            else:
                self._waiting[handed.source] = handed
        for feed in self._feeds.values():
            feed.check()

    def finish(self, handed: SparkBatch, keep: bool) -> None:
        """Let Spark go on after a batch; the first time counts."""
        self._batches.give_back(handed, keep)

    def spark_seconds(self) -> float:
        """Return what Spark itself took for the last batches that it told of: to plan and to log them."""
        return max(feed.spark_seconds() for feed in self._feeds.values())

    def stop(self) -> None:
        """End the queries: batches that wait, and those that are still to come, are refused."""
        self._batches.stop()
        for feed in self._feeds.values():
            feed.stop()


def directory_name(source: str) -> str:
    """Return a name for the files of a source that every file system takes."""
    return "source=" + re.sub(r"[^\w.-]", lambda match: f"+{ord(match[0]):x}", source)


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
