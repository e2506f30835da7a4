"""What users write is typed: mypy takes a file of right code, and finds every mistake in a file of wrong code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def errors_in(*names: str) -> dict[str, dict[int, str]]:
    """Return for each file what mypy says of its lines, under the settings of the package."""
    files = [str(HERE / name) for name in names]
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    found: dict[str, dict[int, str]] = {name: {} for name in names}
    for file, line, message in re.findall(r"^(.*?):(\d+): error: (.*)$", done.stdout, re.MULTILINE):
        found[Path(file).name][int(line)] = message
    return found


def test_right_code_is_taken_and_each_mistake_is_found():
    found = errors_in("right.py", "right_rows.py", "wrong.py")
    assert found["right.py"] == found["right_rows.py"] == {}
    lines = (HERE / "wrong.py").read_text().splitlines()
    wanted = {number: line.split("# error: ")[1] for number, line in enumerate(lines, 1) if "# error: " in line}
    assert len(wanted) > 30
    assert {number: message[: len(wanted.get(number, ""))] for number, message in found["wrong.py"].items()} == wanted
