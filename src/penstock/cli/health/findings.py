"""What an examination finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "broken"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: State
    found: str
    fix: str = ""
    """What to do about it; empty where nothing is to be done."""
