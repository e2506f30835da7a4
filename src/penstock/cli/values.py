"""Read the values of options; what cannot be read says what to give."""

from __future__ import annotations

import argparse

from penstock.cli import UsageError
from penstock.errors import FlowError
from penstock.lab import LEVELS
from penstock.timing import seconds


def positive(text: str, wanted: str = "a whole number, at least 1") -> int:
    """Read a number of things."""
    try:
        number = int(text.replace("_", ""))
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give {wanted}")
    return number


def threads(text: str) -> int | str:
    """Read a number of threads, or how it is found."""
    names = ("utilization", *LEVELS)
    return text if text in names else positive(text, f"a whole number, at least 1, or {' or '.join(names)}")


def replicas(text: str) -> int | str | dict[str, int]:
    """Read a number of replicas: for all operators, for some by name, or how it is found."""
    wanted = "a whole number, auto, or numbers by operator, such as lookup=4,totals=2"
    if text == "auto":
        return text
    if "=" not in text:
        return positive(text, wanted)
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.rpartition("=")
        if not name or name in found:
            raise argparse.ArgumentTypeError(f"{text!r}: give {wanted}")
        found[name] = positive(number, wanted)
    return found


def duration(text: str, option: str) -> float:
    """Read a time in seconds."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return seconds(text, option)
    except FlowError:
        raise UsageError(f'{option} {text!r} is no duration; give seconds, or for example "500 ms"') from None
