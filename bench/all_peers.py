"""Run W1, W2 and W3 with every alternative, each in an environment of its own, and make one table of it.

Environments are made under .venv-peers, and made again only when what is to be installed changes. What cannot be
installed or does not run is in the table with the reason. Every program calls the same functions of a row, checks its
own outputs, and is a process of its own: its memory is that of the process and all that it started.
"""

import argparse
import ast
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import local_side
from bench.environments import ROOT, Unavailable, interpreter, run_program

DESCRIPTION = "W1, W2 and W3 with every alternative, each in an environment of its own: one table, Markdown and JSON"

PROGRAMS = ROOT / "bench" / "peers"
ALL = ("w1", "w2", "w3")


@dataclass(frozen=True)
class Peer:
    """An alternative: what to install for it, what it runs, and which lines of it a user would write."""

    installs: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ALL
    own: bool = True
    """Whether it has an environment of its own, or runs in the one that Penstock is in."""
    code: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Where the code of a workload is, as `file.py:Name`; by default in the function of its name alone."""


BYTEWAX = ("bytewax_common.py:_Events", "bytewax_common.py:EventSource")
PEERS: dict[str, Peer] = {
    "penstock": Peer(workloads=tuple(f"{w}-{engine}" for engine in ("spark", "threads") for w in ALL), own=False),
    "python": Peer(),
    "pyspark": Peer(
        (
            *("pyspark>=4.3,<4.4", "pandas>=2.2,<3", "protobuf>=6.33", "zstandard>=0.25"),
            *("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.71"),
        ),
        ("w1-transformWithState", "w1-transformWithStateInPandas", "w1-applyInPandasWithState", "w2", "w3"),
        code={
            "w1-transformWithState": ("transform_with_state.py:RunningRows", "transform_with_state.py:transform"),
            "w1-transformWithStateInPandas": (
                "transform_with_state_in_pandas.py:RunningFrames",
                "transform_with_state_in_pandas.py:transform",
            ),
            "w1-applyInPandasWithState": (
                "apply_in_pandas_with_state.py:running_of_key",
                "apply_in_pandas_with_state.py:_transform",
            ),
        },
    ),
    "bytewax": Peer(
        ("bytewax>=0.21,<0.22",),
        code={
            "w1": ("bytewax_w1.py:_step", "bytewax_w1.py:run", *BYTEWAX),
            "w2": ("bytewax_w2.py:run", *BYTEWAX),
        },
    ),
    "streamz": Peer(("streamz>=0.6,<0.7",)),
    "pathway": Peer(("pathway>=0.26,<1",)),
    "beam": Peer(
        ("apache-beam>=2.60,<3",),
        code={
            "w1": ("beam_peer.py:RunningFn", "beam_peer.py:w1"),
            "w3": ("beam_peer.py:ask_all", "beam_peer.py:w3"),
        },
    ),
    "pyflink": Peer(
        ("apache-flink>=2.0,<3",),
        code={
            "w1": ("pyflink_peer.py:RunningFunction", "pyflink_peer.py:w1"),
            "w3": ("pyflink_peer.py:Ask", "pyflink_peer.py:w3"),
        },
    ),
}


def lines_of_code(name: str, workload: str) -> int:
    """Count the lines that a user writes besides the functions of a row: without blanks, comments, docstrings."""
    total = 0
    for place in PEERS[name].code.get(workload, (f"{name}_peer.py:{workload[:2]}",)):
        file, _, wanted = place.partition(":")
        text = (PROGRAMS / file).read_text()
        (found,) = (node for node in ast.parse(text).body if getattr(node, "name", None) == wanted)
        total += len(_code_lines(found, text.splitlines()))
    return total


def _code_lines(node: ast.AST, lines: list[str]) -> set[int]:
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    assert node.end_lineno is not None
    kept = {n for n in range(node.lineno, node.end_lineno + 1) if lines[n - 1].strip()[:1] not in ("", "#")}
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(part):
            kept -= set(range(part.body[0].lineno, (part.body[0].end_lineno or 0) + 1))
    return kept


TITLES = {
    "w1": "W1: keyed running count and sum, one output an event",
    "w2": "W2: four cheap per-row operators, then a count",
    "w3": "W3: a lookup that waits",
}
HEAD = ("| system | version | rows/s | in order | peak MB | lines |", "|---|---|---|---|---|---|")
ORDER = {True: "yes", False: "no", None: ""}


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Make the table: a part for each workload, the fastest first."""
    parts = []
    for workload, title in TITLES.items():
        here = [row for row in rows if row["workload"].startswith(workload)]
        if here:
            here.sort(key=lambda row: -(row.get("rows_s") or 0))
            parts.append("\n".join([f"## {title}", "", *HEAD, *map(_line, here)]))
    return "\n\n".join(parts) + "\n"


def _line(row: dict[str, Any]) -> str:
    system = " ".join((row["peer"], row["workload"][3:])).strip()
    if "reason" in row:
        return f"| {system} | | {row['reason']} | | | |"
    speed = f"{row['rows_s']:,.0f}{' (steady)' if row['steady'] else ''}{'; ' if row['note'] else ''}{row['note']}"
    figures = (system, row["version"], speed, ORDER[row["in_order"]], f"{row['peak_mb']:.0f}", str(row["lines"]))
    return f"| {' | '.join(figures)} |"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER")
    parser.add_argument("--workloads", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--files", type=int, default=5, help="files of W1 and W2; on Spark one is a micro-batch")
    parser.add_argument("--file-rows", type=int, default=40_000)
    parser.add_argument("--lookups", type=int, default=5_000, help="rows of W3")
    parser.add_argument("--wait", type=float, default=2.0, help="milliseconds that a lookup waits")
    parser.add_argument("--in-flight", type=int, default=64, help="lookups at once, where the user has to choose")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv-peers", metavar="DIRECTORY")
    parser.add_argument("--patience", type=float, default=900, help="seconds for one installation or one run")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table to this file, too")


def measured(name: str, workload: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run one workload of one peer; where that cannot be, say why."""
    peer = PEERS[name]
    rows = args.lookups if workload.startswith("w3") else args.files * args.file_rows
    options = {"data": folder, "rows": rows, "wait-ms": args.wait, "in-flight": args.in_flight}
    arguments = [name, workload, *(str(part) for key, value in options.items() for part in (f"--{key}", value))]
    began = time.monotonic()
    try:
        own = interpreter(args.environments / name, peer.installs, args.patience) if peer.own else Path(sys.executable)
        found = {**run_program(own, arguments, args.patience), "lines": lines_of_code(name, workload)}
        said = f"{found['rows_s']:,.0f} rows/s"
    except Unavailable as error:
        said = str(error)
        found = {"reason": said}
    local_side.say(f"{name} {workload}: {said} ({time.monotonic() - began:.0f} s)")
    return {"peer": name, "workload": workload, **found}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run everything, one after the other."""
    folder, _ = local_side.directory(args.seed, args.files, args.file_rows)
    rows = [
        measured(name, workload, folder, args)
        for name in args.peers
        for workload in PEERS[name].workloads
        if workload[:2] in args.workloads
    ]
    table = markdown(rows)
    local_side.say("\n" + table)
    if args.markdown:
        args.markdown.write_text(table)
    settings = {name: getattr(args, name) for name in ("files", "file_rows", "lookups", "wait", "in_flight")}
    missing = {f"{row['peer']} {row['workload']}": row["reason"] for row in rows if "reason" in row}
    return {**settings, "rows": args.files * args.file_rows, "table": rows, "not_measured": missing}
