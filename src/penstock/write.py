"""Say where rows go. A writer describes; the engine writes, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.errors import FlowError
from penstock.ingress.paths import absolute, is_file
from penstock.ingress.retries import retried
from penstock.public import makers
from penstock.read import FileFormat


@dataclass(frozen=True)
class Directory:
    """A directory with one sub-directory an epoch, which appears whole; part files by name."""

    path: str
    format: FileFormat
    header: bool = True


@dataclass(frozen=True)
class Memory:
    """Keep the rows; read them as `run.results[name]`."""


@dataclass(frozen=True)
class Console:
    """Print rows on the driver, at most `limit` an epoch."""

    limit: int = 20


@dataclass(frozen=True)
class Callback:
    """Call a function on the driver with each epoch's rows, in order: `function(rows, epoch)`."""

    function: Callable[[list[Any], int], Any]


@dataclass(frozen=True)
class FrameCallback:
    """Call a function with each epoch's rows as a Spark DataFrame: `function(dataframe, epoch)`."""

    function: Callable[[Any, int], Any]


Writer = Directory | Memory | Console | Callback | FrameCallback


def parquet(path: str) -> Directory:
    """Write Parquet: exactly once, in order."""
    return Directory(absolute(str(path)), "parquet")


def json(path: str) -> Directory:
    """Write JSON lines: exactly once, in order."""
    return Directory(absolute(str(path)), "json")


def csv(path: str, *, header: bool = True) -> Directory:
    """Write CSV: exactly once, in order."""
    return Directory(absolute(str(path)), "csv", header)


def memory() -> Memory:
    """Keep the rows in memory; read them as `run.results[name]`."""
    return Memory()


def console(limit: int = 20) -> Console:
    """Print rows on the driver."""
    return Console(limit)


def callback(function: Callable[[list[Any], int], Any]) -> Callback:
    """Call `function(rows, epoch)` on the driver; at least once, with the epoch as the idempotence key."""
    return Callback(function)


def frame(function: Callable[[Any, int], Any]) -> FrameCallback:
    """Call `function(dataframe, epoch)`: for any DataFrame writer; at least once."""
    return FrameCallback(function)


def refuse_file(sink: str, writer: Directory) -> None:
    """Refuse to write a directory where there is a file."""
    if retried(lambda: is_file(writer.path), f"sink {sink!r}: looking at", writer.path):
        raise FlowError(f"sink {sink!r}: {writer.path} is a file; give a directory")


def refuse_strangers(sink: str, writer: Directory, names: Iterable[str]) -> None:
    """Refuse a directory that holds files of somebody else, by the names in it: readers could not tell them apart."""
    others = sorted(name for name in names if name != "_penstock" and not name.startswith(("epoch=", ".")))
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise FlowError(
            f"sink {sink!r}: {writer.path} holds files that no run of Penstock has written ({others[0]}{more}), which "
            f"whoever reads the directory would take for rows; write to a directory of its own, or move them away"
        )


def as_writer(value: Any) -> Writer:
    """Take a writer as it is; wrap a function; None means memory."""
    if value is None:
        return Memory()
    if isinstance(value, (Directory, Memory, Console, Callback, FrameCallback)):
        return value
    if callable(value):
        return Callback(value)
    raise TypeError(
        f"{value!r} is no sink; use ps.write.parquet(...), json, csv, console, callback, frame, memory, "
        f"or a function of (rows, epoch)"
    )


def __dir__() -> list[str]:
    return makers(globals(), "Directory|Memory|Console|Callback|FrameCallback")
