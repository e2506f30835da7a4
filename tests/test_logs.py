"""Logs for machines: every line is JSON, with what the record has beside its message."""

from __future__ import annotations

import io
import json
import logging

import penstock as ps
from penstock.cli import main
from penstock.logs import JsonFormatter

from .cli.support import NUMBERS, write


def test_a_line_per_record_with_its_fields():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("penstock")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        ps.run(ps.Flow("shop").source("in", [1, 2, 3]).sink("out"), on=ps.Threads())
        try:
            raise ValueError("two\nlines")
        except ValueError:
            logging.getLogger("penstock.store").warning("it %s", "failed", exc_info=True)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    *epochs, failed = map(json.loads, out.getvalue().splitlines())
    assert {line["event"] for line in epochs} == {"epoch"}
    assert sum(line["rows_in"] for line in epochs) == 3
    assert sum(line["rows_out"]["out"] for line in epochs) == 3
    assert (failed["level"], failed["logger"], failed["message"]) == ("warning", "penstock.store", "it failed")
    assert "ValueError: two" in failed["error"]
    assert failed["time"].endswith("+00:00")


def test_what_loggers_warn_of_is_a_line_of_the_command_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, "with_warnings.py", NUMBERS.replace("return n * 2", "warn(); return n * 2") + WARN)
    assert main(["run", str(file), "--engine", "threads", "--no-page", "--log", "json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    warned = [line for line in lines if line["event"] == "log"]
    assert [(line["level"], line["logger"], line["message"]) for line in warned] == [
        ("warning", "penstock.here", "warning: look")
    ] * 3
    assert main(["run", str(file), "--engine", "threads", "--no-page"]) == 0
    assert capsys.readouterr().err.count(" warning: look\n") == 3
    assert logging.getLogger("penstock").handlers == []


WARN = """
    def warn():
        import logging

        logging.getLogger("penstock.here").warning("look")
"""
