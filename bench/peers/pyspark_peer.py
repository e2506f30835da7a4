"""PySpark's Structured Streaming: its three stateful APIs, Python UDFs, and a pool of threads in mapInPandas."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress

from bench.peers import apply_in_pandas_with_state, transform_with_state, transform_with_state_in_pandas
from bench.peers.apart import Outcome, Task, as_running
from bench.workload import Event, amount, large, look_up, lower, small

Transform = Callable[[DataFrame], DataFrame]

DDL = "serial long, key long, value double"
STATE = "org.apache.spark.sql.execution.streaming.state"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # One task a core: more only add their fixed cost on a machine of this size.
    "spark.sql.shuffle.partitions": "2",
    # transformWithState requires RocksDB; with a change log a commit uploads what changed, not a snapshot.
    "spark.sql.streaming.stateStore.providerClass": f"{STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def session() -> SparkSession:
    """Start Spark on this machine; its workers must be of this environment, not of whichever `python3` comes first."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("peer")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    found: SparkSession = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def follow(
    task: Task, transform: Callable[[DataFrame], DataFrame], take: Callable[[DataFrame], Any]
) -> tuple[int, float]:
    """Run a streaming query over the files, one a micro-batch; return rows and seconds without the first."""
    spark = session()
    events = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(task.paths[0].parent))
    with tempfile.TemporaryDirectory(prefix="peer-") as made:
        query = (
            transform(events)
            .writeStream.foreachBatch(lambda frame, _: take(frame))
            .option("checkpointLocation", str(Path(made) / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress: list[StreamingQueryProgress] = [p for p in query.recentProgress if p.numInputRows]
    later = progress[1:] or progress
    spark.stop()
    return sum(p.numInputRows for p in later), sum(p.batchDuration for p in later) / 1000


def stateful(transform: Transform, task: Task) -> Outcome:
    """Run W1 with one of the stateful APIs."""
    outputs: list[Any] = []
    steady = follow(task, transform, lambda frame: outputs.extend(as_running(frame.collect())))
    return Outcome(outputs, steady)


def w2(task: Task) -> Outcome:
    """Run the four functions as UDFs, and count."""
    counts: list[int] = []

    def transform(events: DataFrame) -> DataFrame:
        in_hundredths = F.udf(lambda value: amount(Event(0, 0, value)), "double")
        is_large, lowered, is_small = F.udf(large, "boolean"), F.udf(lower, "double"), F.udf(small, "boolean")
        amounts = events.select(in_hundredths("value").alias("amount")).where(is_large("amount"))
        return amounts.select(lowered("amount").alias("amount")).where(is_small("amount"))

    steady = follow(task, transform, lambda frame: counts.append(frame.count()))
    return Outcome(sum(counts), steady)


def w3(task: Task) -> Outcome:
    """Ask for many rows at once in a pool of threads, partition by partition."""
    spark = session()

    def ask_all(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        with ThreadPoolExecutor(task.in_flight) as pool:
            for frame in frames:
                answers = pool.map(partial(look_up, seconds=task.wait), frame["id"].tolist())
                yield pd.DataFrame({"id": list(answers)})

    rows = spark.range(0, task.rows, 1, 2).mapInPandas(ask_all, "id long").collect()
    spark.stop()
    return Outcome([row.id for row in rows], note="a batch query, with Spark's start; order within partitions")


PACKAGE = "pyspark"
WORKLOADS = {
    "w1-transformWithState": partial(stateful, transform_with_state.transform),
    "w1-transformWithStateInPandas": partial(stateful, transform_with_state_in_pandas.transform),
    "w1-applyInPandasWithState": partial(stateful, apply_in_pandas_with_state.transform),
    "w2": w2,
    "w3": w3,
}
