"""Kafka as a streaming DataFrame, read from a broker that the tests start."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import penstock as ps

from ..patience import PATIENCE
from ..spark.framing import SCHEMA, Legs, every_operator, make_rows, sequential, total
from .broker import Broker
from .reading import decoded, read

pytestmark = pytest.mark.spark


def scanned(reader: Any) -> ps.Flow:
    """Build a flow that is wrong as soon as a row is lost, doubled or out of order."""
    flow = ps.Flow("kafka")
    flow.source("events", reader).scan(total, 0, name="scan").sink("scanned")
    return flow


def values(legs: Legs) -> list[int]:
    """Return the field v of the rows that came out."""
    return [row[1] for row in legs.results["scanned"]]


def test_topics_by_name_partitions_by_number_and_offsets(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    kafka.create("by-name", 2)
    kafka.create("by", 3)
    rows = make_rows(60)
    for topic, part in (("by-name", rows[30:]), ("by", rows[:30])):
        count = 3 if topic == "by" else 2
        size = 30 // count
        kafka.write(topic, [(n // size, row) for n, row in enumerate(part)])
    legs = Legs(spark, tmp_path / "ck")
    legs.run(scanned(decoded(read(spark, kafka, "by-name,by", minPartitions=9))), until=60)
    assert values(legs) == list(range(60))


def cut(checkpoint: Path, count: int) -> list[tuple[int, int, int]]:
    """Return (partition, from, to) of what Spark's log has of each batch, partition after partition."""
    done, found = [0] * count, []
    for path in sorted((checkpoint / "spark" / "source=events" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name)):
        (offsets,) = json.loads(path.read_text().splitlines()[-1]).values()
        for partition in range(count):
            found.append((partition, done[partition], offsets[str(partition)]))
            done[partition] = offsets[str(partition)]
    return found


@pytest.mark.parametrize("count", [1, 3])
def test_every_operator_with_a_crash_and_a_restart(spark: Any, kafka: Broker, tmp_path: Path, count: int) -> None:
    """Each partition has a watermark of its own; Spark cuts its batches into other pieces after the crash."""
    topic = f"operators-{count}"
    kafka.create(topic, count)
    rows = make_rows(96)
    fails = tmp_path / "fails"

    def flow_over(reader: Any) -> ps.Flow:
        flow = ps.Flow("operators")

        def check(row: Any) -> Any:
            if row.v == 47 and fails.exists():
                raise ValueError("not yet")
            return row

        events = flow.source("events", reader, time="t", slack=3)
        every_operator(events.map(check, schema={"t": int, "k": int, "v": int}))
        return flow

    legs = Legs(spark, tmp_path / "ck")
    kafka.write(topic, [(row["v"] % count, row) for row in rows[:64]])
    frame = decoded(read(spark, kafka, topic, maxOffsetsPerTrigger=20, minPartitions=4))
    legs.run(flow_over(frame), until=36)  # two batches: Spark shares 20 out over the partitions, rounding down
    fails.touch()
    with pytest.raises(ps.PenstockError, match="not yet"):
        legs.run(flow_over(frame), until=60)
    fails.unlink()
    other = decoded(read(spark, kafka, topic, minPartitions=1))
    kafka.write(topic, [(row["v"] % count, row) for row in rows[64:]])
    legs.run(flow_over(other), until=96)
    sequence = [
        ("events", row, partition)
        for partition, start, stop in cut(legs.checkpoint, count)
        for row in rows[partition::count][start:stop]
    ]
    assert len(sequence) == 96
    assert legs.results == sequential(flow_over(ps.read.items(rows)), sequence, count)
    assert all(legs.results.values())


def test_partitions_that_come_later(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    kafka.create("growing", 2)
    frame = decoded(read(spark, kafka, "growing", **{"kafka.metadata.max.age.ms": "200"}))
    rows = make_rows(80)
    kafka.write("growing", [(n // 10, row) for n, row in enumerate(rows[:20])])
    legs = Legs(spark, tmp_path / "ck")
    legs.run(scanned(frame), until=20)
    kafka.grow("growing", 4)
    kafka.write("growing", [(n // 15, row) for n, row in enumerate(rows[20:])])
    legs.run(scanned(frame), until=80)
    # Spark may have seen a new partition one batch later than the rest.
    found = values(legs)
    assert found[:20] == list(range(20))
    assert sorted(found) == list(range(80))
    for partition in range(4):
        mine = range(20 + 15 * partition, 35 + 15 * partition)
        assert [v for v in found if v in mine] == list(mine)


def test_messages_that_are_no_records_are_dead_letters(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    """Where the schema of `from_json` has the column for them; each partition keeps its order and its watermark."""
    kafka.create("corrupt", 2)
    sent: list[tuple[int, Any]] = [(n % 2, {"t": n, "v": n}) for n in range(20)]
    sent[6:6] = [(0, "no record"), (1, [1, 2]), (0, None), (1, {"t": "soon", "v": 1}), (0, {"t": None, "v": 3})]
    kafka.write("corrupt", sent)
    text, schema = F.col("value").cast("string"), "t long, v long, _corrupt_record string"
    frame = read(spark, kafka, "corrupt", maxOffsetsPerTrigger=8).select(F.from_json(text, schema).alias("row"))

    def flow() -> ps.Flow:
        flow = ps.Flow("corrupt")
        rows = flow.source("rows", frame.select("row.*"), time="t", on_error="dead_letter")
        rows.errors.map(lambda letter: letter.row, schema=str).sink("errors")
        rows.map(lambda row: row.v, schema=int).sink("values")
        windows = rows.window(5).aggregate(n=ps.agg.count())
        windows.sink("windows")
        windows.late.sink("late")
        return flow

    legs = Legs(spark, tmp_path / "ck")
    for until in (12, 25):
        legs.run(flow(), until=until)
    for part in range(2):
        assert [v for v in legs.results["values"] if v % 2 == part] == list(range(part, 20, 2))
    untimed = '{"t": null, "v": 3, "_corrupt_record": null}'
    assert set(legs.results["errors"]) == {'"no record"', "[1, 2]", "null", '{"t": "soon", "v": 1}', untimed}
    assert len(legs.results["errors"]) == 5
    assert [row.n for row in legs.results["windows"]] == [5, 5, 5]
    assert legs.results["late"] == []


def test_a_compacted_topic_has_gaps(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    settings = {"cleanup_policy": "compact", "segment_ms": "50", "min_cleanable_dirty_ratio": "0.01"}
    kafka.create("compacted", 1, **settings, max_compaction_lag_ms="100", segment_bytes="1048576")
    rows = make_rows(60)
    for part in range(6):  # a segment is closed by a message that comes later
        kafka.write("compacted", [(0, row) for row in rows[10 * part : 10 * part + 10]], key="k")
        time.sleep(0.1)
    kept = kafka.await_fewer("compacted", 60)
    legs = Legs(spark, tmp_path / "ck")
    legs.run(scanned(decoded(read(spark, kafka, "compacted"))), until=len(kept))
    assert values(legs) == [json.loads(value)["v"] for value in kept]


def test_a_transactional_topic_has_gaps_and_hides_what_was_given_up(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    kafka.create("transactional", 2)
    producer = kafka.producer(**{"transactional.id": "tests"})
    producer.init_transactions(PATIENCE)
    rows = make_rows(60)
    for part in range(6):
        producer.begin_transaction()
        for row in rows[10 * part : 10 * part + 10]:
            producer.produce("transactional", json.dumps(row).encode(), partition=row["v"] % 2)
        if part % 3 == 1:
            producer.flush(PATIENCE)
            producer.abort_transaction(PATIENCE)
        else:
            producer.commit_transaction(PATIENCE)
    legs = Legs(spark, tmp_path / "ck")
    frame = read(spark, kafka, "transactional", **{"kafka.isolation.level": "read_committed"})
    kept = [row["v"] for row in rows if row["v"] // 10 % 3 != 1]
    legs.run(scanned(decoded(frame)), until=len(kept))
    assert values(legs) == [v for v in kept if v % 2 == 0] + [v for v in kept if v % 2 == 1]


def test_a_partition_that_is_silent(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    """It holds windows up until it has been silent for as long as the source says."""
    kafka.create("silent", 2)
    rows = make_rows(80)
    kafka.write("silent", [(0, row) for row in rows[:60]])

    def flow_over(reader: Any, **options: Any) -> ps.Flow:
        flow = ps.Flow("silent")
        events = flow.source("events", reader, time="t", slack=3, **options)
        events.window(10).aggregate(n=ps.agg.count(), name="windows").sink("windows out")
        return flow

    frame = decoded(read(spark, kafka, "silent"))
    legs = Legs(spark, tmp_path / "ck")
    legs.run(flow_over(frame), until=60)
    assert legs.results == {"windows out": []}
    run = ps.start(flow_over(frame, idle_after=1.0), on=ps.Spark(spark), checkpoint=str(legs.checkpoint))

    def after(stats: Any) -> None:
        if stats.rows_in:
            run.stop()
        else:  # both have been silent for so long; now only one of them is
            kafka.write("silent", [(0, row) for row in rows[60:]])

    run.on_epoch(after)
    assert run.await_end(PATIENCE)
    assert run.results == sequential(flow_over(ps.read.items(rows)), [("events", row) for row in rows])
    assert run.results["windows out"]


class TestPlaces:
    """What may be done to messages before they come to the flow."""

    def check(self, spark: Any, frame: Any, tmp_path: Path, expected: list[int]) -> None:
        legs = Legs(spark, tmp_path / "ck")
        legs.run(scanned(frame), until=len(expected))
        assert values(legs) == expected

    @pytest.fixture(scope="class")
    def topic(self, kafka: Broker) -> str:
        kafka.create("places", 2)
        kafka.write("places", [(n // 15, row) for n, row in enumerate(make_rows(30))])
        return "places"

    def test_several_rows_of_one_message(self, spark: Any, kafka: Broker, topic: str, tmp_path: Path) -> None:
        frame = decoded(read(spark, kafka, topic, minPartitions=5))
        twice = frame.select("t", "k", F.explode(F.expr("array(v, v + 100, v - 100)")).alias("v"))
        self.check(spark, twice, tmp_path, [v + more for v in range(30) for more in (0, 100, -100)])

    def test_a_join_with_a_frame_that_is_broadcast(self, spark: Any, kafka: Broker, topic: str, tmp_path: Path) -> None:
        names = spark.createDataFrame([(0, "zero"), (2, "two")], "k long, name string")
        joined = decoded(read(spark, kafka, topic)).join(F.broadcast(names), "k")
        self.check(spark, joined, tmp_path, [row["v"] for row in make_rows(30) if row["k"] != 1])

    def test_a_function_that_keeps_the_place(self, spark: Any, kafka: Broker, topic: str, tmp_path: Path) -> None:
        frame = read(spark, kafka, topic)
        kept = decoded(frame.mapInArrow(_as_it_is, frame.schema))
        self.check(spark, kept, tmp_path, list(range(30)))

    def test_a_function_that_loses_the_place(self, spark: Any, kafka: Broker, topic: str, tmp_path: Path) -> None:
        lost = decoded(read(spark, kafka, topic)).mapInArrow(_as_it_is, SCHEMA)
        with pytest.raises(ps.FlowError, match=r"'events'.*MapInArrow.*keep topic, partition and offset.*order_by="):
            ps.start(scanned(lost), on=ps.Spark(spark))


def _as_it_is(batches: Any) -> Any:
    yield from batches
