"""Show what a run keeps: the stateful operators of its checkpoint, or the state of one of them by key.

    penstock state CHECKPOINT                       the operators, with their keys and bytes
    penstock state CHECKPOINT --epochs              the epochs whose state can be read
    penstock state CHECKPOINT OPERATOR              the state of an operator, by key
    penstock state CHECKPOINT OPERATOR --shards     how much of it each shard has, the largest first
    penstock state CHECKPOINT [OPERATOR] --compare N    what has changed since epoch N

The checkpoint may be in use; what is shown is the last committed epoch, or the one given by --epoch.
"""

from __future__ import annotations

import argparse
from typing import Any

from penstock.cli import DONE, UsageError
from penstock.cli.displays import show, size

HELP = "show the state that a run keeps"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the directory of the run")
    parser.add_argument("operator", metavar="OPERATOR", nargs="?", help="the operator; without it all are listed")
    parser.add_argument("--epoch", type=int, metavar="N", help="a committed epoch (default: the last)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--epochs", action="store_true", help="list the epochs whose state can be read")
    what.add_argument("--shards", action="store_true", help="show the sizes of an operator's shards")
    what.add_argument("--compare", type=int, metavar="N", help="show what has changed since epoch N")
    parser.add_argument(
        "--limit", type=int, metavar="N", default=20, help="the most lines to show; 0 for all (default: 20)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(args: argparse.Namespace) -> int:
    from penstock import state

    checkpoint = args.checkpoint.rstrip("/") or "/"
    if args.shards and args.operator is None:
        raise UsageError("--shards is of one operator: penstock state CHECKPOINT OPERATOR --shards")
    if args.epochs:
        _some([{"epoch": epoch} for epoch in state.epochs(checkpoint)], args, {})
    elif args.operator is None and args.compare is not None:
        _some(_sizes_compared(state, checkpoint, args.compare, args.epoch), args, {"grown": _signed})
    elif args.operator is None:
        operators = state.operators(checkpoint, args.epoch)
        rows = [
            {"operator": o.operator, "keys": o.keys, "bytes": o.bytes, "shards": o.shards, "epoch": o.epoch}
            for o in operators
        ]
        show(rows, args.json, {"bytes": size}, "no state")
    elif args.shards:
        shards = sorted(state.shards(checkpoint, args.operator, args.epoch), key=lambda s: (-s.bytes, s.shard))
        rows = [{"shard": s.shard, "keys": s.keys, "bytes": s.bytes, "files": s.files} for s in shards]
        _some(rows, args, {"bytes": size})
    elif args.compare is not None:
        changes = state.compare(checkpoint, args.operator, args.compare, args.epoch)
        _some([{"key": c.key, "change": c.change, "before": c.before, "after": c.after} for c in changes], args, {})
    else:
        _some(state.listed(checkpoint, args.operator, args.epoch), args, {})
    return DONE


def _some(rows: list[dict[str, Any]], args: argparse.Namespace, formats: dict[str, Any]) -> None:
    shown = rows if args.limit <= 0 else rows[: args.limit]
    show(shown, args.json, formats, "no change" if args.compare is not None else "no state")
    left = len(rows) - len(shown)
    if left and not args.json:
        print(f"... {left:,} more; --limit 0 shows all")


def _sizes_compared(state: Any, checkpoint: str, before: int, after: int | None) -> list[dict[str, Any]]:
    """Put the sizes of all operators at two epochs side by side."""
    old = {o.operator: o for o in state.operators(checkpoint, before)}
    new = {o.operator: o for o in state.operators(checkpoint, after)}
    rows = []
    for name in {**old, **new}:
        keys = [sizes[name].keys if name in sizes else 0 for sizes in (old, new)]
        taken = [sizes[name].bytes if name in sizes else 0 for sizes in (old, new)]
        rows.append({"operator": name, "keys before": keys[0], "keys after": keys[1], "grown": taken[1] - taken[0]})
    return rows


def _signed(amount: int) -> str:
    return f"{'-' if amount < 0 else '+'}{size(abs(amount))}"
