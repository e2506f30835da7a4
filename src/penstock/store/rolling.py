"""Which of the parts that wait become a file, and when: small epochs are joined until they are large, or old, enough.
And which files go, of a sink that keeps only so many, so much, or so long: its own, oldest first, never the newest.

What waits is part of the position that a commit writes, as plain data by sink:

    {path, format, header, parts: [[epoch, fence, [[name, rows, bytes, kind], ...]], ...]}

Parts are files below `staged_name(epoch, fence)` in the sink's directory; with `partition_by` their names begin with
the directory of the partition. Parts of another `kind` (other fields, as rows that are not declared may have at first)
are not joined.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.connectors.directory import Directory, Retain
from penstock.connectors.paths import list_files, locate
from penstock.connectors.retries import retried
from penstock.errors import StorageError
from penstock.store.objects import Json, Store

OWN = "_penstock"
STAGING = f"{OWN}/staging"
REMOVED = f"{OWN}/removed"
"""Where what is removed is hidden first, so that it is gone at once and whole."""
MOST_PARTS = 1000
"""Parts of one sink that wait, at most: each commit lists them."""
log = logging.getLogger(__name__)

File = tuple[str, int, float]
"""Name below the sink's directory, bytes, and when it was written, in seconds since 1970."""
_VISIBLE = re.compile(rf"(epoch=(\d{{9}}))(?:/[^/]+?(?:\.(\w+))?)?|(?!{OWN}/)((.+=.*)/part-(\d{{9}})-\d{{5}}\.(\w+))")


class Visible(NamedTuple):
    """What the name of a visible file says."""

    unit: str
    """What appeared with it, and goes with it: its directory, or itself in a partition."""
    epoch: int
    """The last one whose rows are in the file."""
    label: str
    """The directory of the partition; "" without any."""
    format: str


def visible(name: str) -> Visible | None:
    """Read a name below a sink's directory; None for a file that is no epoch's. The directory alone will do, too."""
    match = _VISIBLE.fullmatch(name)
    if match is None:
        return None
    if match[1]:
        return Visible(match[1], int(match[2]), "", match[3] or "")
    return Visible(match[4], int(match[6]), match[5], match[7])


@dataclass(frozen=True)
class Target:
    """Where a sink's files are, bytes of a full one, from how many on one is left as it is, seconds to wait."""

    path: str
    full: int
    large: int
    every: float
    last: int | None = None
    """From how many bytes on a part of the last epoch is left as it is, where joining it would hold up its commit."""

    @classmethod
    def of(cls, writer: Directory) -> Target:
        return cls(writer.path, writer.full, writer.large, writer.roll_every, writer.last)


class Joined(Protocol):
    """A file that parts are joined to, in their order."""

    def add(self, source: str) -> None:
        """Add the rows of a part, by its path; raises `OSError`."""

    def close(self) -> int:
        """Finish the file, down to the disk, and return its bytes; raises `OSError`."""

    def abandon(self) -> None:
        """Remove the file."""


Join = Callable[[Json, str], Joined]
"""Begins a file: what waits for a sink (its format), and a path."""


def staged_name(epoch: int, fence: int) -> str:
    """Return the directory in which an epoch's parts wait, below the sink's."""
    return f"{STAGING}/epoch={epoch:09d}.{fence}"


def roll_name(first: int, fence: int) -> str:
    """Return the directory in which the parts from an epoch on are joined, below the sink's."""
    return f"{STAGING}/epoch={first:09d}-roll.{fence}"


def published_name(epoch: int) -> str:
    """Return the directory in which rows up to an epoch appear, below the sink's."""
    return f"epoch={epoch:09d}"


@dataclass
class Group:
    """Parts that become one file; a single one is left as it is."""

    label: str
    """The directory of the partition; nothing without."""
    kind: int
    alone: bool
    """Whether it is one large part, and takes no others."""
    sources: list[str] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, sources: list[str], rows: int, size: int) -> None:
        self.sources += sources
        self.rows, self.bytes = self.rows + rows, self.bytes + size


def group(waiting: Json, target: Target, row_bytes: float = math.inf, after: int | None = None) -> list[Group]:
    """Return the files that what waits is to become, partition by partition and in order.

    Rows that are joined take no more than `row_bytes` each. While all of it is less than a full file, more parts only
    add to the last group, or come after it. Of epochs `after` one, of which nothing is joined yet, only small parts are
    to be.
    """
    labels: dict[str, list[Group]] = {}
    late = target.large if target.last is None else min(target.last, target.large)
    for epoch, fence, parts in waiting["parts"]:
        least = target.large if after is None or epoch <= after else late
        for name, rows, size, kind in parts:
            label, large = name.rpartition("/")[0], size >= least
            groups = labels.setdefault(label, [])
            last = groups[-1] if groups else None
            if last is None or large or last.alone or last.kind != kind or last.bytes >= target.full:
                groups.append(Group(label, kind, large))
            groups[-1].add([f"{staged_name(epoch, fence)}/{name}"], rows, round(min(size, rows * row_bytes)))
    for groups in labels.values():
        if len(groups) > 1 and _is_rest(groups[-1], groups[-2], target):
            rest = groups.pop()
            groups[-1].add(rest.sources, rest.rows, rest.bytes)
    return [each for label in sorted(labels) for each in labels[label]]


def _is_rest(last: Group, before: Group, target: Target) -> bool:
    """Tell whether what is left after a full file is too little to be one."""
    return not last.alone and not before.alone and last.kind == before.kind and last.bytes < target.full // 2


def bytes_of(waiting: Json, row_bytes: float) -> float:
    """Return how many bytes wait, as they will be joined."""
    sizes = (min(size, rows * row_bytes) for _, _, parts in waiting["parts"] for _, rows, size, _ in parts)
    return float(sum(sizes))


class Rolling:
    """Joins what waits for one sink: as it comes, in the shadow of the next epoch, and to the end once it is due."""

    def __init__(self, sink: str, target: Target, join: Join, clock: Callable[[], float]) -> None:
        self._sink, self._target, self._join, self._clock = sink, target, join, clock
        self._since: float | None = None
        self._open: dict[str, tuple[Joined, list[str]]] = {}
        """Files under way, by name, each with the parts that it has."""
        self._joined = 0
        """The last epoch whose parts are in them."""
        self._row_bytes = math.inf
        """What a row takes in a file that parts were joined to: small parts of Parquet are mostly about themselves."""

    def added(self) -> None:
        self._since = self._clock() if self._since is None else self._since

    def is_due(self, waiting: Json, ahead: float) -> bool:
        """Tell whether what waits should appear, rather than at the next chance, which is so many seconds ahead."""
        age = 0.0 if self._since is None else self._clock() - self._since
        return (
            age + ahead >= self._target.every
            or bytes_of(waiting, self._row_bytes) >= self._target.full
            or sum(len(parts) for _, _, parts in waiting["parts"]) >= MOST_PARTS
        )

    def _groups(self, waiting: Json, after: int | None = None) -> list[Group]:
        return group(waiting, self._target, self._row_bytes, after)

    def begin(self, waiting: Json, fence: int) -> None:
        """Join what waits so far; should that fail, all is joined when it is due."""
        groups = self._groups(waiting)
        if any(each.label for each in groups):
            return  # a file for each partition would be open
        try:
            self._write(waiting, fence, groups, ended=False)
            self._joined = waiting["parts"][-1][0]
        except (OSError, StorageError):
            self._abandon()

    def roll(self, waiting: Json, fence: int) -> list[tuple[str, str, Group]]:
        """Join what waits; return the files in order: where each is, its name, and what it has."""
        last = waiting["parts"][-1][0]
        groups = self._groups(waiting, last - 1 if self._joined < last else None)

        def write() -> list[tuple[str, str, Group]]:
            try:
                return self._write(waiting, fence, groups, ended=True)
            except BaseException:
                self._abandon()
                raise

        files = retried(write, f"sink {self._sink!r}: joining files for", waiting["path"])
        self._since, self._open = None, {}
        return files

    def _write(
        self, waiting: Json, fence: int, groups: Sequence[Group], *, ended: bool
    ) -> list[tuple[str, str, Group]]:
        place = roll_name(waiting["parts"][0][0], fence)
        written: list[tuple[str, str, Group]] = []
        rows, size = 0, 0
        numbers: dict[str, int] = {}
        for each in groups:
            number = numbers[each.label] = numbers.get(each.label, -1) + 1
            name = "/".join([*([each.label] if each.label else []), f"part-{number:05d}.{waiting['format']}"])
            if len(each.sources) == 1:
                written.append((each.sources[0], name, each))
                continue
            if name not in self._open:
                self._open[name] = self._join(waiting, f"{waiting['path']}/{place}/{name}"), []
            joined, sources = self._open[name]
            for source in each.sources[len(sources) :]:
                joined.add(f"{waiting['path']}/{source}")
                sources.append(source)
            if ended:
                rows, size = rows + each.rows, size + joined.close()
            written.append((f"{place}/{name}", name, each))
        if rows:
            self._row_bytes = size / rows
        return written

    def _abandon(self) -> None:
        for joined, _ in self._open.values():
            joined.abandon()
        self._open = {}


@dataclass
class Unit:
    """What appeared at once, and goes at once: a directory, or a file of a partition."""

    name: str
    epoch: int
    files: int = 0
    bytes: int = 0
    written: float = 0.0


@dataclass(frozen=True)
class Retention:
    """What one sink keeps; `files` lists what is visible."""

    sink: str
    path: str
    keep: Retain
    files: Callable[[], Iterable[File]]
    now: Callable[[], float] = time.time

    def apply(self, store: Store, committed: int, check: Callable[[], None]) -> None:
        """Remove what is too much, oldest first; `check` raises where another driver has taken over."""
        for unit in self.surplus(committed):
            check()
            if store.renames:
                hidden = f"{REMOVED}/{unit.name}"
                store.move(unit.name, hidden)
                store.delete(hidden)
            else:
                store.delete(unit.name)
            log.info(
                "sink %r: removed %s (%d files, %d bytes), because of retain",
                self.sink,
                unit.name,
                unit.files,
                unit.bytes,
            )

    def surplus(self, committed: int) -> list[Unit]:
        """Return what goes, oldest first: nothing of the newest epoch, and nothing that this run did not commit."""
        units: dict[str, Unit] = {}
        for name, size, written in self.files():
            says = visible(name)
            if says is not None and says.epoch <= committed:
                unit = units.setdefault(says.unit, Unit(says.unit, says.epoch))
                unit.files, unit.bytes, unit.written = unit.files + 1, unit.bytes + size, max(unit.written, written)
        ordered = sorted(units.values(), key=lambda unit: (unit.epoch, unit.name))
        files, size = sum(unit.files for unit in ordered), sum(unit.bytes for unit in ordered)
        newest, gone = max((unit.epoch for unit in ordered), default=0), []
        for unit in ordered:
            if unit.epoch == newest or not self._is_too_much(files, size, unit):
                break
            gone.append(unit)
            files, size = files - unit.files, size - unit.bytes
        return gone

    def _is_too_much(self, files: int, size: int, unit: Unit) -> bool:
        keep = self.keep
        return (
            (keep.files is not None and files > keep.files)
            or (keep.bytes is not None and size > keep.bytes)
            or (keep.seconds is not None and self.now() - unit.written > keep.seconds)
        )


def retention_of(sink: str, writer: Directory) -> Retention | None:
    """Return what a sink keeps; None for everything."""
    if writer.retain is None:
        return None
    root = locate(writer.path)[1].rstrip("/")

    def files() -> list[File]:
        listed = list_files(writer.path)
        return [(locate(each.path)[1][len(root) + 1 :], each.size, each.modified / 1e9) for each in listed]

    return Retention(sink, writer.path, writer.retain, files)
