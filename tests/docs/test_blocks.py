"""Every Python block of the README and the documentation runs, in order, one page after the other."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PEERS = {"bytewax"}
"""What is shown beside Penstock and has no wheels for every Python."""
BROKER = "localhost:9092"
"""Where pages have their broker of Kafka; the tests' own has another port."""
DATA = "/data/"
"""Where pages have files that Spark reads, which does not stand where the blocks run."""
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in TEXTS if _BLOCK.search(page.read_text())]

OTHERS = {"sh", "mermaid", ""}
"""What else stands in blocks: commands, drawings, outputs. Python under another name would never run."""


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_block_is_python_that_never_runs(page: Path) -> None:
    fences = re.findall(r"^[ >]*(?:```|~~~)[ ]*([^\s`~]*)", page.read_text(), re.MULTILINE)
    assert set(fences) - {"python"} <= OTHERS


@pytest.mark.spark
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of(page: Path, spark: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    assert spark is not None  # the blocks' `ps.run(flow)` finds the suite's session
    text = page.read_text()
    if BROKER in text:
        text = text.replace(BROKER, request.getfixturevalue("kafka").address)
    text = text.replace(DATA, f"{tmp_path}/")
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        names: dict[str, Any] = {"__name__": "page"}
        for match in _BLOCK.finditer(text):
            line = text[: match.start(1)].count("\n")
            exec(compile("\n" * line + match[1], str(page), "exec", dont_inherit=True), names)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PEERS:
            raise
        pytest.skip(f"{page.name} is not checked: {error.name} is not installed")
    finally:
        os.chdir(before)
