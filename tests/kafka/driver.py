"""The run over Kafka that is killed. Usage: driver.py TREE WORK MASTER JSON, the last of which is a `Topic`.

A line is printed when Spark is there ("ready"), after each epoch ("epoch 7") and in the end ("done").
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Topic:
    """What to read, and with what."""

    address: str
    name: str
    count: int
    """All messages that are in it."""
    most: int
    """How many an epoch may read."""
    jars: list[str]

    def to_json(self) -> str:
        """Write the topic for a command line."""
        return json.dumps(asdict(self))


def flow(frame: Any, work: Path) -> Any:
    """Build the flow: a scan by partition and windows by key, each to a Parquet sink, over decoded messages."""
    import penstock as ps
    from tests.kafka.messages import MIXED, WINDOW, mixed

    built = ps.Flow("kafka chaos")
    rows = built.source("messages", frame, time="t")
    scan = rows.key_by("p").scan(mixed, 0, schema=MIXED, name="mixed")
    scan.sink("scanned", ps.write.parquet(str(work / "scanned")))
    windows = rows.key_by("k").window(WINDOW).aggregate(c=ps.agg.count(), s=ps.agg.sum("v"), name="windows")
    windows.sink("windowed", ps.write.parquet(str(work / "windowed")))
    return built


def decoded(session: Any, topic: Topic) -> Any:
    """Return the rows of the messages, as a user would take them out."""
    from pyspark.sql import functions as F

    from tests.kafka.messages import SCHEMA

    reader = session.readStream.format("kafka").option("kafka.bootstrap.servers", topic.address)
    options = {"subscribe": topic.name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": topic.most}
    frame = reader.options(**options).load()
    return frame.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")


def rows_out(work: Path) -> int:
    """Count the rows that are in the sink of the scan: one for each message."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in (work / "scanned").glob("epoch=*/*.parquet"))


def main(tree: str, work: Path, master: str, topic: Topic) -> None:
    """Run the flow, or go on with it, until all messages are through."""
    sys.path[:0] = [tree, f"{tree}/src"]
    import penstock as ps
    from penstock.spark.session import make_session

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-Dlog4j2.level=ERROR -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.jars": ",".join(topic.jars),
    }
    session = make_session("kafka chaos", master=master, settings=settings)
    print("ready", flush=True)
    run = ps.start(flow(decoded(session, topic), work), on=ps.Spark(session), checkpoint=str(work / "ck"))

    run.on_epoch(lambda stats: print(f"epoch {stats.epoch}", flush=True))
    # Not after epochs: what the last ones have made is seen when files roll, and then there is no epoch.
    while rows_out(work) < topic.count and not run.await_end(0.1):
        pass
    run.stop()
    run.await_end()
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], Topic(**json.loads(sys.argv[4])))
