"""`penstock state`: what a checkpoint keeps, for people and for machines."""

import json

import pytest

import penstock as ps
from penstock.cli import main
from penstock.options import Options
from penstock.plan.plan import make_plan
from penstock.spark.engine import SparkEngine

from ..conformance.inline import InlineBackend


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("state") / "kept")
    rows = [{"k": i % 30, "v": i} for i in range(90)]
    flow = ps.Flow("sums").source("in", ps.read.items(rows)).key_by("k").reduce(add, name="sums").sink("out")
    SparkEngine(make_plan(flow), InlineBackend(2, 0), Options(on=ps.Spark(epoch_rows=30), checkpoint=path)).run()
    return path


def add(total, row):
    return total.replace(v=total.v + row.v)


class TestState:
    def test_lists_the_operators(self, checkpoint, capsys):
        assert main(["state", checkpoint + "/"]) == 0
        head, line = capsys.readouterr().out.splitlines()
        assert head.split() == ["operator", "keys", "bytes", "shards", "epoch"]
        assert line.split()[:2] == ["sums", "30"]

    def test_shows_some_keys(self, checkpoint, capsys):
        assert main(["state", checkpoint, "sums", "--limit", "3"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == ["key", "0", "1", "2", "..."]
        assert lines[-1] == "... 27 more; --limit 0 shows all"

    def test_json(self, checkpoint, capsys):
        assert main(["state", checkpoint, "sums", "--json", "--limit", "0"]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len(found) == 30
        assert found[1] == {"key": 1, "value": {"k": 1, "v": 1 + 31 + 61}}

    def test_what_is_not_there(self, checkpoint, tmp_path, capsys):
        assert main(["state", checkpoint, "other"]) == 1
        assert "no stateful operator 'other'" in capsys.readouterr().err
        assert main(["state", str(tmp_path)]) == 1
        assert "is no checkpoint" in capsys.readouterr().err

    def test_sizes_of_shards(self, checkpoint, capsys):
        assert main(["state", checkpoint, "sums", "--shards", "--json", "--limit", "0"]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sum(row["keys"] for row in found) == 30
        assert [row["bytes"] for row in found] == sorted((row["bytes"] for row in found), reverse=True)
        assert main(["state", checkpoint, "--shards"]) == 2

    def test_epochs(self, checkpoint, capsys):
        assert main(["state", checkpoint, "--epochs", "--json"]) == 0
        found = [json.loads(line)["epoch"] for line in capsys.readouterr().out.splitlines()]
        assert found[:3] == [1, 2, 3]
        assert main(["state", checkpoint + "-none", "--epochs"]) == 1
        assert "is no checkpoint" in capsys.readouterr().err

    def test_two_epochs_compared(self, checkpoint, capsys):
        assert main(["state", checkpoint, "sums", "--compare", "1", "--epoch", "3", "--json", "--limit", "0"]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len(found) == 30
        assert found[1] == {"key": 1, "change": "changed", "before": [1, 1], "after": [1, 1 + 31 + 61]}
        assert main(["state", checkpoint, "sums", "--compare", "3", "--epoch", "3"]) == 0
        assert capsys.readouterr().out == "no change\n"
        assert main(["state", checkpoint, "--compare", "1"]) == 0
        head, line = capsys.readouterr().out.splitlines()
        assert head.split() == ["operator", "keys", "before", "keys", "after", "grown"]
        assert line.split()[:3] == ["sums", "30", "30"]
        assert main(["state", checkpoint, "--compare", "77"]) == 1
        assert "epoch 77 is not kept" in capsys.readouterr().err


def test_tuples_are_shown_as_tuples(tmp_path, capsys):
    rows = [{"k": k, "v": v} for k, v in ((1, 2.5), (2, 3.5), (1, 4.0))]
    path = str(tmp_path / "kept")
    flow = ps.Flow("pairs").source("in", ps.read.items(rows)).key_by("k").scan(last_two, (), name="pairs").sink("out")
    SparkEngine(make_plan(flow), InlineBackend(1, 0), Options(on=ps.Spark(), checkpoint=path, end=False)).run()
    assert main(["state", path, "pairs"]) == 0
    assert [line.split(None, 1)[1] for line in capsys.readouterr().out.splitlines()] == [
        "value",
        "(4.0, ('then', 2.5))",
        "(3.5,)",
    ]


def last_two(state, row):
    return ((row.v, ("then", state[0])) if state else (row.v,)), row


def test_keys_come_and_go(tmp_path):
    rows = [{"k": k} for k in (1, 2, 1)]
    path = str(tmp_path / "kept")
    flow = ps.Flow("seen").source("in", ps.read.items(rows)).key_by("k").scan(once, None, name="seen").sink("out")
    SparkEngine(
        make_plan(flow), InlineBackend(1, 0), Options(on=ps.Spark(epoch_rows=1), checkpoint=path, end=False)
    ).run()
    found = ps.state.compare(path, "seen", 1, 3)
    assert [(change.key, change.change) for change in found] == [(1, "removed"), (2, "added")]


def once(state, row):
    return (None if state else 1), row
