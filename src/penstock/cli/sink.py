"""Show the rows of a sink's directory: exactly what is committed, in order.

    penstock sink PATH                     the first rows, as a table
    penstock sink PATH --rows 0            all of them
    penstock sink PATH --format json       all of them, one JSON object per line; csv likewise
    penstock sink PATH --follow            and those that are committed from now on, until Ctrl-C

The run may be at work. Rows that are committed and wait to be part of a file are shown, too; how many rows came from
visible files and how many wait is told at the end, on the standard error.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from penstock.cli import DONE, UsageError
from penstock.cli.displays import show

HELP = "show the rows that a sink has written"
TABLE_ROWS = 20
LOOK_SECONDS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the directory of the sink")
    parser.add_argument("--follow", action="store_true", help="go on with what is committed later")
    parser.add_argument(
        "--format", choices=("table", "json", "csv"), default="table", help="how rows are shown (default: table)"
    )
    parser.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help=f"the most rows to show; 0 for all (default: all, of a table without --follow {TABLE_ROWS})",
    )


def run(args: argparse.Namespace) -> int:
    from penstock import read

    if args.rows is not None and args.rows < 0:
        raise UsageError(f"--rows {args.rows}: give a number of rows, or 0 for all")
    reader = read.sink(args.path).reader()
    limit = args.rows if args.rows is not None else TABLE_ROWS if args.format == "table" and not args.follow else 0
    printer, left = Printer(args.format), limit or sys.maxsize
    try:
        while left > 0:
            for rows in _rows(reader):
                printer.print(rows[:left])
                left -= len(rows[:left])
                if left <= 0:
                    break
            printer.flush()
            if not args.follow:
                break
            time.sleep(LOOK_SECONDS)
    finally:
        printer.flush()
        _tell(reader, cut=left <= 0)
    return DONE


def _rows(reader: Any) -> Iterator[list[dict[str, Any]]]:
    for batch in reader.read():
        yield batch.to_pylist()


def _tell(reader: Any, *, cut: bool) -> None:
    words = [f"{reader.visible:,} rows of visible files"]
    if reader.waiting:
        words.append(f"{reader.waiting:,} that are committed and wait to be part of one")
    if not reader.knows_all:
        words.append("what waits is not known: the checkpoint of the run cannot be read, or it had none")
    if cut:
        words.append("there may be more; --rows 0 shows all")
    print("; ".join(words), file=sys.stderr)


class Printer:
    """Prints rows in a format, the names of fields once."""

    def __init__(self, form: str) -> None:
        self._form, self._kept, self._begun = form, list[dict[str, Any]](), False
        self._csv = csv.writer(sys.stdout, lineterminator="\n")

    def print(self, rows: list[dict[str, Any]]) -> None:
        """Print rows; those of a table are kept until they can be aligned."""
        if self._form == "table":
            self._kept += rows
            if len(self._kept) >= 1000:
                self.flush()
            return
        for row in rows:
            if self._form == "json":
                print(json.dumps(row, default=str))
            else:
                if not self._begun:
                    self._csv.writerow(row)
                self._csv.writerow(row.values())
            self._begun = True

    def flush(self) -> None:
        if self._kept:
            show(self._kept, False)
            self._kept, self._begun = [], True
        sys.stdout.flush()
