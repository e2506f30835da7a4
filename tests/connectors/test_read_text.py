"""Lines of text as a source."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import SourceError

from ..how import how


def lines_of(path: Path, engine: str = "sequential") -> list[str]:
    flow = ps.Flow("text")
    flow.source("lines", ps.read.text(str(path))).map(lambda row: row.value, schema=str).sink("out")
    return ps.run(flow, **how(engine)).results["out"]


@pytest.mark.parametrize("engine", ["sequential", "threads"])
def test_files_in_order_line_by_line(tmp_path, engine):
    for number, text in enumerate([b"one\n\ntwo\n", b'three,"quoted\r\nfour\r\n', b"five"]):
        (tmp_path / f"{9 - number}.log").write_bytes(text)
        os.utime(tmp_path / f"{9 - number}.log", ns=(number * 10**9, number * 10**9))
    assert lines_of(tmp_path, engine) == ["one", "", "two", 'three,"quoted', "four", "five"]


def test_a_line_longer_than_what_is_read_at_once(tmp_path):
    long = "x" * 9_000_000
    (tmp_path / "a").write_text(f"before\n{long}\nbehind\n")
    assert lines_of(tmp_path) == ["before", long, "behind"]


def test_bytes_that_are_no_text_are_replaced(tmp_path):
    (tmp_path / "a").write_bytes(b"caf\xc3\xa9\n\xff\xfe\n")
    assert lines_of(tmp_path) == ["café", "\ufffd\ufffd"]


def test_a_missing_file(tmp_path):
    with pytest.raises(SourceError, match="there is no"):
        lines_of(tmp_path / "none")


def test_a_file_that_is_named_is_read_wherever_it_is(tmp_path):
    hidden = tmp_path / ".data" / "_in"
    hidden.mkdir(parents=True)
    (hidden / "a.log").write_text("one")
    (hidden / ".not yet").write_text("two")
    assert lines_of(hidden / "a.log") == ["one"]
    assert lines_of(hidden) == ["one"]
    assert lines_of(hidden / ".." / ".." / ".data" / "_in" / "a.log") == ["one"]
