"""`penstock run NAME -o ...` runs each workload and writes what it says."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.annotated import options_of
from penstock.cli import main
from penstock.lab.workloads.catalogue import WORKLOADS, find
from penstock.lab.workloads.system_log import write_log

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


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("stock-exchange", "shares=3", "no option 'shares'; it has orders, stocks"),
        ("stock-exchange", "stocks=0", "stocks=0; it must be 1 to 10,000"),
        ("stock-exchange", "rate=nan", "rate=nan; it must be 0 or more"),
        ("mobile-fraud", "calls=-5", "calls=-5; it must be 0 or more"),
        ("mobile-fraud", "area=1", "area=1; the calls are of 206, 212,"),
        ("tpcx-bb-q1", "scale=0", "scale=0.0; it must be more than 0"),
        ("traffic", "ticks=0", "ticks=0; it must be 1 or more"),
        ("synthetic-tree", "branches=0", "branches=0; it must be 1 or more"),
        ("synthetic-tree", "width=2", "no option 'width'; it has branches, depth, cost_us"),
        ("synthetic-tree", "kind=java", "kind='java'; there are numpy, python"),
        ("failed-logins", "lines=many", "option 'lines' of workload 'failed-logins' is of type int, and 'many' is not"),
        ("failed-logins", "logs=/no/such/log", "there is no file or directory /no/such/log"),
    ],
)
def test_options_that_cannot_be(name: str, option: str, message: str, capsys: pytest.CaptureFixture[str]):
    assert run(name, [option]) != 0
    assert message in capsys.readouterr().err


ANY = {"area", "item", "seed", "store"}
"""Numbers that name something."""


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_number_has_limits_and_a_default_within(name: str):
    for option in options_of(find(name)).values():
        assert option.kind in (int, float, str, bool)
        assert option.limits is not None or option.kind in (str, bool) or option.name in ANY, option.name
        option.check(option.default)
