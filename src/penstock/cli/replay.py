"""Decide again: feed a run's logged statistics to the controllers, and tell whether every decision comes out the same.

RUN_DIR is the run's checkpoint, the directory of one run, or that of the flow's runs (.penstock/<flow name>), of which
the newest is taken. Exits with 0 where all decisions are the same, and with 1 where one differs: another version of
Penstock decides otherwise, or a log was changed. A log that grew too long has lost its oldest lines: what is left is
replayed, and what is not is told, with --json as `dropped` (lines that are gone) and `skipped` (lines that are there,
but whose controller has no start line before them, or lacks steps since). Controllers whose rules have changed since
the log was written cannot decide it again: they are left out and named (`older`).
"""

from __future__ import annotations

import argparse
import json

from penstock.cli import DONE, FAILED
from penstock.cli.displays import count
from penstock.elastic.base import Actions
from penstock.elastic.decisions import replay
from penstock.errors import PenstockError

HELP = "decide again from a run's log, and compare"
SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", metavar="RUN_DIR", help="the run's checkpoint or history, or .penstock/<flow name>"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(args: argparse.Namespace) -> int:
    import penstock.lab  # noqa: F401  its controllers may have decided, too
    from penstock.dashboard.history import read_history, replayable

    history = read_history(args.directory)
    decisions = history.decisions()
    whole = replayable(decisions)
    try:
        result = replay(whole)
    except (ValueError, TypeError, KeyError) as error:
        raise PenstockError(f"the decisions of {args.directory} cannot be replayed: {error}") from None
    skipped = len(decisions) - len(whole)
    if args.json:
        summary = {
            "steps": result.steps,
            "decisions": result.actions,
            "differences": [{"controller": each.controller, "step": each.step} for each in result.differences],
            "dropped": history.dropped,
            "skipped": skipped,
            "older": list(result.older),
        }
        print(json.dumps(summary))
        return DONE if result.same else FAILED
    if history.dropped:
        print(f"not replayed: {count(history.dropped, 'line')}, the oldest, dropped because the log grew too long")
    if skipped:
        print(f"not replayed: {count(skipped, 'line')} whose controller's start or earlier steps are not in the log")
    if result.older:
        print(f"not replayed: {', '.join(result.older)}: decided by other rules when the log was written")
    total = f"{count(result.steps, 'step')}, {count(result.actions, 'decision')}"
    if result.same:
        print(f"the same: {total}, each decided again as it was")
        return DONE
    print(f"{count(len(result.differences), 'step')} of {total} came out otherwise:")
    for each in result.differences[:SHOWN]:
        print(f"  {each.controller}, step {each.step}: {_show(each.logged)} then, {_show(each.replayed)} now")
    return FAILED


def _show(actions: Actions) -> str:
    changes = [f"{each.what} {each.target}".strip() + f" {each.before} -> {each.after}" for each in actions]
    return "; ".join(changes) or "nothing"
