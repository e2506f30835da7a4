"""Kill the driver of a run over Kafka: each partition comes out in its exact order, and windows are those of SQL."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.jars import connector_jars

from ..chaos.killing import Chaos
from ..spark.running import read_back
from . import driver
from .broker import Broker
from .driver import Topic
from .messages import SCHEMA, WINDOW, message, messages, mixed, sizes

TREE = Path(__file__).parents[2]


class KafkaChaos(Chaos):
    """A run over a topic whose driver is killed, and goes on with other cores."""

    topic: Topic

    def _command(self) -> list[str]:
        master = f"local[{self._draw.choice([1, 2, 3])},4]"
        return [driver.__file__, str(TREE), str(self.work), master, self.topic.to_json()]


class Row:
    """A row as the scan sees it."""

    def __init__(self, fields: dict[str, int]) -> None:
        self.__dict__ = fields


def check_order(work: Path, count: int, partitions: int) -> None:
    """Compare what came out of each partition with a plain loop over its messages."""
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in read_back(work / "scanned"):
        found[row[0]].append(row)
    assert sorted(found) == list(range(partitions))
    for partition, size in enumerate(sizes(count, partitions)):
        state, expected = 0, []
        for n in range(size):
            state, row = mixed(state, Row(message(partition, n)))
            expected.append(row)
        assert found[partition] == expected, f"partition {partition}"


def windows_by_sql(spark: Any, topic: Topic) -> list[tuple[int, ...]]:
    """Return the windows that must have closed, by a batch query over the topic."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", topic.address)
    frame = reader.option("subscribe", topic.name).load()
    rows = frame.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*").cache()
    assert rows.count() == topic.count
    reached = rows.groupBy("p").agg(F.max("t").alias("t")).agg(F.min("t")).first()[0]
    starts = (F.col("t") - F.col("t") % WINDOW).alias("start")
    made = rows.groupBy("k", starts).agg(F.count("*").alias("c"), F.sum("v").alias("s"))
    closed = made.where(F.col("start") + WINDOW <= reached)
    found = [tuple(row) for row in closed.selectExpr("k", "start", f"start + {WINDOW}", "c", "s").collect()]
    rows.unpersist()
    assert found, "no window has closed"
    return sorted(found)


def run(
    spark: Any, kafka: Broker, work: Path, *, count: int, partitions: int, kills: int, seed: int, note: Any
) -> None:
    topic = Topic(kafka.address, f"chaos-{seed}", count, count // 20, [str(jar) for jar in connector_jars()])
    kafka.create(topic.name, partitions)
    kafka.write(topic.name, messages(count, partitions))
    chaos = KafkaChaos(work, "driver", seed, kills, epochs=20)
    chaos.topic = topic
    try:
        chaos.run()
        assert len(chaos.killed) == kills, "the run was over before all kills were done"
        check_order(work, count, partitions)
        assert sorted(read_back(work / "windowed")) == windows_by_sql(spark, topic)
    except BaseException as error:
        error.add_note(f"seed {seed}; kept in {work}; killed: {chaos.killed}")
        raise
    finally:
        note("driver", len(chaos.killed))


@pytest.mark.spark
@pytest.mark.slow
def test_a_driver_that_is_killed(spark, kafka, tmp_path, count_kills):
    run(spark, kafka, tmp_path, count=4_000, partitions=3, kills=1, seed=1, note=count_kills)


@pytest.mark.spark
@pytest.mark.slow
def test_half_a_million_messages_and_five_kills(spark, kafka, tmp_path, count_kills):
    run(spark, kafka, tmp_path, count=500_000, partitions=8, kills=5, seed=2, note=count_kills)
