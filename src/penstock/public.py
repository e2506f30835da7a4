"""What `dir()` shows of a module that users call by its name: the functions that are for them, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import FunctionType
from typing import Any


def makers(module: Mapping[str, Any], kinds: str) -> list[str]:
    """Return the functions of a module whose annotation says that they return one of these, as in "Files|Items"."""
    found = [name for name, value in module.items() if isinstance(value, FunctionType) and not name.startswith("_")]
    own = [name for name in found if module[name].__module__ == module["__name__"]]
    return sorted(
        name for name in own if re.match(rf"(?:{kinds})\b", str(module[name].__annotations__.get("return", "")))
    )
