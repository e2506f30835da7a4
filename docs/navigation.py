"""Order the pages of the site: those that are named here first, each section's other pages after them, by name.

A page that is added appears without an entry here. MkDocs calls `on_config` before it builds, and `on_post_build`
after: then each page also stands as plain Markdown beside its HTML, and `llms.txt` lists them, for programs that read.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SECTIONS: dict[str, list[str]] = {
    "Begin": [
        "index.md",
        "first-flow.md",
        "operators.md",
        "calling-a-service.md",
        "testing.md",
        "options.md",
        "command-line.md",
    ],
    "Understand": ["how-it-works.md", "path-of-a-row.md", "guarantees.md", "elasticity.md", "page.md", "glossary.md"],
    "Run": [
        "running-on-spark.md",
        "kafka.md",
        "cluster.md",
        "deploying.md",
        "tuning.md",
        "performance.md",
        "security.md",
        "compatibility.md",
    ],
    "Coming from": ["from-structured-streaming.md", "from-bytewax.md", "from-flink.md"],
}
FOLDERS = {"workloads": "Workloads", "papers": "The papers", "decisions": "Decisions"}


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


def on_post_build(config: Any) -> None:
    """Put the Markdown of each page and the list of them into the site."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for section in navigation():
        for title, pages in section.items():
            lines += [f"## {title}", ""]
            for page in pages:
                (site / page).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(HERE / page, site / page)
                lines.append(f"- [{heading(page)}]({page})")
            lines.append("")
    (site / "llms.txt").write_text("\n".join(lines))


def heading(page: str) -> str:
    """Return the title of a page."""
    found = re.search(r"^# (.+)$", (HERE / page).read_text(), re.MULTILINE)
    assert found is not None, f"docs/{page} has no title: begin it with '# '"
    return found[1]
