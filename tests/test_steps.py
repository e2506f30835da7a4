"""What a run says of itself until its first epoch is out."""

from __future__ import annotations

import io
import logging

import pytest

import penstock as ps
from penstock.steps import Showing, log, show_on, step


class Terminal(io.StringIO):
    """Say that it is a terminal."""

    def isatty(self) -> bool:
        return True


def numbers() -> ps.Flow:
    flow = ps.Flow("numbers")
    return flow.source("in", ps.read.items([1, 2, 3])).map(lambda n: n + 1).sink("out")


@pytest.mark.parametrize(
    ("kind", "wanted", "shown"),
    [(Terminal, None, True), (Terminal, False, False), (io.StringIO, None, False), (io.StringIO, True, True)],
)
def test_steps_are_for_terminals_unless_asked_for(kind, wanted, shown):
    err = kind()
    showing = show_on(err, "shop", wanted)
    assert (showing is not None) is shown
    step("starting Spark")
    if showing is not None:
        showing.end("running")
        step("nobody hears this")
        assert [line.partition(" s: ")[2] for line in err.getvalue().splitlines()] == ["starting Spark", "running"]
        assert err.getvalue().startswith("penstock: flow 'shop', 0")
    else:
        assert err.getvalue() == ""


def test_the_logger_is_left_as_it_was():
    before = log.level
    first, second = Showing(lambda text, seconds: None), Showing(lambda text, seconds: None)
    assert log.isEnabledFor(logging.INFO)
    first.close()
    first.close()
    assert log.isEnabledFor(logging.INFO)
    second.close()
    assert (log.level, log.handlers) == (before, [])


def test_who_configures_logging_has_the_steps(caplog):
    with caplog.at_level(logging.INFO, "penstock"):
        step("starting Spark", master="local")
    (record,) = caplog.records
    assert (record.name, record.getMessage(), record.event, record.master) == (
        "penstock.steps",
        "starting Spark",
        "step",
        "local",
    )


def test_a_run_says_when_it_runs_and_is_quiet_when_not_wanted(capsys):
    ps.run(numbers(), on=ps.Threads(), progress=True)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("penstock: flow 'numbers', ")
    assert "running; the first epoch had " in line
    for progress in (None, False):
        ps.run(numbers(), on=ps.Threads(), progress=progress)
    assert capsys.readouterr().err == ""
    assert log.handlers == []


def test_a_run_that_is_refused_leaves_no_handler(capsys):
    flow = ps.Flow("refused")
    flow.source("in", [1]).map(lambda n: n / 0).sink("out")
    with pytest.raises(ps.OperatorError):
        ps.run(flow, on=ps.Threads(), progress=True)
    assert log.handlers == []


@pytest.mark.spark
def test_on_spark_each_step_is_told(spark, capsys, tmp_path):
    ps.run(numbers(), on=ps.Spark(spark), checkpoint=str(tmp_path / "kept"), progress=True)
    told = [line.partition(" s: ")[2] for line in capsys.readouterr().err.splitlines()]
    assert told[0] == "opening the checkpoint"
    assert "its Python workers start" in told[-2]
    assert told[-1].startswith("running; the first epoch had 3 rows")
