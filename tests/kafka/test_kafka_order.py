"""Kafka with `order_by`: one sequence over all partitions, whatever Spark cut into batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.store.keeper import Keeper

from ..conformance.inline import Arriving
from ..patience import PATIENCE
from ..spark.framing import FIELDS, Legs, Rows, meant, ordered, taken_of, write_file
from ..spark.running import Crash
from .broker import Broker
from .reading import decoded, read

pytestmark = pytest.mark.spark


def interleaved(count: int, parts: int) -> list[tuple[int, dict[str, int]]]:
    """Make rows of partitions whose values rise at other paces, with ties inside of them and between them."""
    rows = []
    for n in range(count):
        part = (n * n + n // 3) % 7 % parts
        rows.append((part, {"t": n // 3 * 3 + part % 2 * 2, "k": n * 5 % 3, "v": n}))
    highest: dict[int, int] = {}
    for part, row in rows:
        row["t"] = highest[part] = max(row["t"], highest.get(part, 0))
    return rows


@pytest.mark.parametrize("batch", [25, 1000])
def test_partitions_come_out_as_one_sequence(spark: Any, kafka: Broker, tmp_path: Path, batch: int) -> None:
    """Small batches or one, with a restart and a crash in between: the same sequence."""
    topic = f"ordered-{batch}"
    kafka.create(topic, 4)
    rows = interleaved(120, 4)
    kafka.write(topic, rows[:80])
    frame = decoded(read(spark, kafka, topic, maxOffsetsPerTrigger=batch, minPartitions=6))
    expected = meant(ordered({"events": Arriving([], schema=FIELDS)}), {"events": rows}, {"events": 4})
    half = meant(ordered({"events": Arriving([], schema=FIELDS)}), {"events": rows[:80]}, {"events": 4})
    assert 80 > taken_of(half) > 40
    legs = Legs(spark, tmp_path / "ck")
    legs.run(ordered({"events": frame}), until=20, epoch_rows=16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keeper, "commit", lambda *_: (_ for _ in ()).throw(Crash()))
        with pytest.raises(Crash):
            legs.run(ordered({"events": frame}), until=1000, epoch_rows=8)
    legs.run(ordered({"events": frame}), until=taken_of(half), epoch_rows=1000)
    kafka.write(topic, rows[80:])
    legs.run(ordered({"events": frame}), until=taken_of(expected), epoch_rows=20)
    assert legs.results == expected
    assert all(expected.values())


def test_with_other_sources(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    """A topic of three partitions, another of two, and files: equal values by source, then by partition."""
    kafka.create("ordered-a", 3)
    kafka.create("ordered-b", 2)
    given: dict[str, list[tuple[int, Any]]] = {
        "a": interleaved(60, 3),
        "b": interleaved(40, 2),
        "files": [(0, row) for _, row in interleaved(50, 1)],
    }
    for name in "ab":
        kafka.write(f"ordered-{name}", given[name])
    files: Rows = [row for _, row in given["files"]]
    for number, start in enumerate(range(0, 50, 20)):
        write_file(tmp_path / "data", "parquet", f"{number}", files[start : start + 20], number + 1)
    readers = {
        "a": decoded(read(spark, kafka, "ordered-a", maxOffsetsPerTrigger=7)),
        "b": decoded(read(spark, kafka, "ordered-b", maxOffsetsPerTrigger=11)),
        "files": spark.readStream.schema("t long, k long, v long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / "data")),
    }
    empty = {name: Arriving([], schema=FIELDS) for name in readers}
    expected = meant(ordered(empty), given, {"a": 3, "b": 2, "files": 1})
    legs = Legs(spark, tmp_path / "ck")
    legs.run(ordered(readers), until=50, epoch_rows=8)
    legs.run(ordered(readers), until=taken_of(expected), epoch_rows=30)
    assert legs.results == expected


def test_a_silent_partition_is_waited_for_until_it_is_idle(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    """Nothing can be taken as long as one has shown nothing; what it has when it speaks again may be late."""
    kafka.create("ordered-idle", 3)
    rows = [(n % 2, {"t": n, "k": 0, "v": n}) for n in range(40)]
    kafka.write("ordered-idle", rows)
    frame = decoded(read(spark, kafka, "ordered-idle"))
    flow = ps.Flow("idle")
    events = flow.source("events", frame, order_by="t", idle_after=1.0, on_late="divert")
    events.map(lambda r: r.v).sink("out")
    events.late.map(lambda r: r.v).sink("late")
    seen: list[int] = []
    run = ps.start(flow, on=ps.Spark(spark), checkpoint=str(tmp_path / "ck"))

    def after(stats: Any) -> None:
        if stats.rows_in and not seen:  # taken without the third partition
            kafka.write("ordered-idle", [(2, {"t": t, "k": 0, "v": 100 + t}) for t in (3, 60)])
        if stats.rows_in:
            seen.append(stats.rows_in)
        if sum(seen) >= 42:
            run.stop()

    run.on_epoch(after)
    assert run.await_end(PATIENCE)
    assert run.results == {"out": [*range(40), 160], "late": [103]}


def test_a_partition_that_comes_later(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    """It is one of those that all wait for, and what it has below rows that were taken without it is late."""
    kafka.create("ordered-growing", 1)
    kafka.write("ordered-growing", [(0, {"t": t, "k": 0, "v": t}) for t in range(10)])
    frame = decoded(read(spark, kafka, "ordered-growing", **{"kafka.metadata.max.age.ms": "200"}))
    flow = ps.Flow("growing")
    events = flow.source("events", frame, order_by="t", on_late="divert")
    events.map(lambda r: r.v).sink("out")
    events.late.map(lambda r: r.v).sink("late")
    legs = Legs(spark, tmp_path / "ck")
    legs.run(flow, until=10)
    kafka.grow("ordered-growing", 2)
    kafka.write("ordered-growing", [(1, {"t": t, "k": 0, "v": t}) for t in (5, 12)])
    kafka.write("ordered-growing", [(0, {"t": t, "k": 0, "v": t}) for t in (11, 20)])
    legs.run(flow, until=13)
    assert legs.results == {"out": [*range(10), 11, 12], "late": [5]}
