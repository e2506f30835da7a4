"""Workers with a Python that cannot run the flow are found before the first epoch, and told of in a few lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.spark.session import MARK, find_problem

SOURCES = Path(ps.__file__).parents[1]
PROGRAM = """
import sys
import penstock as ps
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
flow = ps.Flow("f")
flow.source("in", [1, 2, 3]).map(lambda n: n + 1).sink("out")
print("begin", file=sys.stderr, flush=True)
try:
    try:
        ps.run(flow, on=ps.Spark(spark))
    except ps.PenstockError:
        pass  # and once more, as in a notebook
    print(ps.run(flow, on=ps.Spark(spark)).results["out"])
finally:
    print("end", file=sys.stderr, flush=True)
"""


def run(tmp_path: Path, python: str) -> tuple[int, str, list[str]]:
    """Run the program with a `python3` on the path that is not the driver's; return its output and what it logs."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(python)
    (tmp_path / "bin" / "python3").chmod(0o755)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    environment |= {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(SOURCES),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    said = done.stderr.partition("begin")[2].rpartition("end")
    return done.returncode, done.stdout, [*said[0].splitlines(), *said[2].splitlines()]


@pytest.mark.spark
def test_a_python_without_arrow_is_refused_in_a_few_lines(tmp_path):
    code, _, lines = run(tmp_path, f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    text = "\n".join(lines)
    assert code == 1
    assert "the workers' Python" in text
    assert "cannot import numpy" in text
    assert f"Set PYSPARK_PYTHON={sys.executable}" in text
    assert len([line for line in lines if line.strip()]) < 20
    assert "org.apache.spark" not in text


@pytest.mark.spark
def test_another_path_to_a_good_python_runs(tmp_path):
    """A wrapper is not the driver's own Python, so it is asked; and it is as good."""
    code, out, lines = run(tmp_path, f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    assert code == 0, "\n".join(lines)[-2000:]
    assert out.strip() == "[2, 3, 4]"


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f'{MARK}[[3, 8], "/usr/bin/python3", []]', "the workers' Python is 3.8 (/usr/bin/python3)"),
        (f'{MARK}[[2, 7], null, ["numpy (No module named numpy)"]]', "the workers' Python is 2.7 (python3)"),
        (
            f'{MARK}[[{sys.version_info[0]}, {sys.version_info[1]}], "/p", ["numpy (gone)"]]',
            "(/p) cannot import numpy (gone)",
        ),
        ("sh: 1: python3: not found", "cannot start their Python, 'python3': sh: 1: python3: not found"),
    ],
)
def test_what_is_wrong_is_said_in_three_lines_with_what_to_set(line, words):
    problem = find_problem([line, ""], "python3")
    assert problem is not None
    assert words in problem
    assert len(problem.splitlines()) == 3
    assert f"PYSPARK_PYTHON={sys.executable}" in problem


def test_a_python_of_the_same_version_with_all_imports_is_good():
    line = f'{MARK}[[{sys.version_info[0]}, {sys.version_info[1]}], "/opt/python", []]'
    assert find_problem(["a warning", line], "python3") is None


def test_a_session_of_spark_connect_is_refused_with_the_fix():
    connect = pytest.importorskip("pyspark.sql.connect.session")
    flow = ps.Flow("f")
    flow.source("in", [1]).sink("out")
    session = connect.SparkSession.__new__(connect.SparkSession)
    with pytest.raises(ps.PenstockError, match=r"(?s)Spark Connect.*builder\.master"):
        ps.start(flow, on=ps.Spark(session))
