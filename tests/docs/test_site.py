"""The site builds without a warning, and what the pages name is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "penstock"
PAGES = sorted((ROOT / "docs").glob("*.md"))
_CODE = re.compile(r"`([a-z_]+(?:/[a-z_]+)+\.py)`")


def test_the_site_builds_strictly(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    first = (tmp_path / "site" / "first-flow" / "index.html").read_text()
    # One page a file, each in the navigation; and nothing is loaded from elsewhere.
    for page in PAGES:
        assert page.stem == "index" or f'href="../{page.stem}/"' in first or page.stem == "first-flow", page
    assert re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="https?://', first) == []
    # Programs read the list, and plain Markdown of every page that it names.
    listed = re.findall(r"^- \[.+\]\((.+)\)$", (tmp_path / "site" / "llms.txt").read_text(), re.MULTILINE)
    assert {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")} == set(listed)
    for name in listed:
        assert (tmp_path / "site" / name).read_text() == (ROOT / "docs" / name).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page):
    for name in _CODE.findall(page.read_text()):
        assert (PACKAGE / name).is_file() or (ROOT / name).is_file(), f"{page.name} names {name}"


def test_names_of_code_are_read():
    text = "`kernels/keyed.py`: `x`, `spark/task.py`, `flow.py`"
    assert _CODE.findall(text) == ["kernels/keyed.py", "spark/task.py"]
