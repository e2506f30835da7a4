"""Show what a run keeps: the stateful operators of its checkpoint, or the state of one of them by key.

The checkpoint may be in use; what is shown is the last committed epoch, or the one given by --epoch.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from penstock.cli import DONE
from penstock.cli.progress import size

HELP = "show the state that a run keeps"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the directory of the run")
    parser.add_argument("operator", metavar="OPERATOR", nargs="?", help="the operator; without it all are listed")
    parser.add_argument("--epoch", type=int, metavar="N", help="a committed epoch (default: the last)")
    parser.add_argument(
        "--limit", type=int, metavar="N", default=20, help="the most keys to show; 0 for all (default: 20)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from penstock import state

    checkpoint = args.checkpoint.rstrip("/") or "/"
    if args.operator is None:
        found = state.operators(checkpoint, args.epoch)
        rows = [
            {"operator": o.operator, "keys": o.keys, "bytes": o.bytes, "shards": o.shards, "epoch": o.epoch}
            for o in found
        ]
        _show(rows, args.json, {"bytes": size})
        return DONE
    table = state.read(checkpoint, args.operator, args.epoch)
    shown = table if args.limit <= 0 else table.slice(0, args.limit)
    _show(shown.to_pylist(), args.json, {})
    left = table.num_rows - shown.num_rows
    if left and not args.json:
        print(f"... {left:,} more; --limit 0 shows all")
    return DONE


def _show(rows: list[dict[str, Any]], as_json: bool, formats: dict[str, Any]) -> None:
    """Print rows as aligned columns, or as JSON."""
    if as_json:
        for row in rows:
            print(json.dumps(row, default=str))
        return
    if not rows:
        print("no state")
        return
    names = list(rows[0])
    cells = [names, *([str(formats.get(name, str)(row[name])) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
