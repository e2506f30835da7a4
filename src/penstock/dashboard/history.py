"""What was seen of a run, in one SQLite database: in memory for the page of a run that goes on, on disk for later.

    run         the flow, its engine, its graph
    samples     about one per second; older ones are thinned out, and of large ones only the timeline's point is left
    decisions   every decision with the statistics that it saw, to be replayed; of a long log the newest part

On disk the file is `history.sqlite`; each run of a checkpoint goes on after the one before. Where the directory is in
an object store the file is kept in a temporary directory and copied now and then. `Page` is what can be asked of a run:
the same for one that goes on and for one of which only its history is left.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pyarrow import fs

from penstock.clock import monotonic
from penstock.connectors.paths import exists, locate
from penstock.elastic.decisions import HOLD, START, Decision, from_json, to_json
from penstock.errors import PenstockError, StorageError

FILE = "history.sqlite"
"""The file that makes a directory a history."""
OLD_FILE = "run.json"
"""The one that earlier versions wrote, beside lines of JSON."""
HISTORY = "history"
KEPT_RUNS = 20
STAMP = "%Y-%m-%dT%H-%M-%S.%fZ"


def new_directory(history: str, now: dt.datetime | None = None, kept: int = KEPT_RUNS) -> str:
    """Return the directory of a run that starts now, below that of its flow's histories; remove the oldest.

    With it there are as many as are kept. It is made when something is written.
    """
    for name in sorted(_stamped(history), reverse=True)[kept - 1 :]:
        shutil.rmtree(os.path.join(history, name), ignore_errors=True)
    return os.path.join(history, f"{now or dt.datetime.now(dt.UTC):{STAMP}}")


def _stamped(history: str) -> list[str]:
    """Return the directories that are named as runs are: no others may be removed."""
    names = []
    for each in os.scandir(history) if os.path.isdir(history) else ():
        try:
            dt.datetime.strptime(each.name, STAMP)
        except ValueError:
            continue
        if each.is_dir(follow_symlinks=False):
            names.append(each.name)
    return names


def find_history(path: str) -> str:
    """Return the history in a directory: the one that it is, or the one of a checkpoint or a flow written last."""
    base = path.rstrip("/") or "/"
    if _written(base):
        return base
    inside = f"{base}/{HISTORY}"
    newest = max((inside, *_below(inside), *_below(base)), key=_written)
    if not _written(newest):
        raise PenstockError(
            f"{path} has no history of a run; give the checkpoint of a run, .penstock/<flow name>, or the directory "
            f"given by --history"
        )
    return newest


def _below(path: str) -> list[str]:
    """Return the directories in a directory; none where there is no such directory."""
    system, inside = locate(path)
    listed = system.get_file_info(fs.FileSelector(inside, allow_not_found=True))
    return [f"{path}/{each.base_name}" for each in listed if each.type == fs.FileType.Directory]


def _written(history: str) -> int:
    """Return when a history was written last, in nanoseconds since 1970; 0 where a directory has none."""
    for name in (FILE, OLD_FILE):
        system, inside = locate(f"{history}/{name}")
        info = system.get_file_info(inside)
        if info.type != fs.FileType.NotFound:
            return info.mtime_ns or 1
    return 0


Json = dict[str, Any]
Timed = tuple[float, Decision]

VERSION = 2
FRESH = 240
"""The newest samples, of which none is dropped unless they are too large."""
COPY_SECONDS = 30.0
MOST_MARKS = 500
"""Decisions that are listed at once."""

_TABLES = """
CREATE TABLE IF NOT EXISTS run (about TEXT);
CREATE TABLE IF NOT EXISTS samples (number INTEGER PRIMARY KEY, at REAL, point TEXT, sample BLOB);
CREATE TABLE IF NOT EXISTS decisions (number INTEGER PRIMARY KEY, mark INTEGER, at REAL, line TEXT);
CREATE INDEX IF NOT EXISTS marks ON decisions (mark);
"""
# Every second of the older ones, but never the first: a run keeps its beginning.
_OLDER = """
SELECT number FROM (SELECT number, row_number() OVER (ORDER BY number) AS place, count(*) OVER () AS total
FROM samples WHERE sample IS NOT NULL OR ?) WHERE place % 2 = 0 AND place <= total - ?
"""
_LONGER = """
SELECT number FROM (SELECT number, sum(length(line)) OVER (ORDER BY number DESC) AS newer FROM decisions)
WHERE newer > ? ORDER BY number DESC LIMIT 1
"""


@dataclass(frozen=True)
class Bounds:
    samples: int = 1200
    sample_bytes: int = 32 << 20
    decision_bytes: int = 64 << 20
    """Half of it at the least is kept."""
    held: bool = True
    """Whether steps that changed nothing are kept, which a replay needs; else they are counted only."""


DISK = Bounds()
MEMORY = Bounds(sample_bytes=16 << 20, decision_bytes=8 << 20, held=False)


class History:
    """One database. One thread writes; any may read."""

    def __init__(self, file: str = ":memory:", limits: Bounds = MEMORY, copy_of: str | None = None) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._db = sqlite3.connect(file, check_same_thread=False)
        if copy_of is not None:
            with closing(sqlite3.connect(copy_of)) as there:
                there.backup(self._db)
        # A process that is killed loses nothing by this; fsync would take the disk's time from the flow.
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.executescript(_TABLES)
        lines, marks = self._one("SELECT coalesce(max(number), 0), coalesce(max(mark) + 1, 0) FROM decisions")
        self.total, self.held = int(marks), int(lines - marks)
        """How many decisions changed or reported something, and how many steps changed nothing."""
        self._measure_samples()
        self._measure_decisions()

    def _one(self, query: str, *values: Any) -> Any:
        with self._lock:
            return self._db.execute(query, values).fetchone()

    def _all(self, query: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def _measure_samples(self) -> None:
        # The length of bytes is known without reading them; that of text is not.
        self._samples, self._sample_bytes = self._one("SELECT count(*), total(length(sample)) FROM samples")

    def _measure_decisions(self) -> None:
        (self._decision_bytes,) = self._one("SELECT total(length(line)) FROM decisions")

    def describe(self, about: Json) -> None:
        with self._lock, self._db:
            self._db.execute("DELETE FROM run")
            self._db.execute("INSERT INTO run VALUES (?)", (json.dumps({"version": VERSION, **about}),))

    def decide(self, decisions: Iterable[Timed]) -> None:
        """Add decisions with their time of day."""
        rows: list[tuple[int | None, float, str]] = []
        for at, decision in decisions:
            if decision.what != HOLD:
                rows.append((self.total, at, to_json(decision)))
                self.total += 1
                continue
            self.held += 1
            if self._limits.held:
                rows.append((None, at, to_json(decision)))
        with self._lock, self._db:
            self._db.executemany("INSERT INTO decisions (mark, at, line) VALUES (?, ?, ?)", rows)
        self._decision_bytes += sum(len(line) for *_, line in rows)
        if self._decision_bytes > self._limits.decision_bytes:
            with self._lock, self._db:
                half = self._limits.decision_bytes // 2
                self._db.execute(f"DELETE FROM decisions WHERE number <= ({_LONGER})", (half,))
            self._measure_decisions()

    def add(self, sample: Json, encoded: bytes) -> None:
        """Add a sample, also as it is written; thin out where there are too many."""
        with self._lock, self._db:
            values = (sample["at"], json.dumps(point(sample)), encoded)
            self._db.execute("INSERT INTO samples (at, point, sample) VALUES (?, ?, ?)", values)
        self._samples, self._sample_bytes = self._samples + 1, self._sample_bytes + len(encoded)
        fresh = min(FRESH, self._limits.samples // 4)
        if self._samples > self._limits.samples:
            self._thin(f"DELETE FROM samples WHERE number IN ({_OLDER})", True, fresh)
        while self._sample_bytes > self._limits.sample_bytes and fresh > 1:
            self._thin(f"UPDATE samples SET sample = NULL WHERE number IN ({_OLDER})", False, fresh)
            fresh //= 2  # samples so large that even fresh ones must go

    def _thin(self, statement: str, empty: bool, fresh: int) -> None:
        with self._lock, self._db:
            self._db.execute(statement, (empty, fresh))
        self._measure_samples()

    def about(self) -> Json:
        """Return what stands above all samples; nothing where there is nothing yet."""
        row = self._one("SELECT about FROM run")
        return json.loads(row[0]) if row else {}

    def points(self) -> list[Json]:
        return [json.loads(each) for (each,) in self._all("SELECT point FROM samples ORDER BY number")]

    def sample_at(self, at: float) -> bytes:
        """Return the sample next to a time of day, as it was written."""
        query = "SELECT sample FROM samples WHERE sample IS NOT NULL ORDER BY abs(at - ?), number LIMIT 1"
        row = self._one(query, at)
        return bytes(row[0]) if row else b"{}"

    def latest(self) -> Json:
        """Return the newest sample; nothing where there is none yet."""
        row = self._one("SELECT sample FROM samples WHERE sample IS NOT NULL ORDER BY number DESC LIMIT 1")
        return json.loads(row[0]) if row else {}

    def marks_after(self, mark: int) -> list[Json]:
        """Return short descriptions of what was changed or reported, the last ones where there are too many."""
        query = "SELECT mark, at, line FROM decisions WHERE mark >= ? ORDER BY mark DESC LIMIT ?"
        return [_short(*each) for each in reversed(self._all(query, mark, MOST_MARKS))]

    def mark(self, mark: int) -> Json | None:
        """Return one of them with what its step saw, which is written with the first of the step."""
        row = self._one("SELECT mark, at, line FROM decisions WHERE mark = ?", mark)
        if row is None:
            return None
        short = _short(*row)
        for (line,) in self._all("SELECT line FROM decisions WHERE mark <= ? ORDER BY mark DESC LIMIT 2000", mark):
            first = from_json(line)
            if first.controller == short["controller"] and first.statistics is not None:
                return {**short, "seen": first.statistics}
        return {**short, "seen": None}

    def decisions(self) -> list[Timed]:
        return [(at, from_json(line)) for at, line in self._all("SELECT at, line FROM decisions ORDER BY number")]

    @property
    def dropped(self) -> int:
        """Return how many lines of decisions were dropped because the log grew too long."""
        return max(0, int(self._one("SELECT coalesce(min(number), 1) FROM decisions")[0]) - 1)

    def close(self) -> None:
        with self._lock:
            self._db.close()


class HistoryFile(History):
    """The history of a run on disk, after that of earlier runs of the same checkpoint."""

    def __init__(self, path: str, limits: Bounds = DISK) -> None:
        system, inside = locate(path)
        self._path, self._copied = path, monotonic()
        self._remote = system.type_name != "local"
        self._directory = tempfile.mkdtemp(prefix="penstock-history-") if self._remote else inside
        os.makedirs(self._directory, exist_ok=True)
        self._file = os.path.join(self._directory, FILE)
        if self._remote:
            _fetch(path, self._file)
        try:
            super().__init__(self._file, limits)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # the machine failed while it was written
            os.replace(self._file, f"{self._file}.damaged")
            super().__init__(self._file, limits)

    def add(self, sample: Json, encoded: bytes) -> None:
        super().add(sample, encoded)
        if self._remote and monotonic() - self._copied > COPY_SECONDS:
            self._copy()

    def close(self) -> None:
        super().close()
        if self._remote:
            self._copy()
            shutil.rmtree(self._directory, ignore_errors=True)

    def _copy(self) -> None:
        system, inside = locate(self._path)
        system.create_dir(inside, recursive=True)
        with open(self._file, "rb") as here, system.open_output_stream(f"{inside}/{FILE}") as there:
            shutil.copyfileobj(here, there)
        self._copied = monotonic()


def _fetch(path: str, file: str) -> None:
    """Copy a history out of an object store, if it is there."""
    system, inside = locate(f"{path}/{FILE}")
    try:
        with suppress(FileNotFoundError), system.open_input_file(inside) as there, open(file, "wb") as here:
            shutil.copyfileobj(there, here)
    except OSError as error:
        # Not absent: going on without it would write a shorter history over it.
        raise StorageError("reading", path, 1, str(error), "it is the history of a run; try again") from error


def read_history(path: str) -> History:
    """Read what a run left behind into memory, so that nothing is held of a run that goes on elsewhere."""
    where = find_history(path)
    if not exists(f"{where}/{FILE}"):
        raise PenstockError(f"{where}/{OLD_FILE} was written by an earlier version of Penstock, which can show it")
    system, inside = locate(where)
    with tempfile.TemporaryDirectory(prefix="penstock-history-") as directory:
        file = os.path.join(inside, FILE)
        if system.type_name != "local":
            file = os.path.join(directory, FILE)
            _fetch(where, file)
        try:
            history = History(limits=DISK, copy_of=file)
            version = history.about().get("version")
        except sqlite3.Error as error:
            raise PenstockError(f"{where}/{FILE} cannot be read: {error}") from None
    if version != VERSION:
        raise PenstockError(f"{where} was written by another version of Penstock ({version})")
    return history


def replayable(decisions: Iterable[Timed]) -> list[Decision]:
    """Return those that can be replayed: each controller's from its first start line on."""
    started: set[str] = set()
    whole = []
    for _, decision in decisions:
        if decision.what == START:
            started.add(decision.controller)
        if decision.controller in started:
            whole.append(decision)
    return whole


def point(sample: Json) -> Json:
    """Return what the timeline shows of a sample."""
    totals = sample["totals"]
    latency = totals.get("latency") or {}
    return {
        "t": sample["at"],
        "rate": totals["rate"],
        "p50": latency.get("p50"),
        "p99": latency.get("p99"),
        "lag": totals.get("lag_seconds"),
        "lag_rows": totals.get("lag_rows"),
        "size": totals.get("size"),
    }


def _short(mark: int, at: float, line: str) -> Json:
    decision = from_json(line)
    shown = ("controller", "step", "epoch", "what", "target", "before", "after", "why")
    return {
        "number": mark,
        "at": round(at, 3),
        **{name: getattr(decision, name) for name in shown},
        "numbers": dict(decision.numbers),
        "start": decision.what == START,
    }


class Live(Protocol):
    """A run of this process, as the page sees it."""

    finished: bool

    def listen(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        """Call a function with each sample to come, encoded; return what ends that."""

    def change_query(self, action: str, name: str) -> int:
        """Add or cancel a query; return the first batch that it concerns."""


class Page:
    """A run as browsers see it; without `live` it is one of the past."""

    def __init__(self, history: History, live: Live | None = None) -> None:
        self.history, self._live = history, live
        if live is None and not history.latest():
            raise PenstockError("the history of this run has no samples; it ended before the first one was written")

    def document(self) -> Json:
        """Return everything that the page begins with."""
        return {
            "live": self._live is not None and not self._live.finished,
            "graph": self.history.about().get("graph", {"nodes": [], "edges": [], "version": 0}),
            "sample": self.sample(),
            "points": self.history.points(),
            "decisions": self.history.marks_after(0),
        }

    def sample(self) -> Json:
        last = self.history.latest()
        if self._live is None:
            # It had no time to say how it ended: it was killed, or still runs elsewhere.
            state = "ended" if last["state"] == "running" else last["state"]
            counts = {"decisions": self.history.total, "held": self.history.held}
            return {**last, **counts, "state": state, "can_change": False}
        return last

    def listen(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        return (lambda: None) if self._live is None else self._live.listen(listener)

    def change_query(self, action: str, name: str) -> int:
        if self._live is None:
            raise PenstockError("the flow has ended")
        return self._live.change_query(action, name)
