"""Objects below one place, by name: put, put if absent, get, list, delete, publish.

What is *absent* is an answer (None, False, an empty list); what *failed* is not: it is tried again for a while and
then raised as `StorageError`, so that one is never taken for the other. Puts appear whole or not at all.

Documents are small objects of JSON with a checksum: one that is damaged is neither absent nor to be trusted.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import time
import uuid
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from penstock.clock import waiting_time
from penstock.connectors.paths import sync_file
from penstock.errors import FINAL_FIXES, CheckpointError, StorageError

PATIENCE_SECONDS = 30.0
"""How long a failing operation is tried again."""
GRACE_SECONDS = 3600.0
"""An unfinished file belongs to no driver once it is that old."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_REACHABLE = (
    "nothing that was committed is lost: see that the place can be reached and written, and start again with the same "
    "checkpoint"
)

Json = dict[str, Any]
Result = TypeVar("Result")


class DamagedError(CheckpointError):
    """Report a document that was read and does not have the content that was written."""


class Store(ABC):
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
        which must therefore be its own.
        """
        if self._attempt("writing", name, lambda: self._put_new(name, content)):
            return True
        return self.get(name) == content

    def read(self, name: str) -> Json | None:
        """Return a document, None where there is none; raise `DamagedError` where it is not what was written."""
        for _ in range(2):  # what was damaged may have been the reading
            content = self.get(name)
            if content is None:
                return None
            with suppress(ValueError):
                crc, text = content.rstrip(b"\n").split(b" ", 1)
                if int(crc, 16) == zlib.crc32(text):
                    body: Json = json.loads(text)
                    return body
        raise DamagedError(f"{self.path(name)} is damaged; restore it from a copy")

    def write(self, name: str, body: Json) -> None:
        """Write a document, in place of the one that is there."""
        self.put(name, _encoded(body))

    def write_new(self, name: str, body: Json) -> bool:
        """Write a document if there is none; tell whether it is the one that is there."""
        return self.put_new(name, _encoded(body))

    def names(self, directory: str, *, hidden: bool = False) -> list[str]:
        """Return the names in a directory, sorted; none where there is no such directory."""
        names = self._attempt("listing", directory, lambda: self._list(directory))
        return sorted(name for name in names if hidden or not name.startswith("."))

    def partitions(self, directory: str = "") -> list[str]:
        """Return the names in the directory of a sink, and the paths of what is in those of partitions."""
        paths = []
        for name in self.names(directory.rstrip("/")):
            paths.append(f"{directory}{name}")
            if "=" in name and not name.startswith("epoch="):
                paths += self.partitions(f"{directory}{name}/")
        return paths

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

    def sync(self, directory: str) -> None:  # noqa: B027
        """Bring the names in a directory down to the disk, where needed: of what others wrote, or was published."""

    def sweep(self, directory: str) -> None:  # noqa: B027
        """Remove unfinished files that no driver will finish."""

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

    # How, for subclasses: an `OSError` is tried again. Publishing and moving may be done again, too.

    @abstractmethod
    def _get(self, name: str) -> bytes | None: ...

    @abstractmethod
    def _put(self, name: str, content: bytes) -> None: ...

    @abstractmethod
    def _put_new(self, name: str, content: bytes) -> bool: ...

    @abstractmethod
    def _list(self, directory: str) -> list[str]: ...

    @abstractmethod
    def _exists(self, name: str) -> bool: ...

    @abstractmethod
    def _delete(self, name: str) -> None: ...

    def _rename(self, source: str, target: str) -> bool:
        """Give a file or directory another name that is not taken, at once; False where there is none, or it is."""
        raise NotImplementedError

    def _publish(self, source: str, target: str, names: Collection[str]) -> bool:
        if not self._exists(target):
            for name in self._list(source):
                if name not in names:  # of attempts that were killed
                    self._delete(f"{source}/{name}")
            if self._rename(source, target):
                return True
            if not self._exists(target):
                return False
        self._delete(source)  # another came first, with the same rows
        return True

    def _make_room(self, directory: str) -> None:  # noqa: B027
        """Make a directory, where files cannot be without."""

    def _move(self, source: str, target: str) -> bool:
        if self._exists(target):
            return True
        self._make_room(target.rpartition("/")[0])
        return self._rename(source, target) or self._exists(target)


def _encoded(body: Json) -> bytes:
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    return f"{zlib.crc32(text.encode()):08x} {text}\n".encode()


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
        with self._written(name, content) as temporary:
            os.replace(temporary, self.path(name))
        sync_directory(os.path.dirname(self.path(name)))

    def _put_new(self, name: str, content: bytes) -> bool:
        with self._written(name, content) as temporary:
            try:
                os.link(temporary, self.path(name))  # fails if the target exists: the one atomic way to be first
            except FileExistsError:
                return False
        sync_directory(os.path.dirname(self.path(name)))
        return True

    @contextmanager
    def _written(self, name: str, content: bytes) -> Iterator[str]:
        """Write a file of another name, down to the disk, which is gone afterwards: a full disk must not become fuller.

        Makes the directory around it where there is none.
        """
        directory, last = os.path.split(self.path(name))
        temporary = f"{directory}/.{last}.{uuid.uuid4().hex}.tmp"
        try:
            file = open(temporary, "wb")  # noqa: SIM115
        except FileNotFoundError:
            os.makedirs(directory, exist_ok=True)
            file = open(temporary, "wb")  # noqa: SIM115
        try:
            with file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(OSError):
                os.unlink(temporary)

    def _list(self, directory: str) -> list[str]:
        try:
            return os.listdir(self.path(directory))
        except (FileNotFoundError, NotADirectoryError):
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

    def _make_room(self, directory: str) -> None:
        os.makedirs(self.path(directory), exist_ok=True)

    def _rename(self, source: str, target: str) -> bool:
        try:
            os.rename(self.path(source), self.path(target))
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
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
