"""Make flags of options, and say refusals of options as flags."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from typing import Any

from penstock.annotated import Names, Option
from penstock.errors import FlowError
from penstock.lab import NAMES


def add_flags(parser: argparse._ActionsContainer, options: Iterable[Option]) -> None:
    """Add the flag of each option that has one; those that are not given do not appear among the arguments."""
    for option in options:
        names = NAMES.get(option.name, {})
        given: dict[str, Any] = {"dest": option.name, "default": argparse.SUPPRESS, "help": _help(option)}
        if option.kinds == (bool,):
            parser.add_argument(option.flag, action="store_const", const=not option.default, **given)
        elif option.about.flag:
            parser.add_argument(option.flag, type=_reader(option, names), metavar=option.metavar(names), **given)


def _help(option: Option) -> str:
    about = f"turn off: {option.about.help}" if option.default is True else option.about.help
    if option.default and option.default is not True:
        about += f" (default: {option.default})"
    return about.replace("%", "%%")


def _reader(option: Option, names: Names) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            value = option.parse(text, names)
            option.check(value)
        except (ValueError, FlowError):
            raise argparse.ArgumentTypeError(f"{text!r}: give {option.wanted(names)}") from None
        return value

    return read


def as_flags(message: str) -> str:
    """Write a refusal with flags instead of keywords."""
    engines = re.sub(r"on=ps\.(\w+)\([^)]*\)", lambda found: f"--engine {found[1].lower()}", message)
    return re.sub(
        r"""\b([a-z_]+)=(?:["']([^"']*)["']|(\w+))?""",
        lambda found: f"--{found[1].replace('_', '-')} {found[2] or found[3] or ''}".rstrip(),
        engines,
    )
