"""`penstock sim`: what would be on another machine."""

import json

import pytest

from penstock.cli import main

from .support import write

FLOW = """
    import penstock as ps

    flow = ps.Flow("whatif")
    rows = flow.source("in", [{"k": 1}])
    rows.map(lambda row: row, name="slow").filter(lambda row: True, name="few").key_by("k").scan(
        lambda s, r: (s, r), 0, name="sums"
    ).sink("out")
"""


def simulated(capsys, *arguments):
    assert main(["sim", *arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_more_workers_help_until_there_is_nothing_left_to_share(capsys):
    rows = simulated(capsys, "threads", "--operators", "4", "--cost", "50", "--cores", "8", "--periods", "30")
    rate = {row["workers"]: row["operator rows/s"] for row in rows}
    assert rate["4"] > 3 * rate["1"]
    assert rate["8"] < 1.2 * rate["4"]  # four operators with state admit four workers
    assert rows[-1]["workers"].startswith("elastic")
    assert rows[-1]["of the best"] > 0.9


def test_a_flow_of_a_file(capsys, tmp_path):
    file = str(write(tmp_path, "whatif_flow.py", FLOW))
    arguments = ["threads", file, "--cores", "4", "--periods", "10", "--rows", "8"]
    even = simulated(capsys, *arguments, "--cost", "10")
    uneven = simulated(capsys, *arguments, "--cost", "10", "--costs", "slow=1000", "--selectivities", "few=0.1")
    assert uneven[0]["operator rows/s"] < even[0]["operator rows/s"] / 5


@pytest.mark.parametrize("shape", ["data-parallel", "mixed", "tree", "reverse-tree"])
def test_every_shape(capsys, shape):
    rows = simulated(
        capsys, "threads", "--shape", shape, "--operators", "6", "--cores", "2", "--periods", "2", "--rows", "4"
    )
    assert all(row["operator rows/s"] > 0 for row in rows)


def test_a_cluster_by_four_approaches(capsys):
    options = ["--nodes", "2", "--cores", "2", "--rate", "2000", "--seconds", "3", "--shards", "64", "--keys", "200"]
    rows = simulated(capsys, "cluster", *options)
    assert [row["approach"] for row in rows] == [
        "static",
        "resource_centric",
        "naive_executor_centric",
        "executor_centric",
    ]
    assert all(0 < row["of offered"] <= 1.1 for row in rows)
    assert main(["sim", "cluster", *options]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[:2] == ["approach", "rows/s"]


def test_what_cannot_be_simulated(capsys, tmp_path):
    file = str(write(tmp_path, "whatif_wrong.py", FLOW))
    assert main(["sim", "threads", file, "--costs", "none=1"]) == 2
    assert "no operator 'none'" in capsys.readouterr().err
    assert main(["sim", "threads", "--cores", "2", "--machine", "xeon-176"]) == 2
    for wrong in (["threads", "--cores", "0"], ["threads", "--costs", "map"], ["cluster", "--rate", "-1"], []):
        with pytest.raises(SystemExit) as stopped:
            main(["sim", *wrong])
        assert stopped.value.code == 2
