"""A read or write that fails for a moment is tried again; user code, data and what stays broken end the flow."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors import retries
from penstock.errors import OperatorError, SourceError, StorageError

from ..faults import at_random, faults
from ..how import how
from .running import assert_as_sequential, make_engine, make_rows, read_back, run_inline, two_sinks, write_files

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between attempts."""
    monkeypatch.setattr(retries, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr("penstock.spark.engine.RETRY_SECONDS", 0.0)


class Nth:
    """Let the operations with these numbers fail, of those of one kind on paths that hold a word."""

    def __init__(self, operation: str, word: str, *numbers: int) -> None:
        self._operation, self._word, self._numbers = operation, word, set(numbers)
        self.seen = 0

    def __call__(self, operation: str, path: str) -> bool:
        if operation != self._operation or self._word not in path:
            return False
        self.seen += 1
        return self.seen in self._numbers


KINDS = [
    ("open", "/data/"),
    ("read", "/data/"),
    ("list", "/data"),
    ("create", "/ck/state/"),
    ("write", "/ck/state/"),
    ("close", "/ck/state/"),
    ("open", "/ck/state/"),
    ("read", "/ck/state/"),
    ("create", "/staging/"),
    ("write", "/staging/"),
    ("close", "/staging/"),
]


@pytest.mark.parametrize(("operation", "word"), KINDS)
@pytest.mark.parametrize("number", [1, 4])
def test_one_failure_of_any_read_or_write_changes_nothing(tmp_path, operation, word, number):
    write_files(tmp_path / "data", make_rows(200), 10)
    flow = two_sinks(tmp_path / "data", tmp_path / "out")
    fault = Nth(operation, word, number)
    with faults(fault):
        run_inline(flow, tmp_path / "ck", epoch_rows=40)
    assert fault.seen > number, "what was to fail never happened"
    assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")


@pytest.mark.parametrize("form", ["csv", "json", "text"])
def test_a_file_that_breaks_off_is_read_on_from_where_it_broke(tmp_path, form):
    """A block is 4 MB: what was given before the failure must not come again."""
    lines = [f"{n},{'x' * 100}" if form != "json" else f'{{"n": {n}, "s": "{"x" * 100}"}}' for n in range(100_000)]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows").write_text("\n".join(["n,s", *lines] if form == "csv" else lines))
    schema = {"n": int, "s": str}
    reader = (
        ps.read.text(str(tmp_path / "data"))
        if form == "text"
        else getattr(ps.read, form)(str(tmp_path / "data"), schema=schema)
    )
    flow = ps.Flow("broken off")
    flow.source("rows", reader).map(lambda row: row[0], name="first").sink("out")
    clean = ps.run(flow, on=ps.Threads()).results["out"]
    fault = Nth("read", "/data/", 2, 3, 6)
    with faults(fault):
        found = ps.run(flow, on=ps.Threads()).results["out"]
    assert fault.seen >= 6
    assert found == clean
    assert len(found) == 100_000


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
@pytest.mark.parametrize("operation", ["list", "open", "read"])
def test_one_failure_before_sources_take_turns_changes_nothing(tmp_path, form, operation):
    """Text files are counted before anything is read, and what fails then is tried again, too."""
    (tmp_path / "data").mkdir()
    for number in range(3):
        rows, path = [{"n": n} for n in range(5 * number, 5 * number + 5)], tmp_path / "data" / str(number)
        if form == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        else:
            lines = ["n", *(str(row["n"]) for row in rows)] if form == "csv" else map(json.dumps, rows)
            path.write_text("\n".join(lines))
        os.utime(path, (number + 1, number + 1))
    schema = {} if form == "parquet" else {"schema": {"n": int}}
    flow = ps.Flow("turns")
    files = flow.source("files", getattr(ps.read, form)(str(tmp_path / "data"), **schema))
    files.union(flow.source("list", [{"n": -n} for n in range(4)])).sink("out")
    expected = ps.run(flow, on=ps.Sequential()).results["out"]
    for number in (1, 2, 4):
        fault = Nth(operation, "/data", number)
        with faults(fault):
            found = run_inline(flow, tmp_path / f"ck{number}", epoch_rows=4).results["out"]
        assert fault.seen >= number or operation == "list", "what was to fail never happened"
        assert found == expected


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
@pytest.mark.parametrize("operation", ["create", "write", "close"])
def test_sinks_of_threads_are_written_again(tmp_path, form, operation):
    flow = ps.Flow("threads")
    flow.source("in", [{"n": n} for n in range(1000)]).sink("out", getattr(ps.write, form)(str(tmp_path / "out")))
    fault = Nth(operation, "/staging/", 1, 2)
    with faults(fault):
        ps.run(flow, on=ps.Threads(batch_rows=100))
    assert fault.seen > 2
    again = ps.Flow("again")
    read = getattr(ps.read, form)
    schema = {} if form == "parquet" else {"schema": {"n": int}}
    again.source("in", read(str(tmp_path / "out"), **schema)).sink("out")
    assert [row.n for row in ps.run(again, on=ps.Sequential()).results["out"]] == list(range(1000))


@pytest.mark.parametrize("moment", ["create", "write", "close"])
def test_of_two_runs_in_threads_that_share_a_directory_one_is_refused(tmp_path, moment):
    def build(first: int) -> ps.Flow:
        flow = ps.Flow("threads")
        rows = flow.source("in", [{"n": n} for n in range(first, first + 1000)])
        rows.sink("out", ps.write.parquet(str(tmp_path / "out")))
        return flow

    runs: list[ps.Run] = []
    begun = threading.Lock()

    def meanwhile(operation: str, path: str) -> bool:
        # Taken before the other run begins, whose own files come here, too.
        if operation == moment and "/staging/" in path and begun.acquire(blocking=False):
            runs.append(ps.start(build(1000), on=ps.Threads()))
            runs[0].await_end()
        return False

    with faults(meanwhile), pytest.raises(ps.FlowError, match=r"'out'.*another run writes to .*/out.*of its own"):
        ps.run(build(0), on=ps.Threads())
    assert read_back(tmp_path / "out") == [(n,) for n in range(1000, 2000)]


@pytest.mark.parametrize("engine", ["threads", "sequential"])
def test_reads_are_tried_again_in_this_process(tmp_path, engine):
    write_files(tmp_path / "data", make_rows(50), 10)
    flow = ps.Flow("local")
    flow.source("rows", ps.read.parquet(str(tmp_path / "data"))).sink("out")
    with faults(at_random(3, 0.2, "/data")):
        assert [row.n for row in ps.run(flow, **how(engine)).results["out"]] == list(range(50))


def test_what_stays_broken_ends_the_flow_with_file_operation_and_attempts(tmp_path):
    write_files(tmp_path / "data", make_rows(50), 10)
    flow = two_sinks(tmp_path / "data", tmp_path / "out")
    opened = Counter[str]()

    def broken(operation: str, path: str) -> bool:
        opened[path] += operation == "create"
        return operation == "create" and "/staging/" in path and "windowed" in path

    with faults(broken), pytest.raises(StorageError) as failed:
        run_inline(flow, tmp_path / "ck", epoch_rows=40)
    message = str(failed.value)
    assert "epoch 1, run 3 times: sink 'windowed': writing" in message
    assert f"{tmp_path}/out/windowed/_penstock/staging" in message
    assert f"failed {retries.ATTEMPTS} times, the last time with Fault: SLOW_DOWN during create" in message
    assert len([path for path in opened if "windowed/_penstock/staging/epoch=" in path]) == 3 * retries.ATTEMPTS
    # It says nothing against the flow: with the store back, the same checkpoint goes on.
    run_inline(flow, tmp_path / "ck", epoch_rows=40)
    assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")


def test_what_fails_longer_than_a_task_tries_is_run_again_by_the_epoch(tmp_path):
    write_files(tmp_path / "data", make_rows(50), 10)
    flow = two_sinks(tmp_path / "data", tmp_path / "out")
    stats = []
    engine = make_engine(flow, tmp_path / "ck", epoch_rows=40)
    engine._listener = stats.append
    with faults(Nth("create", "/scanned/_penstock/staging/epoch", *range(1, 2 * retries.ATTEMPTS + 1))):
        engine.run()
    assert [epoch.attempts for epoch in stats][:2] == [3, 1]
    assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")


def test_in_threads_what_stays_broken_ends_the_flow(tmp_path):
    write_files(tmp_path / "data", make_rows(50), 10)
    flow = ps.Flow("local")
    flow.source("rows", ps.read.parquet(str(tmp_path / "data"))).sink("out")
    reads = Nth("read", "0003.parquet", *range(1, 1000))
    with faults(reads), pytest.raises(StorageError, match=r"source 'rows': reading .*0003\.parquet failed 6 times"):
        ps.run(flow, on=ps.Threads())


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_function_of_the_users_that_raises_oserror_is_not_run_again(tmp_path, on_error):
    write_files(tmp_path / "data", make_rows(5), 5)
    asked = []

    def look_up(row: Any) -> Any:
        asked.append(row.n)
        raise ConnectionResetError("the database is gone")

    flow = ps.Flow("lookup")
    flow.source("rows", ps.read.parquet(str(tmp_path / "data"))).map(look_up, on_error=on_error).sink("out")
    if on_error == "skip":
        ps.run(flow, on=ps.Threads(workers=1))
        assert sorted(set(asked)) == list(range(5))
        return
    with pytest.raises(OperatorError, match=r"operator 'look_up' failed .*ConnectionResetError"):
        run_inline(flow, tmp_path / "ck")


def test_a_generator_of_the_users_that_raises_oserror_is_user_code(tmp_path):
    calls = []

    def rows(start: int, stop: int) -> Any:
        calls.append(start)
        raise OSError("the instrument does not answer")

    flow = ps.Flow("generated")
    flow.source("rows", ps.read.generate(rows, schema={"n": int}, rows=10)).sink("out")
    with pytest.raises(OperatorError, match=r"operator 'rows' failed .*the instrument does not answer"):
        ps.run(flow, on=ps.Threads())
    assert calls == [0]


def test_a_file_that_is_gone_is_not_waited_for(tmp_path):
    write_files(tmp_path / "data", make_rows(50), 10)
    flow = two_sinks(tmp_path / "data", tmp_path / "out")
    opened = Counter[str]()

    def remove(operation: str, path: str) -> bool:
        opened[path] += operation == "open"
        if opened[path] == 1 and "0004" in path:  # listed, and its rows are counted; then it goes
            Path(path).unlink(missing_ok=True)
        return False

    with faults(remove), pytest.raises(SourceError, match=r"0004\.parquet"):
        run_inline(flow, tmp_path / "ck", epoch_rows=1000)
    assert opened[str(tmp_path / "data" / "0004.parquet")] <= 2


@pytest.mark.parametrize("seed", range(6))
def test_faults_at_random_change_nothing(tmp_path, seed):
    """One read or write in fifty fails, of sources, state and sinks."""
    write_files(tmp_path / "data", make_rows(300), 20)
    flow = two_sinks(tmp_path / "data", tmp_path / "out")
    with faults(at_random(seed, 0.02, r"/data|/ck/state/[0-9a-f.]|/staging/epoch.*part")):
        run_inline(flow, tmp_path / "ck", epoch_rows=50, seed=seed)
    assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")
