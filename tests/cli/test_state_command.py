"""`penstock state`: what a checkpoint keeps, for people and for machines."""

import json

import pytest

import penstock as ps
from penstock.cli import main
from penstock.plan import make_plan
from penstock.spark.engine import Options, SparkEngine

from ..conformance.inline import InlineBackend


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("state") / "kept")
    rows = [{"k": i % 30, "v": i} for i in range(90)]
    flow = ps.Flow("sums").source("in", ps.read.items(rows)).key_by("k").reduce(add, name="sums").sink("out")
    SparkEngine(make_plan(flow), InlineBackend(2, 0), Options(path)).run()
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
