"""Look at this machine, and at a run's checkpoint, and say what is wrong and how to fix it.

    penstock doctor                             Python, Java, PySpark, PyArrow, pandas, memory, temporary space
    penstock doctor --checkpoint state/first    and whether what that run keeps is whole

Nothing is changed and no Spark is started. The exit code is 1 if something is broken, 0 otherwise; a warning is
something that works now and may not for long.
"""

from __future__ import annotations

import argparse

from penstock.cli import DONE, FAILED
from penstock.cli.displays import show
from penstock.cli.health import Finding, examine_checkpoint, examine_machine

HELP = "check this machine, or a checkpoint, and say how to fix it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", metavar="DIR", help="look at what a run keeps, too")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(args: argparse.Namespace) -> int:
    findings = examine_machine()
    if args.checkpoint is not None:
        findings += examine_checkpoint(args.checkpoint.rstrip("/") or "/")
    if args.json:
        show([finding.__dict__ for finding in findings], True)
    else:
        print("\n".join(line for finding in findings for line in _lines(finding)))
    return FAILED if any(finding.state == "broken" for finding in findings) else DONE


def _lines(finding: Finding) -> list[str]:
    lines = [f"{finding.state:8}{finding.what:16}{finding.found}"]
    if finding.state != "ok":
        lines += [f"{'':24}{line}" for line in finding.fix.splitlines()]
    return lines
