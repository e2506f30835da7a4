"""Run the side-by-side measurements, from a checkout of the repository; what follows goes to `python -m bench`.

    penstock bench                           list the benchmarks
    penstock bench w1_threads --help         the options of one
    penstock bench w1_threads --json         run it; the result is one JSON object, last

They are not part of the installed package: their peers and data would be a burden to everybody who never measures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from penstock.cli import UsageError

HELP = "run the benchmarks (from a checkout)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "arguments", metavar="NAME [options]", nargs=argparse.REMAINDER, help="a benchmark and its options"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command: in a process of its own, whose exit code is ours."""
    root = checkout()
    path = os.pathsep.join(filter(None, [str(root), str(root / "src"), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "bench", *args.arguments]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


def checkout() -> Path:
    """Find the repository: the one that this package is run from, or the one around the working directory."""
    package = Path(__file__).resolve().parents[3]
    for root in (package, Path.cwd(), *Path.cwd().parents):
        if (root / "bench" / "__main__.py").is_file() and (root / "src" / "penstock").is_dir():
            return root
    raise UsageError(
        "the benchmarks are in Penstock's repository, not in the installed package. Clone it, and there run\n"
        '  make env && make bench ARGS="w1_threads --json"\n'
        "or run this command from inside the clone, in an environment that has: pip install --editable '.[bench]'"
    )
