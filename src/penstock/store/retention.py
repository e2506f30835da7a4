"""Remove the oldest files of a sink that is to keep only so many, so much, or so long: its own, never the newest."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.connectors.paths import list_files, locate
from penstock.connectors.write import Directory, Retain
from penstock.store.objects import Store

REMOVED = "_penstock/removed"
"""Where what is removed is hidden first, so that it is gone at once and whole."""
log = logging.getLogger(__name__)

File = tuple[str, int, float]
"""Name below the sink's directory, bytes, and when it was written, in seconds since 1970."""
_DIRECTORY = re.compile(r"(epoch=(\d{9}))/[^/]+")
_FILE = re.compile(r"(.+=.*/part-(\d{9})-\d{5}\.\w+)")


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
            found = _DIRECTORY.fullmatch(name) or _FILE.fullmatch(name)
            if found is not None and int(found[2]) <= committed:
                unit = units.setdefault(found[1], Unit(found[1], int(found[2])))
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
        found = list_files(writer.path)
        return [(locate(each.path)[1][len(root) + 1 :], each.size, each.modified / 1e9) for each in found]

    return Retention(sink, writer.path, writer.retain, files)
