"""The table of the alternatives: how it is made, and that bare Python gets through all of it."""

import argparse
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import all_peers, environments
from bench.peers import apart
from bench.workload import Event, Running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make two files of events."""
    (tmp_path / "data").mkdir()
    for number in range(2):
        serial = list(range(100 * number, 100 * number + 100))
        table = pa.table({"serial": serial, "key": [s % 7 for s in serial], "value": [s % 100 / 100 for s in serial]})
        pq.write_table(table, tmp_path / "data" / f"{number}.parquet")
    return tmp_path / "data"


def task(folder: Path, rows: int = 200) -> apart.Task:
    return apart.Task(sorted(folder.glob("*.parquet")), rows, 0.001, 8)


def outputs(events: list[Event]) -> list[Running]:
    counts: dict[int, tuple[int, float]] = {}
    made = []
    for row in events:
        count, total = counts.get(row.key, (0, 0.0))
        counts[row.key] = count + 1, total + row.value
        made.append(Running(row.serial, row.key, *counts[row.key]))
    return made


class TestChecks:
    def test_w1_in_order_and_not(self, folder: Path) -> None:
        right = outputs(list(task(folder).events()))
        assert apart.check_w1(task(folder), apart.Outcome(right))["in_order"] is True
        swapped = [right[1], right[0], *right[2:]]
        found = apart.check_w1(task(folder), apart.Outcome(swapped))
        assert (found["in_order"], found["inversions"]) == (False, 1)

    def test_w1_wrong(self, folder: Path) -> None:
        right = outputs(list(task(folder).events()))
        with pytest.raises(AssertionError, match="199 outputs for 200 events"):
            apart.check_w1(task(folder), apart.Outcome(right[1:]))
        with pytest.raises(AssertionError, match="1 wrong outputs"):
            apart.check_w1(task(folder), apart.Outcome([right[0]._replace(count=9), *right[1:]]))

    def test_w1_by_the_last_of_each_key(self, folder: Path) -> None:
        last = {row.key: row for row in outputs(list(task(folder).events()))}
        found = apart.check_w1(task(folder), apart.Outcome(list(last.values()), per_event=False))
        assert (found["in_order"], found["outputs"]) == (False, 7)
        with pytest.raises(AssertionError, match="are wrong"):
            apart.check_w1(task(folder), apart.Outcome(list(last.values())[1:], per_event=False))

    def test_w2_and_w3_wrong(self, folder: Path) -> None:
        with pytest.raises(AssertionError, match="the count is 7, not"):
            apart.check_w2(task(folder), apart.Outcome(7))
        with pytest.raises(AssertionError, match="not complete"):
            apart.check_w3(task(folder, 3), apart.Outcome([0, 1]))
        assert apart.check_w3(task(folder, 3), apart.Outcome([1, 0, 2]))["inversions"] == 1


class TestTable:
    @pytest.mark.parametrize(
        ("name", "workload"), [(name, w) for name, peer in all_peers.PEERS.items() for w in peer.workloads]
    )
    def test_lines_are_counted_for_every_peer(self, name: str, workload: str) -> None:
        assert 3 <= all_peers.lines_of_code(name, workload) <= 60

    def test_lines_are_those_of_code(self) -> None:
        assert all_peers.lines_of_code("python", "w1") == 7

    def test_what_is_not_measured_says_why(self) -> None:
        row = {"peer": "p", "workload": "w1", "version": "1", "rows_s": 1234.5, "steady": True, "note": "so"}
        rows = [
            {"peer": "absent", "workload": "w1", "reason": "cannot be installed: no"},
            {**row, "in_order": True, "peak_mb": 7.6, "lines": 3},
        ]
        assert all_peers.markdown(rows).splitlines()[-2:] == [
            "| p | 1 | 1,234 (steady); so | yes | 8 | 3 |",
            "| absent | | cannot be installed: no | | | |",
        ]


class TestEnvironments:
    def test_what_cannot_be_installed_is_said(self) -> None:
        with pytest.raises(environments.Unavailable, match=r"cannot be installed: .*no-such-file"):
            environments._called([sys.executable, "-m", "pip", "install", "./no-such-file.whl"], 120)

    def test_an_environment_is_made_once(self, tmp_path: Path) -> None:
        (tmp_path / ".made").write_text("\n".join(["something>=1", *environments.COMMON]))
        assert environments.interpreter(tmp_path, ["something>=1"], 0.0) == tmp_path / "bin" / "python"
        # For something else it would be made anew, for which there is no time here.
        with pytest.raises(environments.Unavailable, match="not installed within 0 s"):
            environments.interpreter(tmp_path, ["something>=2"], 0.0)

    def test_what_fails_and_what_takes_too_long_is_said(self) -> None:
        python = Path(sys.executable)
        with pytest.raises(environments.Unavailable, match=r"failed: ModuleNotFoundError.*nobody_peer"):
            environments.run_program(python, ["nobody", "w1", "--data", ".", "--rows", "1"], 60)
        with pytest.raises(environments.Unavailable, match="not done within 0 s"):
            environments.run_program(python, ["python", "w3", "--data", ".", "--rows", "1"], 0.01)

    def test_memory_is_that_of_all_processes(self) -> None:
        """A process that starts another one, which takes 60 MB."""
        child = "x = b'1' * 60_000_000; print(1, flush=True); input()"
        parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
        process = subprocess.Popen(
            [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        memory = environments.Memory(process.pid)
        assert process.stdout is not None
        process.stdout.readline()  # now it has them
        memory.start()
        while not memory.peak:
            assert memory.is_alive()
        memory.stop()
        process.communicate(b"\n")
        assert 60_000_000 < memory.peak < 300_000_000


def test_bare_python_runs_everything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = argparse.Namespace(files=1, file_rows=200, lookups=20, wait=1.0, in_flight=8, patience=60.0)
    all_peers.PEERS["python"] = all_peers.Peer(own=False)
    try:
        found = [all_peers.measured("python", workload, folder, args) for workload in ("w1", "w2", "w3")]
    finally:
        all_peers.PEERS["python"] = all_peers.Peer()
    assert [row.get("reason") for row in found] == [None] * 3
    assert [row["in_order"] for row in found] == [True, None, True]
    assert all(row["rows_s"] > 0 and row["version"].startswith("3.") for row in found)
