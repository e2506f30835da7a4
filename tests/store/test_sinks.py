"""Directories of sinks: other fields, another format and files of somebody else are refused, with the way to do it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import penstock as ps
from penstock.spark.engine import SparkEngine
from penstock.spark.outputs import Outputs
from penstock.store import lease as leases
from penstock.store.checkpoint import Checkpoint

from ..how import how
from ..spark.running import make_engine, make_rows, read_back, run_inline, write_files


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_files(tmp_path / "data", make_rows(60), 10)
    return tmp_path / "data"


def build(data: Path, out: Path, schema: Any, function: Any, form: str = "parquet") -> ps.Flow:
    flow = ps.Flow("fields")
    rows = flow.source("rows", ps.read.parquet(str(data)))
    rows.map(function, schema=schema, name="shape").sink("out", getattr(ps.write, form)(str(out)))
    return flow


def n_and_v(row: Any) -> dict[str, Any]:
    return {"n": row.n, "v": row.v}


def n_alone(row: Any) -> dict[str, Any]:
    return {"n": row.n}


BOTH, ALONE = {"n": int, "v": float}, {"n": int}


def begin(flow: ps.Flow, checkpoint: Path) -> None:
    """Run the first 20 rows."""
    engine = make_engine(flow, checkpoint, epoch_rows=20)
    engine._listener = lambda stats: engine.stop()
    engine.run()


def run_on(engine: Any, flow: ps.Flow, checkpoint: Path) -> None:
    """Run a flow on an engine; "inline" is Spark's, without Spark."""
    if engine == "inline":
        run_inline(flow, checkpoint)
    else:
        ps.run(flow, **how(engine))


class TestOtherRows:
    @pytest.mark.parametrize("before", [BOTH, None], ids=["declared", "as the first rows were"])
    def test_other_fields_are_refused(self, data, tmp_path, before):
        begin(build(data, tmp_path / "out", before, n_and_v), tmp_path / "ck")
        with pytest.raises(
            ps.CheckpointError,
            match=r"'out'.*have the fields n: int64, v: double, .* now have n: int64; give the sink another directory",
        ):
            run_inline(build(data, tmp_path / "out", ALONE, n_alone), tmp_path / "ck")
        assert len(read_back(tmp_path / "out")) == 20

    def test_rows_that_are_no_longer_declared_keep_the_fields(self, data, tmp_path):
        begin(build(data, tmp_path / "out", BOTH, n_and_v), tmp_path / "ck")

        def other(row: Any) -> dict[str, Any]:
            return {"n": row.n, "v": "text"}

        with pytest.raises(ps.OperatorError, match="'v' has the value 'text'"):
            run_inline(build(data, tmp_path / "out", None, other), tmp_path / "ck")
        run_inline(build(data, tmp_path / "out", None, n_and_v), tmp_path / "ck")
        assert [row[0] for row in read_back(tmp_path / "out")] == list(range(60))

    def test_another_directory_is_the_way_to_do_it(self, data, tmp_path):
        begin(build(data, tmp_path / "out", None, n_and_v), tmp_path / "ck")
        run_inline(build(data, tmp_path / "new", None, n_alone), tmp_path / "ck")
        assert [row[0] for row in read_back(tmp_path / "out")] == list(range(20))
        assert read_back(tmp_path / "new") == [(n,) for n in range(20, 60)]

    def test_another_format_is_refused(self, data, tmp_path):
        begin(build(data, tmp_path / "out", BOTH, n_and_v), tmp_path / "ck")
        with pytest.raises(ps.CheckpointError, match=r"in the format parquet, and the flow now writes csv; give the"):
            run_inline(build(data, tmp_path / "out", BOTH, n_and_v, "csv"), tmp_path / "ck")


class TestStrangers:
    @pytest.mark.parametrize("name", ["other.parquet", "_delta_log/0.json", "_SUCCESS", "year=2024/part.parquet"])
    @pytest.mark.parametrize("engine", ["inline", "threads"])
    def test_files_of_somebody_else_are_refused(self, data, tmp_path, name, engine):
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True)
        path.write_text("theirs")
        flow = build(data, tmp_path / "out", BOTH, n_and_v)
        with pytest.raises(ps.FlowError, match=rf"'out'.*{name.split('/')[0]}.*write to a directory of its own"):
            run_on(engine, flow, tmp_path / "ck")
        assert path.read_text() == "theirs"
        assert [each.name for each in (tmp_path / "out").iterdir()] == [name.split("/")[0]]

    @pytest.mark.parametrize("known", [True, False], ids=["whose note is there", "whose note is gone"])
    def test_rows_of_another_run_are_refused(self, data, tmp_path, known):
        flow = build(data, tmp_path / "out", BOTH, n_and_v)
        begin(flow, tmp_path / "first")
        if not known:
            (tmp_path / "out/_penstock/owner.json").unlink()
        words = (
            rf"rows of another run \(flow 'fields'\).*checkpoint {tmp_path}/first" if known else "not the note of whose"
        )
        with pytest.raises(ps.CheckpointError, match=rf"'out'.*{words}"):
            run_inline(flow, tmp_path / "second")
        assert len(read_back(tmp_path / "out")) == 20

    def test_those_that_came_later_are_refused_at_the_next_start(self, data, tmp_path):
        flow = build(data, tmp_path / "out", BOTH, n_and_v)
        begin(flow, tmp_path / "ck")
        (tmp_path / "out/extra.parquet").write_text("theirs")
        with pytest.raises(ps.FlowError, match=r"extra\.parquet.*or move them away"):
            run_inline(flow, tmp_path / "ck")
        (tmp_path / "out/extra.parquet").unlink()
        run_inline(flow, tmp_path / "ck")
        assert [row[0] for row in read_back(tmp_path / "out")] == list(range(60))

    def test_what_nobody_reads_is_let_be(self, data, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out/.gitkeep").write_text("")
        run_inline(build(data, tmp_path / "out", BOTH, n_and_v), tmp_path / "ck")
        assert len(read_back(tmp_path / "out")) == 60


class TestDirectoriesOfOneFlow:
    """Rows of one sink neither replace those of another, nor are read as input."""

    @pytest.mark.parametrize("engine", ["inline", "threads", "sequential"])
    @pytest.mark.parametrize(
        ("one", "other", "says"),
        [
            ("out", "out", "'one' and 'other' both write to"),
            ("out", "there/../out", "'one' and 'other' both write to"),
            ("out", "link", "'one' and 'other' both write to"),
            ("out", "out/more", "directory of sink 'other' is inside that of sink 'one'"),
            ("out/more", "out", "directory of sink 'one' is inside that of sink 'other'"),
            ("out", "data/out", "source 'rows' reads with all that is below"),
            ("out", "data", "the flow would read its own rows; write elsewhere"),
        ],
    )
    def test_in_each_others_way(self, data, tmp_path, engine, one, other, says):
        (tmp_path / "out").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "out")
        flow = ps.Flow("two")
        rows = flow.source("rows", ps.read.parquet(str(data)))
        rows.sink("one", ps.write.parquet(str(tmp_path / one)))
        rows.sink("other", ps.write.parquet(str(tmp_path / other)))
        with pytest.raises(ps.FlowError, match=says):
            run_on(engine, flow, tmp_path / "ck")

    def test_hidden_from_the_source(self, data, tmp_path):
        flow = build(data, data / "_out", BOTH, n_and_v)
        run_inline(flow, tmp_path / "ck")
        assert len(list(ps.read.sink(str(data / "_out")))) == 60

    @pytest.mark.parametrize("name", ["_day", ".day"])
    def test_partitions_that_nobody_would_see(self, name):
        with pytest.raises(ps.FlowError, match=f"partition_by names '{name}', .* is hidden"):
            ps.write.parquet("out", partition_by=name)


@pytest.mark.parametrize("engine", ["inline", "threads", "sequential"])
def test_a_declared_field_that_a_function_leaves_out_is_refused(data, tmp_path, engine):
    def sometimes(row: Any) -> dict[str, Any]:
        return {"n": row.n, "v": row.v} if row.n != 37 else {"n": row.n}

    flow = build(data, tmp_path / "out", BOTH, sometimes)
    with pytest.raises(
        ps.OperatorError, match=r"'shape' failed.*no field 'v', the schema has n, v; return it, as None"
    ):
        run_on(engine, flow, tmp_path / "ck")


@pytest.mark.parametrize("last", [True, False], ids=["rows in the last epoch", "none in the last epoch"])
def test_a_directory_that_was_moved_away_is_missed(data, tmp_path, last):
    flow = ps.Flow("moved")
    rows = flow.source("rows", ps.read.parquet(str(data)))
    rows.filter(lambda row: last or row.n < 10).sink("out", ps.write.parquet(str(tmp_path / "out")))
    begin(flow, tmp_path / "ck")
    begin(flow, tmp_path / "ck")
    (tmp_path / "out").rename(tmp_path / "away")
    with pytest.raises(ps.CheckpointError, match=r"'out'.*/out, to which this run has written up to epoch 2, is gone"):
        run_inline(flow, tmp_path / "ck")
    assert not (tmp_path / "out").exists()
    (tmp_path / "away").rename(tmp_path / "out")
    run_inline(flow, tmp_path / "ck")
    assert [row[0] for row in read_back(tmp_path / "out")] == list(range(60 if last else 10))


def test_a_directory_that_a_crash_kept_from_being_made_is_not_missed(data, tmp_path, monkeypatch):
    """The log names a sink before its directory is there."""
    flow = build(data, tmp_path / "out", BOTH, n_and_v)
    with monkeypatch.context() as patched:
        patched.setattr(Outputs, "claim", Mock(side_effect=KeyboardInterrupt))
        for _ in range(2):  # the second driver takes over from the first, and writes an entry
            with pytest.raises(KeyboardInterrupt):
                run_inline(flow, tmp_path / "ck")
    assert not (tmp_path / "out").exists()
    run_inline(flow, tmp_path / "ck")
    assert len(read_back(tmp_path / "out")) == 60


def test_epochs_without_rows_leave_nothing_behind(data, tmp_path):
    flow = ps.Flow("alerts")
    rows = flow.source("rows", ps.read.parquet(str(data)))
    rows.filter(lambda row: row.n == 35).sink("out", ps.write.parquet(str(tmp_path / "out")))
    engine = run_inline(flow, tmp_path / "ck", epoch_rows=10)
    assert engine._position.epoch > 5
    assert [row[0] for row in read_back(tmp_path / "out")] == [35]
    staging = tmp_path / "out/_penstock/staging"
    assert not staging.exists() or list(staging.iterdir()) == []


@pytest.mark.parametrize(
    ("owner", "moment", "message"),
    [
        (SparkEngine, "_loop", r"'out'.*is of a run with the checkpoint .*/b now.*of its own"),
        (Outputs, "claim", r"'out'.*holds the rows of another run .*checkpoint .*/b"),
    ],
    ids=["claimed by both", "written to before it is claimed"],
)
def test_of_two_runs_that_begin_to_write_to_one_directory_one_is_refused(
    data, tmp_path, monkeypatch, owner, moment, message
):
    """Both find it empty; epochs of the same number would otherwise hide one another."""
    original = getattr(owner, moment)

    def after_another(*arguments: Any) -> None:
        monkeypatch.setattr(owner, moment, original)
        with monkeypatch.context() as patch:
            patch.setattr(leases, "_exists", lambda pid: False)  # the first one is thought dead
            run_inline(build(data, tmp_path / "out", BOTH, n_and_v), tmp_path / "b", epoch_rows=20)
        original(*arguments)

    monkeypatch.setattr(owner, moment, after_another)
    with pytest.raises(ps.CheckpointError, match=message):
        run_inline(build(data, tmp_path / "out", BOTH, n_and_v), tmp_path / "a", epoch_rows=20)
    assert [row[0] for row in read_back(tmp_path / "out")] == list(range(60))
    assert Checkpoint(str(tmp_path / "a")).latest().epoch == 0, "what is not visible is not committed"


def test_rows_that_were_read_and_removed_need_not_come_back(data, tmp_path):
    """Whether the newest epoch was lost or removed nobody can tell but the user."""
    flow = build(data, tmp_path / "out", BOTH, n_and_v)
    begin(flow, tmp_path / "ck")
    shutil.rmtree(tmp_path / "out/epoch=000000001")
    with pytest.raises(ps.CheckpointError, match=r"'out'.*neither .* nor .*/epoch=000000001 is there.*empty directory"):
        run_inline(flow, tmp_path / "ck")
    (tmp_path / "out/epoch=000000001").mkdir()
    run_inline(flow, tmp_path / "ck")
    assert [row[0] for row in read_back(tmp_path / "out")] == list(range(20, 60))
