"""`penstock run NAME -o ...` runs each workload and writes what it says."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.cli import main
from penstock.workloads.system_log import write_log

RUNS = {
    "stock-exchange": (["orders=2_000", "stocks=20"], {"trades", "candles", "composite_index", "spread", "top_movers"}),
    "mobile-fraud": (["calls=60_000", "phones=2_000"], {"cases", "counts"}),
    "failed-logins": (["lines=2000", "year=2026"], {"failures", "suspects"}),
}


def run(name: str, options: list[str]) -> int:
    return main(["run", name, "--engine", "threads", *(part for option in options for part in ("-o", option))])


@pytest.mark.parametrize("name", RUNS)
def test_results_are_written(name: str, tmp_path: Path):
    options, sinks = RUNS[name]
    assert run(name, [*options, f"out={tmp_path}"]) == 0
    for sink in sinks:
        assert rows_in(tmp_path / sink) > 0


def rows_in(directory: Path) -> int:
    return sum(pq.read_metadata(part).num_rows for part in directory.rglob("*.parquet"))


def test_without_a_directory_some_are_printed(capsys: pytest.CaptureFixture[str]):
    assert run("failed-logins", ["lines=500", "year=2026"]) == 0
    assert "rhost='218.188." in capsys.readouterr().out


def test_logs_of_ones_own(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    write_log(tmp_path / "logs" / "messages", 400)
    assert run("failed-logins", [f"logs={tmp_path / 'logs'}", f"out={tmp_path / 'out'}"]) == 0
    assert rows_in(tmp_path / "out" / "failures") > 0


def test_an_option_that_is_none(capsys: pytest.CaptureFixture[str]):
    assert run("stock-exchange", ["shares=3"]) != 0
    assert "no option 'shares'; it has orders, stocks" in capsys.readouterr().err
