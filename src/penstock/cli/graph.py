"""Draw the flow that a Python file defines, or a workload, without running it.

penstock graph first.py                      text: one line per operator
penstock graph first.py --format mermaid     for Markdown
penstock graph first.py --output first.svg   the format by the name of the file (.svg, .mmd, .txt)
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from penstock.cli import DONE, UsageError
from penstock.cli.loading import add_target, load_target
from penstock.flow import Flow
from penstock.flow.drawing import draw_mermaid, draw_svg, draw_text

HELP = "draw the flow of a Python file"
FORMATS: dict[str, Callable[[Flow], str]] = {"text": draw_text, "mermaid": draw_mermaid, "svg": draw_svg}
SUFFIXES = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "text"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--format", choices=tuple(FORMATS), help="default: by the name of --output, else text")
    parser.add_argument("--output", metavar="FILE", help="write to a file instead of the standard output")


def run(args: argparse.Namespace) -> int:
    suffix = Path(args.output).suffix if args.output else ".txt"
    name = args.format or SUFFIXES.get(suffix)
    if name is None:
        raise UsageError(f"{args.output} tells no format; name it {', '.join(SUFFIXES)}, or give --format")
    drawn = FORMATS[name](load_target(args.target, args.workload_options)) + "\n"
    if args.output is None:
        print(drawn, end="")
        return DONE
    try:
        Path(args.output).write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{args.output} cannot be written: {error.strerror}") from None
    return DONE
