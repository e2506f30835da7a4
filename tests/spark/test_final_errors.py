"""What trying again cannot change ends a flow at once, alike on every engine: source or sink, path, cause and fix.

Tests may run as root, whom permissions do not bind: errors are raised by the file system itself where it has one that
binds everybody (/sys takes no directories, a link to itself leads nowhere), else by the layer below Penstock.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.connectors import retries
from penstock.errors import StorageError

from ..faults import Decide, faults
from ..how import how
from ..in_turn import one_of_each
from .running import assert_as_sequential, make_rows, run_inline, two_sinks, write_files

NOWHERE = "/sys/penstock-rows"
"""Where nobody may make a directory: no permission on Linux, a read-only system elsewhere."""
FIXES = {
    errno.EACCES: "chown",
    errno.EPERM: "chown",
    errno.EROFS: "mounted read-only",
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space",
    errno.ENOTDIR: "check the path",
    errno.ENAMETOOLONG: "check the path",
    errno.ELOOP: "check the path",
}
Run = Callable[[ps.Flow, Path], object]


def on_inline(flow: ps.Flow, place: Path) -> object:
    return run_inline(flow, place / "ck", epoch_rows=40)


RUNS: dict[str, Run] = {
    "threads": lambda flow, place: ps.run(flow, **how("threads")),
    "sequential": lambda flow, place: ps.run(flow, **how("sequential")),
    "inline": on_inline,
}
ENGINES = pytest.mark.parametrize("engine", RUNS)


def each_time(*operations: str) -> pytest.MarkDecorator:
    """Let each operation fail on each engine, with one error in turn each time and with all of them by `make chaos`."""
    table = one_of_each([f"{engine} {operation}" for engine in RUNS for operation in operations], list(FIXES))
    return pytest.mark.parametrize(("where", "number"), table)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where anything is tried again: nobody can sleep for so long."""
    monkeypatch.setattr(retries, "FIRST_SECONDS", float("nan"))
    monkeypatch.setattr("penstock.spark.engine.RETRY_SECONDS", "never")


def failing(number: int, operation: str, word: str) -> Decide:
    """Let operations on paths that hold a word fail with an error of the system."""

    def decide(asked: str, path: str) -> bool:
        if asked == operation and word in path:
            raise OSError(number, os.strerror(number), path)
        return False

    return decide


def flow_between(data: Path | str, out: Path | str) -> ps.Flow:
    flow = ps.Flow("final")
    schema = {"n": int, "t": int, "k": int, "v": float}
    flow.source("rows", ps.read.parquet(str(data), schema=schema)).sink("out", ps.write.parquet(str(out)))
    return flow


@each_time("list", "open", "read")
def test_a_source_that_cannot_be_read(tmp_path, where, number):
    engine, operation = where.split()
    write_files(tmp_path / "data", make_rows(50), 10)
    flow = flow_between(tmp_path / "data", tmp_path / "out")
    with faults(failing(number, operation, "/data")), pytest.raises(StorageError) as failed:
        RUNS[engine](flow, tmp_path)
    message = str(failed.value)
    assert "source 'rows': " in message
    assert f"{tmp_path}/data" in message
    assert os.strerror(number) in message
    assert FIXES[number] in message
    assert failed.value.attempts == 1


@each_time("create", "write", "close")
def test_a_sink_that_cannot_be_written(tmp_path, where, number):
    engine, operation = where.split()
    write_files(tmp_path / "data", make_rows(50), 10)
    flow = flow_between(tmp_path / "data", tmp_path / "out")
    with faults(failing(number, operation, "/staging/")), pytest.raises(StorageError) as failed:
        RUNS[engine](flow, tmp_path)
    message = str(failed.value)
    assert "sink 'out': writing " in message
    assert f"{tmp_path}/out/" in message
    assert os.strerror(number) in message
    assert FIXES[number] in message
    assert "times" not in message


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["threads", "sequential", "spark"])
def test_a_sink_where_nobody_may_write(tmp_path, engine, request):
    write_files(tmp_path / "data", make_rows(50), 10)
    options = {"spark": request.getfixturevalue("spark")} if engine == "spark" else {}
    flow = flow_between(tmp_path / "data", NOWHERE)
    with pytest.raises(StorageError, match=rf"sink 'out': writing {NOWHERE}.*(chown|mounted read-only)"):
        ps.run(flow, **how(engine, **options))


@ENGINES
def test_a_source_that_no_file_system_has(tmp_path, engine):
    with pytest.raises(StorageError, match=r"source 'rows': listing .*/xxx+ failed with .*; check the path"):
        RUNS[engine](flow_between(tmp_path / ("x" * 300), tmp_path / "out"), tmp_path)


@ENGINES
def test_a_sink_that_leads_nowhere(tmp_path, engine):
    write_files(tmp_path / "data", make_rows(50), 10)
    (tmp_path / "out").symlink_to(tmp_path / "out")
    with pytest.raises(StorageError, match=r"sink 'out': .* .*/out.* failed with .*; check the path"):
        RUNS[engine](flow_between(tmp_path / "data", tmp_path / "out"), tmp_path)


@ENGINES
def test_a_sink_below_what_is_no_directory(tmp_path, engine):
    write_files(tmp_path / "data", make_rows(50), 10)
    (tmp_path / "file").write_text("no directory")
    out = tmp_path / "file" / "out"
    with pytest.raises(StorageError, match=rf"sink 'out': .* {out}.* failed with NotADirectoryError.*check the path"):
        RUNS[engine](flow_between(tmp_path / "data", out), tmp_path)


def test_the_schema_of_a_directory_that_may_not_be_listed(tmp_path):
    write_files(tmp_path / "data", make_rows(50), 10)
    with (
        faults(failing(errno.EACCES, "list", "/data")),
        pytest.raises(StorageError, match=r"source 'rows': listing .*/data failed with PermissionError.*chown"),
    ):
        ps.Flow("final").source("rows", ps.read.parquet(str(tmp_path / "data")))


def test_a_disk_that_was_full_is_gone_on_from_once_there_is_space(tmp_path):
    write_files(tmp_path / "data", make_rows(200), 10)
    flow = two_sinks(tmp_path / "data", tmp_path / "out")
    full = failing(errno.ENOSPC, "write", "windowed/_penstock/staging/epoch=000000003")
    with faults(full), pytest.raises(StorageError, match=r"epoch 3: sink 'windowed'.*free space.*same checkpoint"):
        on_inline(flow, tmp_path)
    on_inline(flow, tmp_path)
    assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")
