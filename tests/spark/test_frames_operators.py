"""Every operator over streaming DataFrames, in several epochs, with crashes and restarts on other partitions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

from ..conformance.flows.joins import pair
from .framing import FIELDS, SCHEMA, Legs, every_operator, make_rows, sequential, total, write_file

pytestmark = pytest.mark.spark


@pytest.fixture
def partitions(spark: Any) -> Iterator[Any]:
    """Return a function that makes Spark cut files into other partitions, as it does on other cores."""
    names = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    before = {name: spark.conf.get(name) for name in names}

    def cut(bytes_of_one: int) -> None:
        for name in names:
            spark.conf.set(name, str(bytes_of_one))

    yield cut
    for name, value in before.items():
        spark.conf.set(name, value)


def flow_over(reader: Any, fails: Path | None = None) -> ps.Flow:
    """Build the flow; while the file `fails` is there, the row 47 is more than it can take."""
    flow = ps.Flow("every operator")
    events = flow.source("events", reader, time="t", slack=3)

    def check(row: Any) -> Any:
        if row.v == 47 and fails is not None and fails.exists():
            raise ValueError("not yet")
        return row

    every_operator(events.map(check, schema={"t": int, "k": int, "v": int}))
    return flow


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_files(spark: Any, tmp_path: Path, partitions: Any, form: str) -> None:
    """Names are in another order than the times of change, and two files each have the same time."""
    rows = make_rows(96)
    names = ["x y", "x!y", "b", "c€", "a/deep", "a0"]  # by time, and then by name
    for number, name in enumerate(names[:4]):
        write_file(tmp_path / "data", form, name, rows[16 * number : 16 * number + 16], 1000 + number // 2)
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).option("recursiveFileLookup", True)
    frame = reader.format(form).load(str(tmp_path / "data"))
    fails = tmp_path / "fails"
    legs = Legs(spark, tmp_path / "ck")
    partitions(1 << 20)
    legs.run(flow_over(frame, fails), until=32)
    fails.touch()
    with pytest.raises(ps.PenstockError, match="not yet"):
        legs.run(flow_over(frame, fails), until=64)
    fails.unlink()
    os.utime(tmp_path / "data" / f"b.{form}")  # its order in the epoch that was begun is logged
    partitions(100)  # the epoch that was begun is read again, in many small partitions
    legs.run(flow_over(frame, fails), until=64)
    for number, name in enumerate(names[4:], 4):
        directory, _, base = name.rpartition("/")
        write_file(tmp_path / "data" / directory, form, base, rows[16 * number : 16 * number + 16], 1003)
    legs.run(flow_over(frame, fails), until=96, tasks=3)
    flow = flow_over(ps.read.items(rows))
    assert legs.results == sequential(flow, [("events", row) for row in rows])
    assert len(legs.intents()) == 3
    assert all(legs.results.values()), "an operator has nothing to show"


@pytest.mark.parametrize(
    ("kind", "options"), [("rate", {"rowsPerSecond": 40}), ("rate-micro-batch", {"rowsPerBatch": 20})]
)
def test_rates(spark: Any, tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    """The rows that come have another form than Spark's: their place is kept."""
    legs = Legs(spark, tmp_path / "ck")
    made = spark.readStream.format(kind).options(**options, numPartitions=3).load()
    columns = ("value div 2 + value div 16 * 9 as t", "value * 5 % 3 as k", "value as v")
    frame = made.selectExpr(*columns)
    legs.run(flow_over(frame), until=40)
    again = spark.readStream.format(kind).options(**options, numPartitions=2).load()
    legs.run(flow_over(again.selectExpr(*columns)), until=90)
    rows = [{"t": n // 2 + n // 16 * 9, "k": n * 5 % 3, "v": n} for n in range(legs.rows)]
    assert legs.results == sequential(flow_over(ps.read.items(rows)), [("events", row) for row in rows])


class TestSeveral:
    """Several streaming DataFrames in one flow, beside a source of another kind, and one that is added later."""

    @pytest.fixture
    def frames(self, spark: Any, tmp_path: Path) -> dict[str, Any]:
        """Make streaming DataFrames of another form each, over directories with two files."""
        made = {}
        for number, (name, form) in enumerate([("left", "parquet"), ("right", "json"), ("added", "csv")]):
            for part in (0, 1):
                self.put(tmp_path, name, form, part, number)
            reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
            made[name] = reader.format(form).load(str(tmp_path / name))
        return made

    def put(self, work: Path, name: str, form: str, part: int, number: int) -> None:
        write_file(work / name, form, f"part-{part}", make_rows(12, first=100 * number + 12 * part), 1000 + part)

    def flow(self, readers: dict[str, Any], items: int) -> ps.Flow:
        """Build the flow; each source has its own order of declaration."""
        flow = ps.Flow("several")
        streams = {name: flow.source(name, reader, time="t", slack=3) for name, reader in readers.items()}
        streams["items"] = flow.source(
            "items", ps.read.items(make_rows(items, first=300), schema=FIELDS), time="t", slack=3
        )
        left, right = streams["left"], streams.get("right", streams["items"])
        left.key_by("k").join(right.key_by("k"), 20, pair, how="outer", name="join").sink("joined")
        together = left.union(*[stream for name, stream in streams.items() if name != "left"])
        together.key_by("k").scan(total, 0, name="scan").sink("scanned")
        # Windows over a source that is added later would have waited for it from the beginning.
        known = left.union(right, streams["items"]).window(10)
        known.aggregate(n=ps.agg.count(), name="windows").sink("windows out")
        return flow

    def sequence(self, legs: Legs, order: list[list[str]]) -> list[tuple[str, Any]]:
        """Return the rows of all epochs by their log; `order` has the sources of each epoch as they were declared."""
        found = []
        for intent, names in zip(legs.intents(), order, strict=True):
            for name in names:
                if name in intent["batches"]:
                    for path in intent["batches"][name]["names"]:
                        part, first = int(path.partition("/part-")[2][0]), 100 * ["left", "right", "added"].index(name)
                        found += [(name, row) for row in make_rows(12, first=first + 12 * part)]
                if name in intent["slices"]:
                    span = intent["slices"][name]["logged"]
                    found += [(name, row) for row in make_rows(span["stop"] - span["start"], first=300 + span["start"])]
        return found

    def test_in_one_flow(self, spark: Any, tmp_path: Path, frames: dict[str, Any]) -> None:
        legs = Legs(spark, tmp_path / "ck")
        first = {name: frames[name] for name in ("left", "right")}
        legs.run(self.flow(first, 30), until=48 + 30, end=False, epoch_rows=10)
        epochs = len(legs.intents())
        # The new one is declared first: Spark's own log must not take it for another.
        second = {"added": frames["added"], **first}
        for name, form, number in (("left", "parquet", 0), ("right", "json", 1)):
            self.put(tmp_path, name, form, 2, number)
        legs.run(self.flow(second, 40), until=48 + 30 + 48 + 10, end=False)
        declared = [["left", "right", "items"]] * epochs
        declared += [["added", "left", "right", "items"]] * (len(legs.intents()) - epochs)
        sequence = self.sequence(legs, declared)
        assert len(sequence) == legs.rows == 136
        meant = self.flow({name: ps.read.items([], schema=FIELDS) for name in second}, 0)
        assert legs.results == sequential(meant, sequence)
        with pytest.raises(ps.CheckpointError, match=r"'right'.*put it back"):
            legs.run(self.flow({"left": frames["left"], "added": frames["added"]}, 40), until=200)
