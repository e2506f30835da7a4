"""Write flow files and run the command on them, in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import penstock

NUMBERS = """
    import penstock as ps

    def double(n: int) -> int:
        return n * 2

    flow = ps.Flow("numbers")
    flow.source("in", ps.read.items([1, 2, 3])).map(double).sink("out", ps.write.console())
"""


def write(directory: Path, name: str, text: str) -> Path:
    """Write a Python file."""
    path = directory / name
    path.write_text(textwrap.dedent(text))
    return path


def spawn(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command in a process of its own, whose standard error can be read line by line."""
    source = str(Path(penstock.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *arguments],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process: subprocess.Popen[str], text: str) -> list[str]:
    """Read the standard error until a line has the text; return the lines."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line.rstrip())
        if text in line:
            return lines
    raise AssertionError(f"the process ended without {text!r}: {lines}")
