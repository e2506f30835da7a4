"""The site builds without a warning, and what the pages name is there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "penstock"
PAGES = sorted((ROOT / "docs").glob("*.md"))
_CODE = re.compile(r"`([a-z_]+(?:/[a-z_]+)+\.py)`")
_SYMBOL = re.compile(r"`([a-z_/]+\.py)`: (`[A-Za-z_][\w.]*(?<!\.py)`(?:, `[A-Za-z_][\w.]*(?<!\.py)`)*)")
MOST_FILES = 12
"""What a reader who follows a row may have to open."""


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


def in_package(name: str) -> Path:
    return PACKAGE / name if (PACKAGE / name).is_file() else ROOT / name


def defined(path: Path) -> set[str]:
    """Return what a file defines, methods with their class."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names |= {node.name, *(f"{node.name}.{each.name}" for each in node.body if hasattr(each, "name"))}
    return names


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_names_that_a_page_gives_with_their_file_are_there(page):
    for name, symbols in _SYMBOL.findall(page.read_text()):
        wanted = set(re.findall(r"`([\w.]+)`", symbols))
        assert wanted <= defined(in_package(name)), f"{page.name} names {wanted} of {name}"


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, wherever in it."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    return {f"{node.module}.{each.name}" for node in nodes for each in node.names} | {
        str(node.module) for node in nodes
    }


@pytest.mark.parametrize("engine", ["On Spark", "In one process"])
def test_a_reader_follows_a_row_from_the_front_door_to_the_sink(engine):
    """Each file is known to one before it, so that what calls it can be seen."""
    page = (ROOT / "docs" / "path-of-a-row.md").read_text()
    steps = re.findall(r"^\| \d+ \| `([\w/]+\.py)`", page.split(f"## {engine}\n")[1].split("\n## ")[0], re.MULTILINE)
    assert len(steps) == len(set(steps)) <= MOST_FILES
    assert steps[0] == "__init__.py"
    known = imported(PACKAGE / steps[0])
    for name in steps[1:]:
        assert "penstock." + name.removesuffix(".py").replace("/", ".") in known, name
        known |= imported(PACKAGE / name)
    assert "sink" in (PACKAGE / steps[-1]).read_text().splitlines()[0].lower()


def test_names_with_their_file_are_read():
    text = "`kernels/keyed.py`: `x`, `sequential.py`: `A.b`, `C`; `spark/task.py`"
    assert _SYMBOL.findall(text) == [("kernels/keyed.py", "`x`"), ("sequential.py", "`A.b`, `C`")]
