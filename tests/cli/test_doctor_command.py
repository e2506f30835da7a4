"""`penstock doctor`: what is well, what is broken, and how to mend it."""

import json
import os
import sys
import threading

import pytest

import penstock as ps
from penstock.cli import doctor as machine
from penstock.cli import main
from penstock.cli.doctor import fits, installed, known_range
from penstock.options import Options
from penstock.plan.plan import make_plan
from penstock.spark.engine import SparkEngine
from penstock.store.lease import Lease
from penstock.store.objects import LocalStore

from ..conformance.inline import InlineBackend


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "kept"
    rows = [{"k": i % 5, "v": i} for i in range(20)]
    flow = ps.Flow("kept").source("in", ps.read.items(rows)).key_by("k").aggregate(n=ps.agg.count()).sink("out")
    SparkEngine(make_plan(flow), InlineBackend(1, 0), Options(on=ps.Spark(epoch_rows=10), checkpoint=str(path))).run()
    return path


def found(capsys, *arguments):
    code = main(["doctor", "--json", *arguments])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, {line["what"]: line for line in lines}


def test_a_machine_that_runs_these_tests_is_well(capsys):
    code, findings = found(capsys)
    assert code == 0, findings
    assert {"Python", "Java", "PySpark", "PyArrow", "pandas", "memory", "temporary space"} <= set(findings)
    assert main(["doctor"]) == 0
    assert "ok      Java" in capsys.readouterr().out


def test_no_java_is_broken_and_says_how_to_get_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, findings = found(capsys)
    assert code == 1
    assert findings["Java"]["state"] == "broken"
    assert "openjdk-17" in findings["Java"]["fix"]
    assert main(["doctor"]) == 1
    assert "apt-get install openjdk-17" in capsys.readouterr().out


def test_workers_of_another_python_are_broken(monkeypatch, tmp_path):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert machine.workers().state == "ok"
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python2"))
    assert machine.workers().state == "broken"
    assert "PYSPARK_PYTHON" in machine.workers().fix


def test_memory_and_space_are_judged(monkeypatch, tmp_path):
    assert [machine.memory(n).state for n in (10**8, 2 * 10**9, 10**11, None)] == ["broken", "warning", "ok", "ok"]
    assert machine.space("temporary space", str(tmp_path / "none")).state == "broken"
    monkeypatch.setattr(machine, "LEAST_SPACE", 10**18)
    assert machine.space("temporary space", str(tmp_path)).state == "broken"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    assert [finding.what for finding in machine.temporary()] == ["temporary space", "Spark's space"]


def test_versions():
    assert fits("4.3.0", ">=4.3,<4.4")
    assert not fits("4.4", ">=4.3,<4.4")
    assert not fits("4.2.9", ">=4.3,<4.4")
    assert fits("5.0.0.dev1", "")
    assert installed("no such package") is None
    assert known_range("no such package") == ""
    assert machine.package("None such", "none-such").state == "broken"
    assert machine.pandas("3.0.0", ">=2.2,<3").state == "warning"
    assert machine.pandas(None, "").state == "ok"


def test_a_whole_checkpoint(checkpoint, capsys):
    code, findings = found(capsys, "--checkpoint", f"{checkpoint}/")
    assert code == 0, findings
    assert "flow 'kept', last committed epoch" in findings["checkpoint"]["found"]
    assert findings["driver"]["found"] == "none: a run can begin"
    assert findings["state"]["found"].startswith("5 keys, ")


def test_a_damaged_state_file_is_found(checkpoint, capsys):
    for file in (checkpoint / "state").iterdir():
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    code, findings = found(capsys, "--checkpoint", str(checkpoint))
    assert code == 1
    assert "is damaged" in findings["state"]["found"]
    assert "restore" in findings["state"]["fix"]


def test_a_missing_state_file_is_found(checkpoint, capsys):
    for file in (checkpoint / "state").iterdir():
        file.unlink()
    code, findings = found(capsys, "--checkpoint", str(checkpoint))
    assert code == 1
    assert "is missing" in findings["state"]["found"]


def test_torn_manifests(checkpoint, capsys):
    epochs = sorted((checkpoint / "epochs").iterdir())
    epochs[-1].write_text("torn")
    code, findings = found(capsys, "--checkpoint", str(checkpoint))
    assert code == 0
    assert findings["epochs"]["state"] == "warning"
    assert f"goes on after epoch {len(epochs) - 1}" in findings["epochs"]["fix"]
    assert findings["epoch under way"]["found"].startswith(f"epoch {len(epochs)} was begun")
    for epoch in epochs:
        epoch.write_text("torn")
    assert found(capsys, "--checkpoint", str(checkpoint))[0] == 1


def test_what_is_no_checkpoint(tmp_path, capsys):
    assert found(capsys, "--checkpoint", str(tmp_path / "none"))[0] == 1
    code, findings = found(capsys, "--checkpoint", str(tmp_path))
    assert code == 1
    assert "this is no checkpoint" in findings["checkpoint"]["fix"]


def test_a_checkpoint_in_use_and_what_a_crash_left(checkpoint, capsys):
    (checkpoint / "state" / ".abc.tmp").write_text("")
    lease = Lease(LocalStore(str(checkpoint)))
    lease.acquire()
    try:
        code, findings = found(capsys, "--checkpoint", str(checkpoint))
    finally:
        lease.release()
    assert code == 0
    assert f"process {os.getpid()} on" in findings["driver"]["found"]
    assert findings["unfinished files"]["found"].startswith("1 file of a crash")
    assert not any(thread.name == "penstock-lease" for thread in threading.enumerate())
