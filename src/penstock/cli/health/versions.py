"""Compare the versions of installed packages with the ranges that Penstock was tested with."""

from __future__ import annotations

import re
from importlib import metadata

_PART = re.compile(r"(>=|<|==|!=|<=|>)\s*([0-9][0-9.]*)")


def installed(package: str) -> str | None:
    """Return the version of an installed package; None where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def known_range(package: str) -> str:
    """Return the range of versions in Penstock's own metadata, "" where it has none or is not installed."""
    try:
        wanted = metadata.requires("penstock") or []
    except metadata.PackageNotFoundError:
        return ""
    for line in wanted:
        requirement = line.partition(";")[0]
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if name is not None and name[0].lower() == package:
            return ",".join("".join(part) for part in _PART.findall(requirement))
    return ""


def fits(version: str, range_: str) -> bool:
    """Tell whether a version is in a range such as ">=4.3,<4.4"; pre-releases count as their release."""
    mine = _numbers(version)
    for sign, text in _PART.findall(range_):
        other = _numbers(text)
        width = max(len(mine), len(other))
        a, b = _padded(mine, width), _padded(other, width)
        held = {">=": a >= b, "<": a < b, "==": a == b, "!=": a != b, "<=": a <= b, ">": a > b}[sign]
        if not held:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _padded(numbers: tuple[int, ...], width: int) -> tuple[int, ...]:
    return numbers + (0,) * (width - len(numbers))
