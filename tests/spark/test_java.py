"""Java is asked for before anything is installed: `make test` may be the first command on a new machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / ".ci" / "check_java.py"


def checked(home: Path, version: str | None) -> subprocess.CompletedProcess[str]:
    """Run the check with a Java that says a version, by a Python that has its standard library and nothing else."""
    if version is not None:
        java = home / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
    bare = [sys.executable, "-I", "-S", str(CHECK)]
    return subprocess.run(bare, env={**os.environ, "JAVA_HOME": str(home)}, capture_output=True, text=True, check=False)


def test_a_java_that_is_new_enough_is_taken_without_a_word(tmp_path):
    done = checked(tmp_path, "17.0.15")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_old_one_is_named_with_the_way_to_a_new_one(tmp_path):
    done = checked(tmp_path, "1.8.0_402")
    assert done.returncode == 1
    assert 'found openjdk version "1.8.0_402"' in done.stderr
    assert "apt-get install openjdk-17-jre-headless" in done.stderr


def test_none_is_said_so(tmp_path):
    done = checked(tmp_path, None)
    assert done.returncode == 1
    assert f"found no {tmp_path}/bin/java" in done.stderr
