"""A run's history on disk: samples and decisions as lines of JSON, from which the page shows a finished run.

    run.json          the flow, its engine, its graph
    samples.jsonl     one sample a line, about one a second, older ones thinned out
    decisions.jsonl   every decision with the statistics that it saw, as it is replayed

Where the directory is in an object store, which cannot append, the files are kept in a temporary directory and copied
now and then.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.dashboard.run_directories import META, find_history
from penstock.dashboard.thinning import thin
from penstock.elastic.decisions import HOLD, Decision, from_json, to_json
from penstock.errors import PenstockError
from penstock.ingress.paths import locate

Json = dict[str, Any]

VERSION = 1
SAMPLES, DECISIONS = "samples.jsonl", "decisions.jsonl"
MOST_SAMPLES = 1200
MOST_SAMPLE_BYTES = 32 << 20
MOST_DECISION_BYTES = 64 << 20
"""Past this, steps that change nothing are not logged any more, and a replay ends there."""
COPY_SECONDS = 30.0
CUT = {"cut": True}
"""The line behind which steps are missing."""


class HistoryWriter:
    """Write the history of one run, behind that of earlier runs of the same checkpoint."""

    def __init__(
        self,
        path: str,
        *,
        most_samples: int = MOST_SAMPLES,
        most_sample_bytes: int = MOST_SAMPLE_BYTES,
        most_decision_bytes: int = MOST_DECISION_BYTES,
    ) -> None:
        self.path = path
        self._most_samples, self._most_bytes = most_samples, most_sample_bytes
        self._most_decisions = most_decision_bytes
        system, inside = locate(path)
        self._remote = system.type_name != "local"
        self._directory = tempfile.mkdtemp(prefix="penstock-history-") if self._remote else inside
        self._copied = time.monotonic()
        os.makedirs(self._directory, exist_ok=True)
        if self._remote:
            self._fetch()
        for name in (SAMPLES, DECISIONS):
            _end_line(self._file(name))
        self._lines = _count_lines(self._file(SAMPLES))
        self._cut = False

    def _file(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def write_graph(self, meta: Json) -> None:
        """Write what stands above all samples; it appears whole."""
        temporary = self._file(f"{META}.tmp")
        with open(temporary, "w") as file:
            json.dump({"version": VERSION, **meta}, file)
        os.replace(temporary, self._file(META))

    def write_sample(self, line: bytes) -> None:
        """Add a sample, already encoded; thin out where there are too many."""
        with open(self._file(SAMPLES), "ab") as file:
            file.write(line + b"\n")
            size = file.tell()
        self._lines += 1
        if self._lines > self._most_samples or size > self._most_bytes:
            self._thin()
        if self._remote and time.monotonic() - self._copied > COPY_SECONDS:
            self._copy()

    def _thin(self) -> None:
        with open(self._file(SAMPLES), "rb") as file:
            lines = file.readlines()
        fresh = self._most_samples // 4
        kept = thin(lines, fresh)
        while sum(map(len, kept)) > self._most_bytes // 2 and len(kept) > 2:
            fresh //= 2
            kept = thin(kept, fresh)
        temporary = self._file(f"{SAMPLES}.tmp")
        with open(temporary, "wb") as file:
            file.writelines(kept)
        os.replace(temporary, self._file(SAMPLES))
        self._lines = len(kept)

    def write_decisions(self, decisions: list[tuple[float, Decision]]) -> None:
        """Add decisions with their time of day."""
        with open(self._file(DECISIONS), "a") as file:
            for at, decision in decisions:
                if file.tell() > self._most_decisions:
                    if not self._cut:
                        file.write(json.dumps(CUT) + "\n")
                        self._cut = True
                    if decision.what == HOLD:
                        continue
                file.write(f'{{"at":{at:.3f},"line":{to_json(decision)}}}\n')

    def close(self) -> None:
        """Bring everything to where it belongs."""
        if self._remote:
            self._copy()
            shutil.rmtree(self._directory, ignore_errors=True)

    def _fetch(self) -> None:
        for name in (META, SAMPLES, DECISIONS):
            found = _read(f"{self.path}/{name}")
            if found is not None:
                with open(self._file(name), "wb") as file:
                    file.write(found)

    def _copy(self) -> None:
        system, inside = locate(self.path)
        system.create_dir(inside, recursive=True)
        for name in (META, SAMPLES, DECISIONS):
            if os.path.exists(self._file(name)):
                with open(self._file(name), "rb") as file, system.open_output_stream(f"{inside}/{name}") as out:
                    shutil.copyfileobj(file, out)
        self._copied = time.monotonic()


@dataclass(frozen=True)
class History:
    """What is kept of a run."""

    meta: Json
    samples: list[Json] = field(default_factory=list)
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    whole: int = 0
    """How many of the decisions can be replayed: all, unless the log grew too long."""


def read_history(path: str) -> History:
    """Read what a run left behind; lines that a crash cut short are passed over."""
    found = find_history(path)
    try:
        meta = json.loads(_read(f"{found}/{META}") or b"")
    except ValueError:
        raise PenstockError(f"{found}/{META} is damaged") from None
    if meta.get("version") != VERSION:
        raise PenstockError(f"{found} was written by another version of Penstock ({meta.get('version')})")
    decisions: list[tuple[float, Decision]] = []
    whole: int | None = None
    for line in _lines(f"{found}/{DECISIONS}"):
        if line == CUT:
            whole = len(decisions) if whole is None else whole
            continue
        decisions.append((float(line["at"]), from_json(json.dumps(line["line"]))))
    samples = list(_lines(f"{found}/{SAMPLES}"))
    return History(meta, samples, decisions, len(decisions) if whole is None else whole)


def _lines(path: str) -> Iterator[Json]:
    for line in (_read(path) or b"").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _read(path: str) -> bytes | None:
    system, inside = locate(path)
    try:
        with system.open_input_file(inside) as file:
            content: bytes = file.read()
            return content
    except OSError:
        return None


def _end_line(path: str) -> None:
    """End a line that a crash cut short: what is added must not be lost with it."""
    if os.path.exists(path) and os.path.getsize(path):
        with open(path, "rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _count_lines(path: str) -> int:
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as file:
        return sum(1 for _ in file)
