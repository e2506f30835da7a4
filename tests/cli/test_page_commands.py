"""`penstock run --page`, `penstock page`, `penstock replay`: a run is seen while it runs, and from its history."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.cli.page import page_line
from penstock.dashboard.history import DISK, Bounds, HistoryFile
from penstock.elastic.decisions import Decision, Recorded
from penstock.elastic.thread_level import ThreadLevel, ThreadStatistics

from ..patience import PATIENCE
from .support import spawn, write

TICKING = """
    import numpy as np
    import pyarrow as pa
    import penstock as ps

    def ticks(start, stop):
        return pa.table({"n": np.arange(start, stop)})

    flow = ps.Flow("ticking")
    source = flow.source("in", ps.read.generate(ticks, schema={"n": int}, rows_per_second=1000))
    source.map(lambda row: row.n, name="take").sink("out", ps.write.callback(lambda rows, epoch: None))
"""
FINITE = """
    import penstock as ps

    flow = ps.Flow("finite")
    flow.source("in", ps.read.items([1, 2, 3])).map(lambda n: n, name="copy").sink("out", ps.write.console())
"""


@contextmanager
def started(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = spawn(directory, *arguments)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def address_in(lines: Iterator[str]) -> str:
    for line in lines:
        found = re.search(r"page at (http://\S+) ", f"{line.rstrip()} ")
        if found:
            return found[1]
    raise AssertionError("no address was printed")


def get(address: str, path: str) -> bytes:
    with urllib.request.urlopen(address + path, timeout=PATIENCE) as answer:
        body: bytes = answer.read()
        return body


def test_a_run_prints_its_page_and_leaves_a_history_that_is_shown_and_replayed(tmp_path, capsys):
    write(tmp_path, "ticking.py", TICKING)
    with started(tmp_path, "run", "ticking.py", "--engine", "threads", "--page", "0") as process:
        assert process.stderr is not None
        address = address_in(process.stderr)
        assert address.startswith("http://127.0.0.1:")
        while json.loads(get(address, "api/page"))["sample"]["totals"]["epochs"] < 2:
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    history = tmp_path / ".penstock" / "ticking"
    with started(tmp_path, "page", str(history), "--page", "0") as process:
        assert process.stdout is not None
        address = address_in(process.stdout)
        page = json.loads(get(address, "api/page"))
        assert page["live"] is False
        assert page["sample"]["state"] == "stopped"
        assert page["sample"]["totals"]["rows_in"] > 0
        assert b"penstock_rows_in_total" in get(address, "metrics")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert main(["replay", str(history)]) == 0
    assert "the same:" in capsys.readouterr().out


def test_no_page_means_none(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, "finite.py", FINITE)
    assert main(["run", str(file), "--engine", "threads", "--no-page", "--history", "kept"]) == 0
    assert "page at" not in capsys.readouterr().err
    assert (tmp_path / "kept" / "history.sqlite").exists()


def test_a_page_at_another_port_says_why_and_the_address_can_be_copied():
    assert page_line("http://127.0.0.1:4147/", True) == "page at http://127.0.0.1:4147/"
    assert page_line("http://[::1]:5001/", None) == "port 4147 is taken; page at http://[::1]:5001/"
    assert page_line("http://127.0.0.1:5001/", 5001) == "page at http://127.0.0.1:5001/"


def make_history(directory: Path, limits: Bounds = DISK) -> list[tuple[float, Decision]]:
    pilot, line = Recorded.begin("threads", ThreadLevel(high=8, initial=1), time=0.0)
    lines = [line]
    for step in range(12):
        pilot, _, more = pilot.step(ThreadStatistics(1000.0 * (step + 1), 0.3, 0), time=float(step))
        lines += more
    writer = HistoryFile(str(directory), limits)
    writer.describe({"flow": "f", "engine": "threads", "started": 0.0, "graph": {"nodes": [], "edges": []}})
    decided = [(float(number), each) for number, each in enumerate(lines)]
    writer.decide(decided)
    return decided


def test_replay_tells_a_decision_that_comes_out_otherwise(tmp_path, capsys):
    changes = [each for _, each in make_history(tmp_path) if each.what == "thread_level"]
    assert len(changes) >= 2
    assert main(["replay", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "steps": 12,
        "decisions": len(changes),
        "differences": [],
        "dropped": 0,
        "skipped": 0,
        "older": [],
    }
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as log, log:
        log.execute(
            """UPDATE decisions SET line = replace(line, '"to": 2,', '"to": 5,') WHERE line LIKE '%"to": 2,%'"""
        )
    assert main(["replay", str(tmp_path)]) == 1
    assert "came out otherwise" in capsys.readouterr().out


def test_replay_tells_what_of_a_long_log_is_gone(tmp_path, capsys):
    for _ in range(6):
        made = make_history(tmp_path, Bounds(decision_bytes=20_000))
    assert main(["replay", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 2 * 12 <= found["steps"] < 6 * 12  # the last runs'
    assert found["dropped"] > 0
    assert 0 < found["skipped"] < len(made)
    assert main(["replay", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"not replayed: {found['dropped']} lines, the oldest, dropped because the log grew too long" in said
    lines = "line" if found["skipped"] == 1 else "lines"
    assert f"not replayed: {found['skipped']} {lines} whose controller's start" in said
    assert f"the same: {found['steps']} steps" in said


@pytest.mark.parametrize("command", ["page", "replay"])
def test_a_directory_that_is_no_runs_is_refused(tmp_path, capsys, command):
    assert main([command, str(tmp_path)]) == 1
    assert "has no history of a run" in capsys.readouterr().err


def test_a_page_elsewhere_prints_an_address_with_its_token(tmp_path):
    write(tmp_path, "ticking.py", TICKING)
    arguments = ("--engine", "threads", "--page", "0", "--page-host", "0.0.0.0", "--page-token", "secret")
    with started(tmp_path, "run", "ticking.py", *arguments) as process:
        assert process.stderr is not None
        address = address_in(process.stderr)
        assert address.endswith("/?token=secret")
        assert address.startswith("http://0.0.0.0:")
