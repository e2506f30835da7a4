"""A file that runs its flow while it is loaded is refused, with the fix."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.cli import main
from penstock.errors import FlowError

from ..how import how

TEXT = "import penstock as ps\nflow = ps.Flow('x').source('in', [1]).sink('out')\nps.run(flow, on=ps.Sequential())\n"


def test_it_is_refused(tmp_path, capsys):
    file = tmp_path / "runs_itself.py"
    file.write_text(TEXT)
    assert main(["run", str(file), "--engine", "sequential"]) == 1
    assert 'under `if __name__ == "__main__":`' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "threads", "checkpoint": "x"}, "checkpoint= needs engine='spark'"),
        ({"engine": "threads", "epoch_rows": 5}, "epoch_rows= needs engine="),
        ({"engine": "sequential", "tasks": 2}, "tasks= needs engine='spark'"),
        ({"engine": "sequential", "threads": 2}, "threads=2 needs engine="),
    ],
)
def test_options_of_other_engines_are_refused(options, message):
    flow = ps.Flow("x")
    flow.source("in", ps.read.items([1])).sink("out")
    with pytest.raises(FlowError, match=message):
        ps.run(flow, **how(**options))
