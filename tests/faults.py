"""Make single reads and writes of files fail, here or in workers: a local file system that breaks off now and then.

Everything that Penstock reads or writes goes through `penstock.connectors.paths`, so that is where the faults are put.
In a worker they come with the module of a flow's functions: one that calls `from_environment` when it is imported.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyarrow import fs

from penstock.connectors import paths

VARIABLE = "PENSTOCK_TEST_FAULTS"
"""`SEED RATE NOTES PATTERN`: which share of operations fails, on paths that match; NOTES is a file for what failed."""
Decide = Callable[[str, str], bool]
"""Whether an operation (open, create, read, write, close, list) on a path fails."""


class Fault(OSError):
    """Stands for what a store says when it is busy."""


class FaultyFile:
    """A file whose operations fail when they are told to."""

    def __init__(self, file: Any, path: str, decide: Decide) -> None:
        self._file, self._path, self._decide = file, path, decide

    def read(self, *size: int) -> bytes:
        self._check("read")
        return bytes(self._file.read(*size))

    def read_buffer(self, *size: int) -> Any:
        """Read as Arrow does, without a copy."""
        self._check("read")
        return self._file.read_buffer(*size)

    def write(self, data: Any) -> int:
        self._check("write")
        return int(self._file.write(data) or 0)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        written = not self._file.closed and self._file.writable()
        self._file.close()
        if written:
            self._check("close")  # a store has the object only now, or has it not

    def __enter__(self) -> FaultyFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def _check(self, operation: str) -> None:
        if self._decide(operation, self._path):
            raise Fault(f"SLOW_DOWN during {operation} of {self._path}")


class FaultyStore:
    """The local file system, with faults."""

    type_name = "local"

    def __init__(self, decide: Decide) -> None:
        self._system, self._decide = fs.LocalFileSystem(), decide

    def open_input_file(self, path: str) -> FaultyFile:
        self._check("open", path)
        return FaultyFile(self._system.open_input_file(path), path, self._decide)

    def open_output_stream(self, path: str, **options: Any) -> FaultyFile:
        self._check("create", path)
        return FaultyFile(self._system.open_output_stream(path, **options), path, self._decide)

    def get_file_info(self, asked: Any) -> Any:
        self._check("list", getattr(asked, "base_dir", asked))
        return self._system.get_file_info(asked)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)

    def _check(self, operation: str, path: str) -> None:
        if self._decide(operation, path):
            raise Fault(f"SLOW_DOWN during {operation} of {path}")


def at_random(seed: int, rate: float, pattern: str) -> Decide:
    """Let a share of the operations on some paths fail."""
    draw, matches = random.Random(seed), re.compile(pattern).search
    return lambda operation, path: bool(matches(path)) and draw.random() < rate


@contextmanager
def faults(decide: Decide) -> Iterator[None]:
    """Let operations of this process fail."""
    store = FaultyStore(decide)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "_local", lambda mapped=False: store)
        yield


def from_environment() -> None:
    """Let operations of this process fail from now on, where the environment says so."""
    found = os.environ.get(VARIABLE)
    if found:
        seed, rate, notes, pattern = found.split(" ", 3)
        # Each process draws other numbers: a worker that comes in the place of another is no copy of it.
        decide = at_random(int(seed) * 1_000_003 + os.getpid(), float(rate), pattern)

        def noted(operation: str, path: str) -> bool:
            fails = decide(operation, path)
            if fails:
                with open(notes, "a") as file:  # what workers log goes nowhere
                    file.write(f"{operation} {path}\n")
            return fails

        store = FaultyStore(noted)
        paths._local = lambda mapped=False: store  # type: ignore[assignment]
