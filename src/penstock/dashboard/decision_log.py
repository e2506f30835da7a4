"""A run's decisions on disk, as lines of JSON that can be replayed: of a log that grows too long the newest part.

    decisions.jsonl          from the first line on
    decisions-<n>.jsonl      from the line on that has n lines before it

A file that has half of the bytes that may be kept is followed by the next, and then all but the last two go. What is
kept is never thinned out, so it is replayed from the first start line of each controller on; a journal has one of
every controller now and then. The name of a file says where it belongs, and no file is renamed: a crash between the two
steps of this leaves a file too many until the next writer comes, and loses nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from penstock.dashboard.lines import Json, count_lines, end_line, parse
from penstock.elastic.decisions import START, Decision, from_json, to_json

Timed = tuple[float, Decision]

MOST_BYTES = 64 << 20
"""So much is kept on disk, and half of it at the least; only a step that alone is longer than half of it takes more."""
CUT = {"cut": True}
"""Behind this line, to the end of its file, steps that changed nothing are missing; earlier versions wrote it."""

_NAME = re.compile(r"decisions(?:-(\d+))?\.jsonl")


def file_name(before: int) -> str:
    """Return the name of the file that has so many lines before it."""
    return f"decisions-{before:012}.jsonl" if before else "decisions.jsonl"


def lines_before(names: Iterable[str]) -> list[int]:
    """Return how many lines each of the log's files has before it, the oldest first."""
    return sorted(int(found[1] or 0) for name in names if (found := _NAME.fullmatch(name)))


class DecisionLog:
    """Write decisions behind those that a directory has already."""

    def __init__(self, directory: str, most_bytes: int = MOST_BYTES) -> None:
        self._directory, self._full = directory, most_bytes // 2
        self._before = max(lines_before(os.listdir(directory)), default=0)
        end_line(self._path())
        self._lines = self._before + count_lines(self._path())
        self._forget()

    @property
    def names(self) -> list[str]:
        """Return the files of the log, the oldest first."""
        return [file_name(before) for before in lines_before(os.listdir(self._directory))]

    def write(self, decisions: Iterable[Timed]) -> None:
        """Add decisions with their time of day; the lines of a step stay together in a file."""
        size = os.path.getsize(self._path()) if os.path.exists(self._path()) else 0
        waiting: list[bytes] = []
        for step in _steps(decisions):
            if size and size + sum(map(len, step)) > self._full:
                self._append(waiting)
                self._turn()
                size, waiting = 0, []
            waiting += step
            size += sum(map(len, step))
        self._append(waiting)

    def _path(self) -> str:
        return os.path.join(self._directory, file_name(self._before))

    def _append(self, lines: list[bytes]) -> None:
        with open(self._path(), "ab") as file:
            file.write(b"".join(lines))
        self._lines += len(lines)

    def _turn(self) -> None:
        """Go on in the next file."""
        self._before = self._lines
        self._append([])
        self._forget()

    def _forget(self) -> None:
        """Remove all files but the last two."""
        for name in self.names[:-2]:
            os.remove(os.path.join(self._directory, name))


def _steps(decisions: Iterable[Timed]) -> Iterator[list[bytes]]:
    """Encode decisions, and gather the lines of each step: its first one has statistics."""
    lines: list[bytes] = []
    for at, decision in decisions:
        if decision.statistics is not None and lines:
            yield lines
            lines = []
        lines.append(f'{{"at":{at:.3f},"line":{to_json(decision)}}}\n'.encode())
    if lines:
        yield lines


@dataclass
class Kept:
    """What is left of a log."""

    decisions: list[Timed] = field(default_factory=list)
    replayable: list[Decision] = field(default_factory=list)
    """Those of the decisions whose controller has its start line and every step since."""
    dropped: int = 0
    """How many lines are gone."""
    _running: set[str] = field(default_factory=set)
    """The controllers of which nothing is missing since they started."""

    def take(self, line: Json, whole: bool) -> None:
        """Take in the next line; where steps are left out around it, it is only to be looked at."""
        decision = from_json(json.dumps(line["line"]))
        self.decisions.append((float(line["at"]), decision))
        if whole and decision.what == START:
            self._running.add(decision.controller)
        if decision.controller in self._running:
            self.replayable.append(decision)

    def miss(self) -> None:
        """Take note that lines are missing here: nobody goes on, and the step before may lack some of its own."""
        while self._running and self.replayable.pop().statistics is None:
            pass
        self._running.clear()


def read_log(names: Iterable[str], read: Callable[[str], bytes | None]) -> Kept:
    """Read what is kept of a log, given the names in its directory and what reads one of them."""
    kept, known = Kept(), 0
    for before in lines_before(names):
        if before > known:
            kept.miss()
            kept.dropped += before - known
        whole = True
        found = (read(file_name(before)) or b"").splitlines()
        for line in map(parse, found):
            if line is None or line == CUT:
                kept.miss()
                whole = whole and line is None
            else:
                kept.take(line, whole)
        known = before + len(found)
    return kept
