"""A run's history on disk: samples and decisions as lines of JSON, from which the page shows a finished run.

    run.json          the flow, its engine, its graph
    samples.jsonl     one sample a line, about one a second, older ones thinned out
    decisions.jsonl   every decision with the statistics that it saw, as it is replayed, and the files that follow it
                      (see `decision_log`)

Where the directory is in an object store, which cannot append, the files are kept in a temporary directory and copied
now and then.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field

from pyarrow import fs

from penstock.clock import monotonic
from penstock.dashboard.decision_log import MOST_BYTES, DecisionLog, file_name, lines_before, read_log
from penstock.dashboard.lines import Json, count_lines, end_line, parse
from penstock.dashboard.run_directories import META, find_history
from penstock.dashboard.thinning import thin
from penstock.elastic.decisions import Decision
from penstock.errors import PenstockError, StorageError
from penstock.ingress.paths import locate

VERSION = 1
SAMPLES = "samples.jsonl"
MOST_SAMPLES = 1200
MOST_SAMPLE_BYTES = 32 << 20
COPY_SECONDS = 30.0


class HistoryWriter:
    """Write the history of one run, behind that of earlier runs of the same checkpoint."""

    def __init__(
        self,
        path: str,
        *,
        most_samples: int = MOST_SAMPLES,
        most_sample_bytes: int = MOST_SAMPLE_BYTES,
        most_decision_bytes: int = MOST_BYTES,
    ) -> None:
        self.path = path
        self._most_samples, self._most_bytes = most_samples, most_sample_bytes
        system, inside = locate(path)
        self._remote = system.type_name != "local"
        self._directory = tempfile.mkdtemp(prefix="penstock-history-") if self._remote else inside
        self._copied = monotonic()
        os.makedirs(self._directory, exist_ok=True)
        if self._remote:
            self._fetch()
        end_line(self._file(SAMPLES))
        self._lines = count_lines(self._file(SAMPLES))
        self._log = DecisionLog(self._directory, most_decision_bytes)

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
        if self._remote and monotonic() - self._copied > COPY_SECONDS:
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
        self._log.write(decisions)

    def close(self) -> None:
        """Bring everything to where it belongs."""
        if self._remote:
            self._copy()
            shutil.rmtree(self._directory, ignore_errors=True)

    def _fetch(self) -> None:
        for name in (META, SAMPLES, *_log_names(self.path)):
            found = _read(f"{self.path}/{name}")
            if found is not None:
                with open(self._file(name), "wb") as file:
                    file.write(found)

    def _copy(self) -> None:
        system, inside = locate(self.path)
        system.create_dir(inside, recursive=True)
        for name in (META, SAMPLES, *self._log.names):
            if os.path.exists(self._file(name)):
                with open(self._file(name), "rb") as file, system.open_output_stream(f"{inside}/{name}") as out:
                    shutil.copyfileobj(file, out)
        # Behind the copies: who is stopped in between leaves a file too many, and not one too few.
        for name in set(_log_names(self.path)) - set(self._log.names):
            system.delete_file(f"{inside}/{name}")
        self._copied = monotonic()


@dataclass(frozen=True)
class History:
    """What is kept of a run."""

    meta: Json
    samples: list[Json] = field(default_factory=list)
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    replayable: list[Decision] = field(default_factory=list)
    """Those of the decisions that can be replayed: all, unless the log grew too long or was cut short."""
    dropped: int = 0
    """How many lines of decisions were dropped because the log grew too long."""


def read_history(path: str) -> History:
    """Read what a run left behind; lines that a crash cut short are passed over."""
    found = find_history(path)
    try:
        meta = json.loads(_read(f"{found}/{META}") or b"")
    except ValueError:
        raise PenstockError(f"{found}/{META} is damaged") from None
    if meta.get("version") != VERSION:
        raise PenstockError(f"{found} was written by another version of Penstock ({meta.get('version')})")
    samples = [line for line in map(parse, (_read(f"{found}/{SAMPLES}") or b"").splitlines()) if line is not None]
    log = read_log(_log_names(found), lambda name: _read(f"{found}/{name}"))
    return History(meta, samples, log.decisions, log.replayable, log.dropped)


def _log_names(path: str) -> list[str]:
    """Return the files of the log of decisions in a directory, the oldest first."""
    system, inside = locate(path)
    listed = system.get_file_info(fs.FileSelector(inside, allow_not_found=True))
    return [file_name(before) for before in lines_before(each.base_name for each in listed)]


def _read(path: str) -> bytes | None:
    system, inside = locate(path)
    try:
        with system.open_input_file(inside) as file:
            content: bytes = file.read()
            return content
    except FileNotFoundError:
        return None
    except OSError as error:
        # Not absent: whoever goes on with a history would write a shorter one over it.
        raise StorageError("reading", path, 1, str(error), "it is of the history of a run; try again") from error
