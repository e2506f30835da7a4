"""Tables that are read again: what a row sees is logged and kept, so that a replay, and a restart, see the same."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import CheckpointError, FlowError
from penstock.plan.plan import make_plan
from penstock.sequential import SequentialEngine
from penstock.store.checkpoint import RETAIN
from penstock.store.state_files import read_kept

from ..conformance import epochs
from .running import Crash, make_engine, read_back

ROWS = [{"i": i, "k": i % 3} for i in range(20)]
KIND = {"k": int, "version": int}


class Changing:
    """A table that has another version each time it is read."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self) -> list[dict[str, int]]:
        self.read += 1
        return content(self.read)


def content(version: int) -> list[dict[str, int]]:
    """Return what the table has: another key is missing each time."""
    return [{"k": k, "version": version} for k in range(3) if k != version % 4]


class Clock:
    """Time that goes on by one whenever somebody looks."""

    def __init__(self) -> None:
        self._ticks = itertools.count(10**12)

    def __call__(self) -> float:
        return float(next(self._ticks))


def flow_of(table: Any, sink: Any = None, **options: Any) -> ps.Flow:
    stream = ps.Flow("looked up").source("in", ps.read.items(ROWS))
    return stream.lookup(table, on="k", schema=KIND, name="versions", **options).sink("out", sink)


def expected(size: int) -> list[Any]:
    """Return what comes out where each `size` rows see the next version."""
    engine = SequentialEngine(make_plan(flow_of(content(1))))
    for start in range(0, len(ROWS), size):
        engine.table("versions", pa.Table.from_pylist(content(start // size + 1), pa.schema(list(ARROW.items()))))
        for row in ROWS[start : start + size]:
            engine.row("in", engine.plan.nodes["in"].types[0].roundtrip(row))  # type: ignore[union-attr]
    return engine.results["out"]


ARROW = {"k": pa.int64(), "version": pa.int64()}


class TestRefreshed:
    @pytest.mark.parametrize("size", [1, 3, 7])
    def test_on_the_spark_engine_from_epoch_to_epoch(self, size: int) -> None:
        found = epochs.inline(flow_of(Changing(), refresh=1), epoch_rows=size, now=Clock())["out"]
        assert found == expected(size)

    @pytest.mark.parametrize("size", [1, 3, 7])
    def test_on_threads_from_batch_to_batch(self, size: int) -> None:
        engine = epochs.LocalEngine(
            make_plan(flow_of(table := Changing(), refresh=1)),
            epochs.LocalOptions(size, settings=epochs.Settings(workers=3, in_flight=16)),
        )
        table.read = 0  # the engine has read it once, before the first batch
        engine._tables._refreshing._clock = Clock()
        engine.run()
        assert engine.results["out"] == expected(size)

    def test_on_the_reference_engine(self) -> None:
        """It reads the table again, too; how often is a matter of time."""
        table = Changing()
        found = ps.run(flow_of(table, refresh=1e-9), on=ps.Sequential()).results["out"]
        assert table.read > 1
        assert {row.version for row in found} <= {None, *range(1, table.read + 1)}

    def test_only_as_often_as_asked(self) -> None:
        table = Changing()
        epochs.inline(flow_of(table, refresh=1000), epoch_rows=1, now=Clock())
        assert table.read == 1

    def test_what_does_not_fit_any_more_fails_and_is_named(self) -> None:
        for bad, problem in [
            ([{"k": 1, "version": 1}] * 2, "operator 'versions': rows 0 and 1 of the table"),
            ([{"k": 1, "version": "x"}], "operator 'versions': a row of its table does not fit"),
            (pa.table({"k": [1]}), "operator 'versions': its table has no field 'version' any more"),
        ]:
            contents = iter([content(1), bad])
            with pytest.raises(FlowError, match=problem):
                epochs.inline(flow_of(lambda c=contents: next(c), refresh=1), epoch_rows=5, now=Clock())


class TestKept:
    def run(self, tmp_path: Path, table: Any, stop: Any, **options: Any) -> dict[int, dict[str, str]]:
        """Run until `stop(epoch)` says how it ends; return the contents that each epoch was to see."""
        flow = flow_of(table, ps.write.parquet(str(tmp_path / "out")), **options)
        engine = make_engine(flow, tmp_path / "ck", epoch_rows=2)
        engine._now = Clock()
        seen: dict[int, dict[str, str]] = {}
        backend_run, commit = engine._backend.run, engine._commit

        def running(spec: Any, frames: Any) -> Any:
            seen[spec.epoch] = spec.contents
            return backend_run(spec, frames)

        def committing(spec: Any, *rest: Any) -> Any:
            if stop(spec.epoch) == "crash":
                raise Crash
            if stop(spec.epoch) == "stop":
                engine.stop()
            return commit(spec, *rest)

        engine._backend.run = running  # type: ignore[method-assign]
        engine._commit = committing  # type: ignore[method-assign]
        with contextlib.suppress(Crash):
            engine.run()
        return seen

    def test_an_epoch_that_is_run_again_sees_the_same(self, tmp_path: Path) -> None:
        table, seen = Changing(), dict[int, list[str]]()
        for life in range(12):
            end = "crash" if life % 2 else "stop"
            first = max(seen, default=0)
            for epoch, contents in self.run(
                tmp_path, table, lambda epoch, first=first, end=end: end if epoch > first + 1 else None, refresh=1
            ).items():
                seen.setdefault(epoch, []).append(contents["versions"])
        assert any(len(each) > 1 for each in seen.values())
        assert all(len(set(each)) == 1 for each in seen.values())
        # No version is seen by two epochs: each is read at a point of its own.
        assert len({each[0] for each in seen.values()}) == len(seen)
        del seen[max(seen)]  # the end of the source
        found = read_back(tmp_path / "out")
        for epoch, (name, *_) in seen.items():
            kept = {row["k"]: row["version"] for row in read_kept(str(tmp_path / "ck"), "versions", name).to_pylist()}
            rows = found[2 * (epoch - 1) : 2 * epoch]
            assert rows == [(i, i % 3, kept.get(i % 3)) for i in (2 * epoch - 2, 2 * epoch - 1)]

    def test_a_table_that_is_not_refreshed_stays_as_it_was(self, tmp_path: Path, caplog: Any) -> None:
        for version in range(1, 5):
            with caplog.at_level(logging.WARNING):
                self.run(tmp_path, content(version), lambda epoch: "stop" if epoch % 3 == 0 else None)
            assert ("goes on with the table that its checkpoint keeps" in caplog.text) == (version > 1)
        assert [version for _, _, version in read_back(tmp_path / "out")] == [[1, None, 1][i % 3] for i in range(20)]

    def test_files_may_be_gone_after_a_restart(self, tmp_path: Path) -> None:
        path = tmp_path / "table.parquet"
        pq.write_table(pa.Table.from_pylist(content(2)), path)
        self.run(tmp_path, str(path), lambda epoch: "stop" if epoch == 3 else None)
        os.remove(path)
        self.run(tmp_path, str(path), lambda epoch: None)
        assert [version for _, _, version in read_back(tmp_path / "out")] == [[2, 2, None][i % 3] for i in range(20)]

    def test_what_no_entry_names_is_removed(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.setattr("penstock.spark.engine.CLEAN_EVERY", 1)
        monkeypatch.setattr("penstock.store.checkpoint.RETAIN", 3)
        self.run(tmp_path, Changing(), lambda epoch: None, refresh=1)
        assert RETAIN >= 3
        assert len(os.listdir(tmp_path / "ck" / "tables")) == 3

    def test_the_same_content_is_kept_once(self, tmp_path: Path) -> None:
        self.run(tmp_path, content(1), lambda epoch: None, refresh=1)
        assert len(os.listdir(tmp_path / "ck" / "tables")) == 1

    @pytest.mark.parametrize("how", ["gone", "damaged"])
    def test_what_was_kept_and_is_lost_is_named(self, tmp_path: Path, how: str) -> None:
        self.run(tmp_path, content(1), lambda epoch: "stop" if epoch == 3 else None)
        (path,) = (tmp_path / "ck" / "tables").iterdir()
        if how == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-1])
        from penstock.spark import tables

        tables._nodes.clear()  # another process
        with pytest.raises(CheckpointError, match="missing" if how == "gone" else "damaged"):
            self.run(tmp_path, content(1), lambda epoch: None)

    def test_a_field_that_was_not_kept_is_named(self, tmp_path: Path) -> None:
        rows = [{**row, "more": "x"} for row in content(1)]

        def engine_for(*fields: str) -> Any:
            stream = ps.Flow("looked up").source("in", ps.read.items(ROWS))
            found = stream.lookup(rows, on="k", fields=fields, name="versions").select("i", "version")
            return make_engine(
                found.sink("out", ps.write.parquet(str(tmp_path / "out"))), tmp_path / "ck", epoch_rows=2
            )

        first = engine_for("version")
        first._listener = lambda stats: first.stop()
        first.run()
        second = engine_for("version", "more")
        with pytest.raises(CheckpointError, match="keeps for it has no field 'more'"):
            second.run()

    def test_a_lookup_needs_a_name_of_its_own_for_its_checkpoint(self, tmp_path: Path) -> None:
        stream = ps.Flow("f").source("in", ps.read.items(ROWS))
        flow = stream.lookup(content(1), on="k").lookup({0: 1}, on="k").sink("out")
        with pytest.raises(FlowError, match="give each operator"):
            ps.run(flow, checkpoint=str(tmp_path / "ck"), on=ps.Spark(master="local[1]"))


@pytest.mark.spark
def test_on_spark_with_dataframes(spark: Any, tmp_path: Path) -> None:
    """A DataFrame as the table, on both engines; rows that are looked up in it in several tasks."""
    frame = spark.createDataFrame([(k, f"name {k}") for k in (0, 2)], "k int, name string")
    rows = [{"i": i, "k": i % 3} for i in range(50)]

    def flow() -> ps.Flow:
        source = ps.Flow("f").source("in", ps.read.items(rows), time="i")
        return (
            source.lookup(frame, on="k").key_by("k").window(20).count().lookup(frame, on="k", name="again").sink("out")
        )

    found = ps.run(flow(), on=ps.Spark(spark, tasks=2, epoch_rows=10)).results["out"]
    assert found == ps.run(flow(), on=ps.Threads()).results["out"]
    assert {row.name for row in found} == {"name 0", None, "name 2"}
