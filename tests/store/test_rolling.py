"""Files that roll: rows of small epochs wait, and appear once, whole and in order, whatever crashes at which step."""

from __future__ import annotations

import datetime as dt
import logging
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.connectors.directory import Retain
from penstock.connectors.part_files import JoinedFile, after_header
from penstock.store import lease as leases
from penstock.store.checkpoint import Checkpoint
from penstock.store.keeper import Keeper
from penstock.store.publication import Publication
from penstock.store.rolling import Retention, Rolling, Target, group

from ..how import how
from ..in_turn import one_of_each
from ..spark.running import (
    Crash,
    Disk,
    assert_as_sequential,
    make_engine,
    make_rows,
    read_back,
    run_inline,
    two_sinks,
    write_files,
)

ROWS = 104


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_files(tmp_path / "data", make_rows(ROWS), 13)
    return tmp_path / "data"


def visible(out: Path) -> list[str]:
    """Return what anyone sees who lists a directory and knows what a hidden name is."""
    found = (path.relative_to(out) for path in out.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if not any(part.startswith(("_", ".")) for part in path.parts))


def plain(data: Path, out: Path, form: str = "parquet", **files: Any) -> ps.Flow:
    flow = ps.Flow("plain")
    rows = flow.source("rows", ps.read.parquet(str(data)))
    rows.sink("out", getattr(ps.write, form)(str(out), **files))
    return flow


class TestWhenTheyAppear:
    def test_rows_of_small_epochs_are_one_file_at_the_end(self, data, tmp_path):
        engine = run_inline(plain(data, tmp_path / "out"), tmp_path / "ck", epoch_rows=10)
        assert engine._position.epoch > 8
        assert visible(tmp_path / "out") == [f"epoch={engine._position.epoch - 1:09d}/part-00000.parquet"]
        assert [row[0] for row in read_back(tmp_path / "out")] == list(range(ROWS))
        assert not list((tmp_path / "out/_penstock/staging").iterdir()), "what was joined is gone"

    def test_what_waits_is_hidden_and_committed(self, data, tmp_path):
        engine = make_engine(plain(data, tmp_path / "out"), tmp_path / "ck", epoch_rows=10)
        seen: list[tuple[list[str], int]] = []

        def look(stats: Any) -> None:
            waiting = Checkpoint(str(tmp_path / "ck")).latest().waiting["out"]["parts"]
            rows = sum(part[1] for _, _, parts in waiting for part in parts)
            seen.append((visible(tmp_path / "out"), rows))

        engine._listener = look
        engine.run()
        assert seen[:3] == [([], 10), ([], 20), ([], 30)]

    @pytest.mark.parametrize("files", [{"roll_every": 0}, {"file_size": 1}], ids=str)
    def test_each_epoch_can_be_a_file(self, data, tmp_path, files):
        run_inline(plain(data, tmp_path / "out", **files), tmp_path / "ck", epoch_rows=20)
        assert visible(tmp_path / "out") == [f"epoch={n:09d}/part-00000.parquet" for n in range(1, 7)]

    def test_files_are_about_as_large_as_asked_for(self, data, tmp_path):
        run_inline(plain(data, tmp_path / "one"), tmp_path / "ck1", epoch_rows=10)
        whole = (tmp_path / "one").glob("epoch=*/*")
        size = sum(path.stat().st_size for path in whole)
        run_inline(plain(data, tmp_path / "out", file_size=2 * size), tmp_path / "ck2", epoch_rows=2)
        parts = visible(tmp_path / "out")
        assert 2 <= len(parts) < 52 / 2, "52 epochs of two rows"
        assert [row[0] for row in read_back(tmp_path / "out")] == list(range(ROWS))

    @pytest.mark.parametrize(("options", "left"), [({}, True), ({"file_size": "128 MB"}, False)], ids=str)
    @pytest.mark.parametrize("begun", [1, 2])
    def test_a_commit_does_not_wait_until_large_parts_are_joined(self, options, left, begun):
        class Noting(list[str]):
            add = list.append

            def close(self) -> int:
                return 1

        small, large = ["part-00000.parquet", 1, 10, 0], ["part-00001.parquet", 1, 2_000_000, 0]
        waiting = {"path": "out", "format": "parquet", "parts": [[n, 1, [small, large]] for n in (1, 2)]}
        target, joined = Target.of(ps.write.parquet("out", **options)), Noting()
        rolling = Rolling("out", target, lambda waiting, path: joined, lambda: 0.0)
        rolling.begin({**waiting, "parts": waiting["parts"][:begun]}, 1)
        files = rolling.roll(waiting, 1)
        kept = left and begun == 1
        assert [len(each.sources) for _, _, each in files] == ([3, 1] if kept else [4])
        assert len(joined) == (3 if kept else 4), "what was joined in the shadow of the epoch stays joined"
        names = [f"_penstock/staging/epoch={n:09d}.1/part-{i:05d}.parquet" for n in (1, 2) for i in (0, 1)]
        assert [source for _, _, each in files for source in each.sources] == names

    def test_rows_appear_after_a_while_though_nothing_more_comes(self, data, tmp_path):
        flow = ps.Flow("idle")
        rows = flow.source("rows", ps.read.parquet(str(data), follow=True))
        rows.sink("out", ps.write.parquet(str(tmp_path / "out"), roll_every=0.2))
        engine = make_engine(flow, tmp_path / "ck", epoch_rows=1000)
        polls = []

        class Stopping(Keeper):
            def roll(self, position: Any, ahead: float | None) -> bool:
                rolled = super().roll(position, ahead)
                polls.append(rolled)
                if rolled:
                    assert [row[0] for row in read_back(tmp_path / "out")] == list(range(ROWS))
                if rolled or len(polls) > 1000:
                    engine.stop()
                return rolled

        engine._keeper = Stopping(engine._checkpoint)
        engine.run()
        assert read_back(tmp_path / "out")

    def test_a_run_that_fails_shows_what_it_has_committed(self, data, tmp_path):
        def fails(row: Any) -> dict[str, Any]:
            if row.n == 45:
                raise ValueError("no")
            return {"n": row.n}

        flow = ps.Flow("failing")
        rows = flow.source("rows", ps.read.parquet(str(data)))
        rows.map(fails, schema={"n": int}).sink("out", ps.write.parquet(str(tmp_path / "out")))
        with pytest.raises(ps.OperatorError):
            run_inline(flow, tmp_path / "ck", epoch_rows=10)
        assert read_back(tmp_path / "out") == [(n,) for n in range(40)]

    def test_a_sink_that_is_gone_by_now_shows_what_waited(self, data, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            crash_in_roll(patch)
            with pytest.raises(Crash):
                run_inline(plain(data, tmp_path / "out"), tmp_path / "ck", epoch_rows=10)
        assert visible(tmp_path / "out") == []
        run_inline(plain(data, tmp_path / "new"), tmp_path / "ck", epoch_rows=10)
        assert [row[0] for row in read_back(tmp_path / "out")] == list(range(ROWS))


def crash_in_roll(patch: pytest.MonkeyPatch) -> None:
    """Let a run end without a word when all that waits is to appear."""

    def crashing(*_: Any) -> None:
        raise Crash

    patch.setattr(leases, "_exists", lambda pid: False)
    patch.setattr(Rolling, "roll", crashing)


STEPS: dict[str, tuple[Any, str, bool]] = {
    "while parts are joined": (Rolling, "begin", True),
    "before the file is closed": (JoinedFile, "close", True),
    "after the file is closed": (JoinedFile, "close", False),
    "before the commit": (Checkpoint, "commit", True),
    "after the commit": (Checkpoint, "commit", False),
    "after it has appeared": (Publication, "publish", False),
    "before the parts go": (Publication, "used", True),
    "before the oldest go": (Publication, "retain", True),
    "after all": (Keeper, "_publish", False),
}
ROLLS: dict[str, dict[str, Any]] = {
    "by size": {"file_size": 4000},
    "partitions": {"partition_by": "k", "file_size": 60_000},
    "at the end": {},
    "each epoch": {"roll_every": 0},
}

NEVER = {
    ("each epoch", step) for step in ("while parts are joined", "before the file is closed", "after the file is closed")
}
"""What does not happen: where each epoch is a file nothing is joined."""


class TestCrashes:
    @pytest.mark.parametrize(("step", "roll"), one_of_each(STEPS, list(ROLLS)))
    def test_at_each_step_each_time(self, data, tmp_path, monkeypatch, step, roll):
        """The first time that the step is done, then the second, and so on; a run goes on where one ended."""
        owner, name, before = STEPS[step]
        original = getattr(owner, name)
        flow = two_sinks(data, tmp_path / "out", **ROLLS[roll])
        crashes, done = 0, False
        while not done:
            calls, due = 0, crashes % 4 + 1

            def crashing(*arguments: Any, due: int = due) -> Any:
                nonlocal calls
                calls += 1
                if calls == due and before:
                    raise Crash
                result = original(*arguments)
                if calls == due:
                    raise Crash
                return result

            with monkeypatch.context() as patch:
                patch.setattr(leases, "_exists", lambda pid: False)
                if crashes < 12:
                    patch.setattr(owner, name, crashing)
                try:
                    run_inline(flow, tmp_path / "ck", epoch_rows=9, tasks=1 + crashes % 3, seed=crashes)
                    done = True
                except Crash:
                    crashes += 1
            self.check_prefix(tmp_path)
        assert crashes or (roll, step) in NEVER
        self.check(flow, tmp_path, roll)

    @pytest.mark.parametrize(("seed", "roll"), one_of_each(range(6), list(ROLLS)))
    def test_at_any_change_of_the_disk(self, data, tmp_path, monkeypatch, roll, seed):
        draw = random.Random(seed)
        flow = two_sinks(data, tmp_path / "out", **ROLLS[roll])
        for life in range(300):
            with monkeypatch.context() as patch:
                Disk(patch, tmp_path, crash_at=draw.randint(1, 40 if life < 40 else 100_000))
                try:
                    run_inline(flow, tmp_path / "ck", epoch_rows=draw.randint(5, 30), tasks=2, seed=draw.random())
                    break
                except Crash:
                    pass
                self.check_prefix(tmp_path)
        else:
            raise AssertionError("never came to the end")
        self.check(flow, tmp_path, roll)

    def check_prefix(self, work: Path) -> None:
        """Whatever happened: what is visible is in order and there once, and nothing of it changes later."""
        for path in (work / "out").rglob("*.parquet"):
            if not any(part.startswith("_") for part in path.parts):
                kept = work / "seen" / path.relative_to(work)
                if kept.exists():
                    assert kept.read_bytes() == path.read_bytes(), f"{path} has changed"
                else:
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    kept.write_bytes(path.read_bytes())
        for path in (work / "seen").rglob("*.parquet"):
            assert (work / path.relative_to(work / "seen")).exists(), f"{path} is gone"
        numbers = [row[0] for row in read_back(work / "out/scanned")]
        assert numbers == list(range(len(numbers)))

    def check(self, flow: ps.Flow, work: Path, roll: str) -> None:
        staging = [
            path for sink in ("scanned", "windowed") for path in (work / "out" / sink / "_penstock/staging").glob("*")
        ]
        assert staging == [], "nothing is left behind"
        if roll != "partitions":
            assert_as_sequential(flow, work / "out", work / "ck")
            return
        table = pa.concat_tables([pq.read_table(path, partitioning="hive") for path in [work / "out/scanned"]])
        rows = sorted(table.to_pylist(), key=lambda row: row["n"])
        assert [row["n"] for row in rows] == list(range(ROWS))
        assert [row["k"] for row in rows] == [row["k"] for row in make_rows(ROWS)]

    def test_an_old_driver_publishes_nothing(self, data, tmp_path, monkeypatch):
        """It joined what waited, and slept; its heir has rolled the same rows."""
        asleep: list[tuple[Keeper, Any]] = []
        roll = Keeper.roll

        def sleeping(keeper: Keeper, position: Any, ahead: float | None) -> bool:
            if keeper.fence == 1 and ahead is None and position.waiting:
                asleep.append((keeper, position))
                raise KeyboardInterrupt
            return roll(keeper, position, ahead)

        monkeypatch.setattr(Keeper, "roll", sleeping)
        monkeypatch.setattr(leases, "_exists", lambda pid: False)
        flow = plain(data, tmp_path / "out")
        with monkeypatch.context() as patch:
            patch.setattr(leases.Lease, "release", lambda lease: None)
            with pytest.raises(KeyboardInterrupt):
                run_inline(flow, tmp_path / "ck", epoch_rows=10)
        run_inline(flow, tmp_path / "ck", epoch_rows=10)
        before = visible(tmp_path / "out")
        keeper, position = asleep[0]
        monkeypatch.setattr(leases.Lease, "check", lambda lease: None)  # it does not even notice
        with pytest.raises((ps.LeaseError, ps.StorageError)):
            roll(keeper, position, None)
        assert visible(tmp_path / "out") == before
        assert [row[0] for row in read_back(tmp_path / "out")] == list(range(ROWS))

    @pytest.mark.parametrize("entries", [1, 2])
    def test_an_entry_that_rolled_files_is_damaged(self, data, tmp_path, entries):
        """What is visible tells what the log does not any more."""
        flow = plain(data, tmp_path / "out")
        engine = make_engine(flow, tmp_path / "ck", epoch_rows=10)
        engine._listener = lambda stats: engine.stop() if stats.epoch == 4 else None
        engine.run()
        for path in sorted((tmp_path / "ck/epochs").iterdir())[-entries:]:
            path.write_bytes(path.read_bytes()[:-20])
        run_inline(flow, tmp_path / "ck", epoch_rows=10)
        assert [row[0] for row in read_back(tmp_path / "out")] == list(range(ROWS))


class TestFormats:
    @pytest.mark.parametrize("form", ["parquet", "json", "csv"])
    @pytest.mark.parametrize("engine", ["inline", "threads"])
    @pytest.mark.parametrize("by", [(), ("k",)], ids=["", "partitions"])
    def test_anyone_reads_what_was_joined(self, data, tmp_path, form, engine, by):
        out = tmp_path / "out"
        flow = plain(data, out, form, partition_by=by)
        if engine == "inline":
            run_inline(flow, tmp_path / "ck", epoch_rows=10)
        else:
            ps.run(flow, **how("threads"))
        pattern = f"{out}/{'k=*' if by else 'epoch=*'}/*.{form}"
        found = duckdb.sql(
            f"select n, k, v from read_{form}('{pattern}', hive_partitioning=true) order by n"
        ).fetchall()
        assert found == [(row["n"], row["k"], row["v"]) for row in make_rows(ROWS)]
        assert len(visible(out)) == (11 if by else 1)
        for directory in out.glob("k=*"):
            numbers = (
                [
                    row["n"]
                    for path in sorted(directory.iterdir())
                    for row in duckdb.read_csv(str(path)).to_arrow_table().to_pylist()
                ]
                if form == "csv"
                else []
            )
            assert numbers == sorted(numbers)

    def test_a_header_with_an_end_of_a_line_in_quotes(self):
        assert after_header(b'"a\nb","c"\n1,2\n') == b"1,2\n"
        assert after_header(b"a,b\n") == b""

    def test_partitions_have_names_that_others_read(self, tmp_path):
        values = ["a b", "ä/ö", "x=1", "100%", None, "", "q?", "."]
        rows = [{"n": n, "day": value} for n, value in enumerate(values)]
        flow = ps.Flow("names")
        source = flow.source("rows", ps.read.items(rows, schema={"n": int, "day": str | None}))
        source.sink("out", ps.write.parquet(str(tmp_path / "out"), partition_by="day"))
        run_inline(flow, tmp_path / "ck")
        found = pq.read_table(tmp_path / "out", partitioning="hive").to_pylist()
        read = {row["n"]: row["day"] for row in found}
        assert read == {n: value or None for n, value in enumerate(values)}


class TestRetention:
    def test_the_oldest_go_and_the_newest_stay(self, data, tmp_path, caplog):
        flow = plain(data, tmp_path / "out", roll_every=0, retain=3)
        with caplog.at_level(logging.INFO):
            run_inline(flow, tmp_path / "ck", epoch_rows=10)
        assert visible(tmp_path / "out") == [f"epoch={n:09d}/part-00000.parquet" for n in (9, 10, 11)]
        assert "sink 'out': removed epoch=000000001 (1 files" in caplog.text

    def test_in_threads_too(self, data, tmp_path):
        flow = plain(data, tmp_path / "out", roll_every=0, retain="1 kB", partition_by="k")
        ps.run(flow, **how("threads"))
        newest = max(int(name.split("-")[1]) for name in visible(tmp_path / "out"))
        assert all(f"part-{newest:09d}" in name for name in visible(tmp_path / "out"))

    @pytest.mark.parametrize(
        ("keep", "gone"),
        [
            (Retain(files=3), 2),
            (Retain(bytes=25), 3),
            (Retain(seconds=25.0), 3),
            (Retain(files=1), 4),
            (Retain(files=9), 0),
        ],
    )
    def test_what_goes(self, keep, gone):
        files = [(f"epoch={n:09d}/part-00000.json", 10, 10.0 * n) for n in range(1, 6)]
        files += [("epoch=000000007/part-00000.json", 10, 70.0), ("theirs.json", 999, 0.0), ("a/b.json", 9, 0.0)]
        found = Retention("out", "", keep, lambda: files, now=lambda: 60.0).surplus(committed=5)
        assert [unit.epoch for unit in found] == list(range(1, gone + 1))


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"file_size": "big"}, r"ps.write.parquet\('out'\): file_size='big' is no size"),
            ({"file_size": 0}, "file_size=0 is no size"),
            ({"roll_every": -1}, "roll_every=-1 must be 0 or more"),
            ({"roll_every": "soon"}, "'soon' is no duration"),
            ({"retain": "some"}, "retain='some' is neither a number of files"),
            ({"retain": 0}, "retain=0 is neither"),
            ({"partition_by": ["a", "a"]}, "each once"),
            ({"partition_by": "epoch"}, "rename the field"),
        ],
        ids=str,
    )
    def test_options(self, options, message):
        with pytest.raises(ps.FlowError, match=message):
            ps.write.parquet("out", **options)

    def test_sizes_and_times(self):
        found = ps.write.csv("out", file_size="64 MiB", roll_every="2 min", retain="7 days", partition_by="day")
        assert (found.file_size, found.roll_every, found.retain) == (2**26, 120.0, Retain(seconds=7 * 86400.0))
        assert ps.write.json("out", retain="2.5GB").retain == Retain(bytes=2_500_000_000)
        assert ps.write.json("out", retain=1000).retain == Retain(files=1000)

    @pytest.mark.parametrize("engine", ["inline", "threads"])
    @pytest.mark.parametrize(("by", "message"), [("x", "the rows have the fields n, t, k, v"), ("v", "no good names")])
    def test_fields(self, data, tmp_path, engine, by, message):
        flow = plain(data, tmp_path / "out", partition_by=by)
        with pytest.raises(ps.FlowError, match=rf"sink 'out': partition_by names '{by}'.*{message}"):
            run_inline(flow, tmp_path / "ck") if engine == "inline" else ps.run(flow, **how("threads"))

    @pytest.mark.parametrize("engine", ["inline", "threads"])
    @pytest.mark.parametrize(
        ("form", "kind", "options", "message"),
        [
            ("json", bytes, {}, r"json has no form for the field 'p' \(binary\); write Parquet"),
            ("csv", list[int], {}, "csv has no form for the field 'p'"),
            ("parquet", dt.timedelta, {"partition_by": "p"}, "no good names of directories"),
        ],
    )
    def test_values_without_a_form(self, tmp_path, engine, form, kind, options, message):
        rows = ps.Flow("forms").source("rows", ps.read.items([], schema={"n": int, "p": kind}))
        flow = rows.sink("out", getattr(ps.write, form)(str(tmp_path / "out"), **options))
        with pytest.raises(ps.FlowError, match=f"sink 'out': .*{message}"):
            run_inline(flow, tmp_path / "ck") if engine == "inline" else ps.run(flow, **how("threads"))

    def test_other_partitions_in_the_same_directory(self, data, tmp_path):
        engine = make_engine(plain(data, tmp_path / "out"), tmp_path / "ck", epoch_rows=10)
        engine._listener = lambda stats: engine.stop()
        engine.run()
        with pytest.raises(
            ps.CheckpointError, match="in partitions by nothing, and the flow's now by k; give the sink"
        ):
            run_inline(plain(data, tmp_path / "out", partition_by="k"), tmp_path / "ck")


Parts = list[list[tuple[int, int]]]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 60), st.integers(0, 1)), min_size=1, max_size=4), min_size=1, max_size=12
    )
)
def test_groups_keep_every_part_in_order_and_are_stable(epochs: Parts):
    def waiting(count: int) -> dict[str, Any]:
        return {
            "parts": [
                [number, 1, [[f"part-{i:05d}", 1, size, kind] for i, (size, kind) in enumerate(parts)]]
                for number, parts in enumerate(epochs[:count], 1)
            ]
        }

    target = Target("", full=100, large=50, every=0.0)
    groups = group(waiting(len(epochs)), target)
    names = [
        f"_penstock/staging/epoch={n:09d}.1/part-{i:05d}"
        for n, parts in enumerate(epochs, 1)
        for i in range(len(parts))
    ]
    assert [source for each in groups for source in each.sources] == names
    assert all(len(each.sources) == 1 for each in groups if each.alone)
    assert all(each.bytes < 150 + 50 for each in groups)
    # While all is less than one file, what was joined already stays as it is.
    for count in range(1, len(epochs)):
        if sum(size for parts in epochs[: count + 1] for size, _ in parts) < target.full:
            before, after = group(waiting(count), target), group(waiting(count + 1), target)
            assert [each.sources for each in before[:-1]] == [each.sources for each in after[: len(before) - 1]]
            assert after[len(before) - 1].sources[: len(before[-1].sources)] == before[-1].sources
            # Nor does what is left as it is at a commit change that.
            last = group(waiting(count + 1), replace(target, last=20), after=count)
            assert [source for each in last for source in each.sources] == names[: sum(map(len, epochs[: count + 1]))]
            assert last[len(before) - 1].sources[: len(before[-1].sources)] == before[-1].sources


class Counted:
    """A file that rows are joined to, of 20 bytes each."""

    def __init__(self) -> None:
        self._rows = 0

    def add(self, source: str) -> None:
        self._rows += 10

    def close(self) -> int:
        return 20 * self._rows

    def abandon(self) -> None:
        raise AssertionError("nothing fails here")


def test_files_are_full_by_what_rows_take_once_they_are_joined():
    """Parts of a few rows are mostly what Parquet says of itself: files of them were a fraction of `file_size`."""
    rolling = Rolling("out", Target("", full=4_000, large=2_000, every=math.inf), lambda kept, path: Counted(), float)
    sizes = []
    waiting: dict[str, Any] = {"path": "", "format": "parquet", "parts": []}
    for epoch in range(1, 100):
        waiting["parts"].append([epoch, 1, [["part-00000.parquet", 10, 1_000, 0]]])
        if rolling.is_due(waiting, 0.0):
            sizes += [20 * each.rows for _, _, each in rolling.roll(waiting, 1)]
            waiting["parts"] = []
        else:
            rolling.begin(waiting, 1)
    assert sizes == [800, 4_000, 4_000, 4_000, 4_000]
