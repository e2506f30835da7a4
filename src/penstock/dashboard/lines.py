"""Lines of JSON in a file that a crash may have cut short."""

from __future__ import annotations

import json
import os
from typing import Any

Json = dict[str, Any]


def parse(line: bytes) -> Json | None:
    """Return what a line holds; None where it was cut short."""
    try:
        found: Json = json.loads(line)
    except ValueError:
        return None
    return found


def end_line(path: str) -> None:
    """End a line that a crash cut short: what is added must not be lost with it."""
    if os.path.exists(path) and os.path.getsize(path):
        with open(path, "rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def count_lines(path: str) -> int:
    """Return how many lines a file has; none where there is no file."""
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as file:
        return sum(1 for _ in file)
