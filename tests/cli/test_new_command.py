"""`penstock new`: the project that it makes runs, and its test passes."""

import os
import subprocess
import sys
from pathlib import Path

import penstock
from penstock.cli import main

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}


def test_the_project_passes_its_tests_and_runs(tmp_path, capsys):
    project = tmp_path / "payments"
    assert main(["new", str(project)]) == 0
    assert "penstock run flow.py" in capsys.readouterr().out
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout + tests.stderr
    assert "3 passed" in tests.stdout
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "flow.py", "test_flow.py"],
        cwd=project,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for _ in range(2):  # it can be run again, and leaves nothing in the way of a run on Spark
        assert main(["run", str(project / "flow.py"), "--engine", "threads"]) == 0
        out = capsys.readouterr().out
        assert "user='cid', total=101.0" in out
        assert "payments=2, spent=110.0" in out
    assert not (project / "out").exists()


def test_nothing_is_overwritten_and_names_must_do(tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    assert main(["new", str(tmp_path / "full")]) == 2
    assert "not empty" in capsys.readouterr().err
    assert main(["new", str(tmp_path / "1$")]) == 2
    assert "makes no name" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["full"]
    (tmp_path / "empty").mkdir()
    assert main(["new", str(tmp_path / "empty")]) == 0
