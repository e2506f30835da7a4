"""Print rows: as aligned columns for people, as JSON lines for machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def show(
    rows: Sequence[Mapping[str, Any]],
    as_json: bool,
    formats: Mapping[str, Callable[[Any], str]] | None = None,
    empty: str = "nothing",
) -> None:
    """Print rows that have the same fields; `formats` writes some of them for people."""
    if as_json:
        for row in rows:
            print(json.dumps(row, default=str))
        return
    if not rows:
        print(empty)
        return
    names = list(rows[0])
    cells = [names, *([str((formats or {}).get(name, str)(row[name])) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
