"""Topics as streaming DataFrames."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from ..spark.framing import SCHEMA
from .broker import Broker


def read(spark: Any, kafka: Broker, topics: str, **options: Any) -> Any:
    """Read topics from their beginning."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.address)
    return reader.options(**{"subscribe": topics, "startingOffsets": "earliest", **options}).load()


def decoded(frame: Any) -> Any:
    """Take rows out of the messages: nothing is left of topic, partition and offset."""
    return frame.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
