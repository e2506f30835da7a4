"""Order the pages of the site: those that are named here first, each section's other pages behind them, by name.

A page that somebody adds appears without an entry here; MkDocs calls `on_config` when it builds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SECTIONS: dict[str, list[str]] = {
    "Begin": ["index.md", "first-flow.md", "operators.md", "testing.md", "command-line.md"],
    "Understand": ["how-it-works.md", "path-of-a-row.md", "guarantees.md", "elasticity.md", "page.md"],
    "Run": ["running-on-spark.md", "kafka.md", "cluster.md", "tuning.md"],
    "Coming from": ["from-structured-streaming.md", "from-bytewax.md", "from-flink.md"],
}
FOLDERS = {"workloads": "Workloads", "papers": "The papers"}


def on_config(config: Any) -> Any:
    """Give MkDocs its navigation."""
    config.nav = navigation()
    return config


def navigation() -> list[dict[str, Any]]:
    """Return the sections with the pages that are there."""
    named = {page for pages in SECTIONS.values() for page in pages}
    found = [page.name for page in sorted(HERE.glob("*.md"))]
    sections = {title: [page for page in pages if page in found] for title, pages in SECTIONS.items()}
    sections["Understand"] += [page for page in found if page not in named]
    for folder in sorted(path.name for path in HERE.iterdir() if path.is_dir() and any(path.glob("**/*.md"))):
        pages = sorted(page.relative_to(HERE).as_posix() for page in (HERE / folder).glob("**/*.md"))
        # A folder's own page comes first.
        pages.sort(key=lambda page: not page.endswith(("README.md", "index.md")))
        sections[FOLDERS.get(folder, folder.replace("-", " ").capitalize())] = pages
    return [{title: list(pages)} for title, pages in sections.items() if pages]
