"""Objects below one place, by name: put, put if absent, get, list, delete, publish.

What is *absent* is an answer (None, False, an empty list); what *failed* is not: it is tried again for a while and
then raised as `StorageError`, so that nobody can take the one for the other. Puts appear whole or not at all.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from penstock.clock import waiting_time
from penstock.errors import FINAL_FIXES, StorageError

PATIENCE_SECONDS = 30.0
"""How long a failing operation is tried again."""
GRACE_SECONDS = 3600.0
"""An unfinished file is nobody's once it is that old."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_REACHABLE = (
    "nothing that was committed is lost: see that the place can be reached and written, and start again with the same "
    "checkpoint"
)

Result = TypeVar("Result")


class Store:
    """Objects below a place. A subclass says how; this class tries again, and tells absent from failed.

    `owner` is what the place is for, as errors name it: "sink 'out'".
    """

    renames = True
    """Whether a directory gets another name at once; otherwise its files are copied, one by one."""

    def __init__(
        self,
        root: str,
        *,
        owner: str = "",
        patience: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = waiting_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.root = root.rstrip("/") or "/"
        self._owner = f"{owner}: " if owner else ""
        self._patience, self._clock, self._sleep = patience, clock, sleep

    def path(self, name: str) -> str:
        """Return what users know an object by."""
        return f"{self.root}/{name}" if name else self.root

    def get(self, name: str) -> bytes | None:
        """Return an object, None where there is none."""
        return self._attempt("reading", name, lambda: self._get(name))

    def put(self, name: str, content: bytes) -> None:
        """Write an object, in place of the one that is there."""
        self._attempt("writing", name, lambda: self._put(name, content))

    def put_new(self, name: str, content: bytes) -> bool:
        """Write an object if there is none; tell whether this content is what is kept under the name.

        Of several who try, one succeeds. A write that took effect and was reported as failed is found by its content,
        which must therefore be nobody else's.
        """
        if self._attempt("writing", name, lambda: self._put_new(name, content)):
            return True
        return self.get(name) == content

    def names(self, directory: str, *, hidden: bool = False) -> list[str]:
        """Return the names in a directory, sorted; none where there is no such directory."""
        names = self._attempt("listing", directory, lambda: self._list(directory))
        return sorted(name for name in names if hidden or not name.startswith("."))

    def exists(self, name: str) -> bool:
        """Tell whether there is an object or a directory of this name."""
        return self._attempt("looking for", name, lambda: self._exists(name))

    def delete(self, name: str) -> None:
        """Remove an object, or a directory with all that is in it, if it is there."""
        self._attempt("removing", name, lambda: self._delete(name))

    def publish(self, source: str, target: str, names: Collection[str]) -> bool:
        """Make files of the directory `source` appear as the directory `target`, and `source` go away.

        Again is no harm. Tells whether they are there: False where neither directory has them. `sync` of the directory
        around `target` makes it last.
        """
        return self._attempt("publishing", target, lambda: self._publish(source, target, names))

    def move(self, source: str, target: str) -> bool:
        """Give one file another name, unless there is one of that name; again is no harm.

        Tells whether it is there: False where neither name is. Directories around the target are made.
        """
        return self._attempt("publishing", target, lambda: self._move(source, target))

    def sync(self, directory: str) -> None:
        """Bring the names in a directory down to the disk, where needed: of what others wrote, or was published."""

    def sweep(self, directory: str) -> None:
        """Remove unfinished files that nobody will come to give their names."""

    def unfinished(self, directory: str) -> list[str]:
        """Return the files of a directory that were never finished."""
        return [name for name in self.names(directory, hidden=True) if name.endswith(".tmp")]

    def _attempt(self, what: str, name: str, call: Callable[[], Result]) -> Result:
        began, pause = self._clock(), _FIRST_PAUSE
        for attempt in itertools.count(1):
            try:
                return call()
            except OSError as error:
                waited, fix = self._clock() - began, FINAL_FIXES.get(error.errno or 0)
                if fix is not None or waited + pause > self._patience:
                    words = f"{type(error).__name__}: {error}"
                    where, final = self.path(name), fix is not None
                    raise StorageError(
                        f"{self._owner}{what}", where, attempt, words, fix or _REACHABLE, final
                    ) from error
                self._sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        raise AssertionError("an attempt returns or raises")

    def _get(self, name: str) -> bytes | None:
        raise NotImplementedError

    def _put(self, name: str, content: bytes) -> None:
        raise NotImplementedError

    def _put_new(self, name: str, content: bytes) -> bool:
        raise NotImplementedError

    def _list(self, directory: str) -> list[str]:
        raise NotImplementedError

    def _exists(self, name: str) -> bool:
        raise NotImplementedError

    def _delete(self, name: str) -> None:
        raise NotImplementedError

    def _publish(self, source: str, target: str, names: Collection[str]) -> bool:
        raise NotImplementedError

    def _move(self, source: str, target: str) -> bool:
        raise NotImplementedError


class LocalStore(Store):
    """Files of a local disk, or of a network disk that links and renames as one does."""

    def __init__(self, root: str, **options: Any) -> None:
        super().__init__(str(Path(root).absolute()), **options)

    def _get(self, name: str) -> bytes | None:
        try:
            with open(self.path(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def _put(self, name: str, content: bytes) -> None:
        temporary = self._write(name, content)
        os.replace(temporary, self.path(name))
        sync_directory(os.path.dirname(self.path(name)))

    def _put_new(self, name: str, content: bytes) -> bool:
        temporary = self._write(name, content)
        try:
            os.link(temporary, self.path(name))  # fails if the target exists: the one atomic way to be first
        except FileExistsError:
            return False
        finally:
            with suppress(OSError):
                os.unlink(temporary)
        sync_directory(os.path.dirname(self.path(name)))
        return True

    def _write(self, name: str, content: bytes) -> str:
        """Write a file of another name, down to the disk; make the directory around it where there is none."""
        directory, last = os.path.split(self.path(name))
        temporary = f"{directory}/.{last}.{uuid.uuid4().hex}.tmp"
        try:
            file = open(temporary, "wb")  # noqa: SIM115
        except FileNotFoundError:
            os.makedirs(directory, exist_ok=True)
            file = open(temporary, "wb")  # noqa: SIM115
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return temporary

    def _list(self, directory: str) -> list[str]:
        try:
            return os.listdir(self.path(directory))
        except FileNotFoundError:
            return []

    def _exists(self, name: str) -> bool:
        try:
            os.stat(self.path(name))
        except FileNotFoundError:
            return False
        return True

    def _delete(self, name: str) -> None:
        path = self.path(name)
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            if not os.path.isdir(path) or os.path.islink(path):
                raise
            _remove_tree(path)

    def _publish(self, source: str, target: str, names: Collection[str]) -> bool:
        if self._exists(target):
            self._delete(source)
            return True
        left_over = [name for name in self._list(source) if name not in names]
        for name in left_over:  # of attempts that were killed
            self._delete(f"{source}/{name}")
        try:
            os.rename(self.path(source), self.path(target))
        except FileNotFoundError:
            return self._exists(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self._delete(source)  # another came first, with the same rows
            return True
        return True

    def _move(self, source: str, target: str) -> bool:
        if not self._exists(target):
            os.makedirs(os.path.dirname(self.path(target)), exist_ok=True)
            try:
                os.rename(self.path(source), self.path(target))
            except FileNotFoundError:
                return self._exists(target)
        return True

    def sync(self, directory: str) -> None:
        sync_directory(self.path(directory))

    def sweep(self, directory: str) -> None:
        for name in self.unfinished(directory):
            with suppress(FileNotFoundError):
                if time.time() - os.stat(self.path(f"{directory}/{name}")).st_mtime > GRACE_SECONDS:
                    self.delete(f"{directory}/{name}")


def _remove_tree(path: str) -> None:
    """Remove a directory; what another removes at the same time is gone as well."""
    for inside, _, files in os.walk(path, topdown=False):
        for name in files:
            with suppress(FileNotFoundError):
                os.unlink(f"{inside}/{name}")
        with suppress(FileNotFoundError):
            os.rmdir(inside)  # fails where something was added meanwhile: then all is tried again


def sync_file(path: str) -> None:
    """Bring a file down to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: str) -> None:
    """Bring the names in a directory down to the disk, where the system can."""
    with suppress(OSError):
        sync_file(path)


def open_store(path: str, **options: Any) -> Store:
    """Return the store of a path or URI; refuse one where of two drivers both could be first."""
    if "://" not in path:
        return LocalStore(path, **options)
    if path.startswith("file://"):
        return LocalStore(path.removeprefix("file://"), **options)
    from penstock.store.remote import open_remote

    return open_remote(path, **options)
