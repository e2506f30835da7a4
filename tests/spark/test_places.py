"""Where rows of a streaming DataFrame stand: what is kept, what is refused, and how names become numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.frame import Frame
from penstock.plan.plan import make_plan
from penstock.spark.frames import directory_name
from penstock.spark.places import PLACE, BatchPlaces, FrameRows, find_places, xxhash64


def rows_of(places: BatchPlaces, task: int, columns: list[list[int]]) -> tuple[list[Any], list[int] | None]:
    """Give rows with these columns of their places to a task; return their positions and parts."""
    flow = ps.Flow("places")
    flow.source("in", ps.read.items([], schema={"v": int})).sink("out")
    taken = FrameRows(make_plan(flow), {"in": places}, task)
    count = len(columns[0])
    values = pa.StructArray.from_arrays([pa.array(range(count), pa.int64())], ["v"])
    names = ["source", *[f"{PLACE}{number}" for number in range(len(columns))], "row"]
    arrays = [pa.array([0] * count, pa.int32()), *[pa.array(column, pa.int64()) for column in columns], values]
    ((_, piece),) = taken.pieces(pa.RecordBatch.from_arrays(arrays, names))
    return piece.positions.T.tolist(), None if piece.parts is None else piece.parts.tolist()


class TestNumbers:
    def test_rows_of_files_go_by_the_order_of_their_files(self) -> None:
        names = ("file:///z", "s3a://b/a", "file:///a%20b")
        places = BatchPlaces("files", False, names)
        hashes = [xxhash64(name) for name in ("file:/a%20b", "file:/a%20b", "s3a://b/a", "file:/z", "file:/z")]
        positions, parts = rows_of(places, 0, [hashes, [7, 8, 0, 1, 2]])
        assert positions == [[(2 << 33) + 7], [(2 << 33) + 8], [1 << 33], [1], [2]]
        assert parts is None

    def test_rows_without_a_number_are_counted(self) -> None:
        places = BatchPlaces("files", True, ("file:///a",))
        positions, _ = rows_of(places, 3, [[xxhash64("file:/a")] * 3, [100, 100, 0]])
        assert positions == [[0, 100, 3 << 33], [0, 100, (3 << 33) + 1], [0, 0, (3 << 33) + 2]]

    def test_partitions_are_numbered_through_all_topics_and_known_by_name(self) -> None:
        places = BatchPlaces("kafka", False, ("a", "b"), (2, 3))
        a, b = xxhash64("a"), xxhash64("b")
        positions, parts = rows_of(places, 0, [[b, a, b], [0, 1, 2], [5, 6, 7]])
        assert positions == [[2, 5], [1, 6], [4, 7]]
        assert parts is not None
        assert [places.parts()[part] for part in parts] == ["b-0", "a-1", "b-2"]
        # Another topic, which comes first, changes the places of a batch but not who is who.
        assert parts[0] in BatchPlaces("kafka", False, ("0", "b"), (1, 1)).parts()

    def test_a_name_that_nobody_knows_is_no_guess(self) -> None:
        with pytest.raises(ps.SourceError, match=r"'in'.*did not name.*file:///a"):
            rows_of(BatchPlaces("files", False, ("file:///a",)), 0, [[xxhash64("file:/b")], [0]])

    def test_a_log_keeps_the_order(self) -> None:
        places = BatchPlaces("kafka", True, ("a", "b"), (2, 3))
        assert BatchPlaces("kafka", True).restored(places.to_json()) == places

    @given(st.lists(st.text(max_size=8), unique=True))
    def test_sources_have_directories_of_their_own(self, sources: list[str]) -> None:
        names = [directory_name(source) for source in sources]
        assert len(set(names)) == len(sources)
        assert all(re.fullmatch(r"source=[\w.+-]*", name) for name in names)


@pytest.mark.spark
class TestOnSpark:
    """Nothing of this runs a query."""

    @pytest.fixture
    def files(self, spark: Any, tmp_path: Path) -> Any:
        return spark.readStream.schema("a long, b string").parquet(str(tmp_path))

    def test_hashes_are_those_of_spark(self, spark: Any) -> None:
        from pyspark.sql import functions as F

        draw = np.random.default_rng(1)
        texts = ["".join(draw.choice(list("abü/€ ")) for _ in range(size)) for size in range(100)]
        frame = spark.createDataFrame([(text,) for text in texts], "t string")
        assert [row.h for row in frame.select(F.xxhash64("t").alias("h")).collect()] == list(map(xxhash64, texts))

    def test_what_keeps_the_place(self, spark: Any, files: Any) -> None:
        from pyspark.sql import functions as F

        files.createOrReplaceTempView("files_of_a_test")
        small = spark.createDataFrame([(1, "x")], "a long, c string")
        chosen = files.where("a > 1").select((F.col("a") + 1).alias("c"))
        for frame, width in [
            (files, 1),
            (chosen, 1),
            (files.select("_metadata.file_name", "a"), 1),
            (spark.sql("select b, a + 1 as c from files_of_a_test where a > 2"), 1),
            (files.withColumn("c", F.explode(F.split("b", ","))), 3),
            (files.join(F.broadcast(small), "a"), 4),
            (spark.readStream.format("rate").load().selectExpr("value * 2 as c"), 1),
            (spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load().select("timestamp"), 1),
        ]:
            places = find_places(frame)
            assert (places.problem, places.width) == (None, width)
            assert places.frame.columns[: len(frame.columns)] == frame.columns
            assert Frame(frame).own_width == width

    def test_what_is_refused(self, spark: Any, files: Any) -> None:
        from pyspark.sql import functions as F

        rate = spark.readStream.format("rate").load()
        small = spark.createDataFrame([(1, "x")], "a long, c string")
        lines = spark.readStream.format("socket").options(host="127.0.0.1", port=1).load()
        for frame, why in [
            (files.repartition(3), r"shuffle \(Repartition\)"),
            (files.limit(3), r"shuffle \(GlobalLimit\)"),
            (files.join(small.hint("merge"), "a"), r"shuffle \(Join\)"),
            (files.dropDuplicates(["a"]), r"shuffle \(Deduplicate\)"),
            (rate.union(rate), "2 streams.*its own"),
            (files.mapInArrow(lambda batches: batches, "a long"), "MapInArrow.*do its work in the flow"),
            (lines, "'socket' does not say where"),
        ]:
            flow = ps.Flow("refused")
            flow.source("rows", frame).sink("out")
            with pytest.raises(ps.FlowError, match=rf"source 'rows': .*{why}.*order_by="):
                ps.start(flow, on=ps.Spark(spark))
        made = find_places(files.select(F.create_map("b", "a").alias("map"), "a").repartition(2))
        assert made.problem is not None
        assert made.width == 2
