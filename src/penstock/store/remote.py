"""Stores that are reached by a URI: object stores through `obstore`, which can put if absent, others as engines say.

Only the driver needs this: tasks write objects whose names no other task uses, through `pyarrow.fs`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from penstock.errors import CheckpointError
from penstock.store.objects import Store

_EXTRAS = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure"}
"""For each kind of URI, the extra that brings what is needed."""
OPENERS: dict[str, Callable[..., Store]] = {}
"""For kinds of URI that an engine reaches, how."""


def open_remote(path: str, **options: Any) -> Store:
    """Return the store of a URI; refuse one that cannot tell which of two drivers was first."""
    scheme = path.split("://", 1)[0]
    if scheme in OPENERS:
        return OPENERS[scheme](path, **options)
    if scheme not in _EXTRAS:
        raise CheckpointError(
            f"{path}: Penstock does not know how to write there so that of two drivers only one can commit; use a "
            f"local or shared disk, or {', '.join(f'{known}://' for known in (*OPENERS, *_EXTRAS))}"
        )
    try:
        from obstore import store as stores
    except ImportError:
        raise CheckpointError(
            f"{path}: to keep a run on an object store, the driver needs obstore, whose conditional writes make sure "
            f"that of two drivers only one commits: pip install 'penstock[{_EXTRAS[scheme]}]', or put the checkpoint "
            f"on a shared disk"
        ) from None
    known = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}.get(scheme, scheme)
    url = f"{known}://{path.split('://', 1)[1]}"
    extra = {"client_options": {"allow_http": True}} if known == "s3" else {}
    # Tried again by `Store`, which knows how long and says so.
    return ObjectStore(path, stores.from_url(url, retry_config={"max_retries": 1}, **extra), **options)


class ObjectStore(Store):
    """Objects of S3, Google Cloud Storage or Azure."""

    renames = False

    def __init__(self, root: str, store: Any, **options: Any) -> None:
        super().__init__(root, **options)
        self._store = store

    def _attempt(self, what: str, name: str, call: Any) -> Any:
        from obstore import exceptions

        def translated() -> Any:
            try:
                return call()
            except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
                raise PermissionError(errno.EACCES, _first_line(error)) from error
            except exceptions.BaseError as error:
                raise OSError(_first_line(error)) from error

        return super()._attempt(what, name, translated)

    def _get(self, name: str) -> bytes | None:
        import obstore

        try:
            return bytes(obstore.get(self._store, name).bytes())
        except (obstore.exceptions.NotFoundError, FileNotFoundError):
            return None

    def _put(self, name: str, content: bytes) -> None:
        import obstore

        obstore.put(self._store, name, content, mode="overwrite", use_multipart=False)

    def _put_new(self, name: str, content: bytes) -> bool:
        import obstore

        try:
            obstore.put(self._store, name, content, mode="create", use_multipart=False)
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            return False
        return True

    def _list(self, directory: str) -> list[str]:
        import obstore

        listed = obstore.list_with_delimiter(self._store, directory or None)
        paths = [item["path"] for item in listed["objects"]] + list(listed["common_prefixes"])
        # pyarrow marks directories by empty objects of their name, which are nothing that is in them.
        inside = [path.strip("/") for path in paths if path.strip("/") != directory.strip("/")]
        return [path.rpartition("/")[2] for path in inside]

    def partitions(self, directory: str = "") -> list[str]:
        """Return the paths of all objects: a request per thousand, where one per partition would take minutes."""
        import obstore

        paths = self._attempt(
            "listing", directory, lambda: [item["path"] for batch in obstore.list(self._store) for item in batch]
        )
        return [path for path in paths if path.startswith(directory)]

    def _exists(self, name: str) -> bool:
        import obstore

        if self._list(name):
            return True
        try:
            obstore.head(self._store, name)
        except (obstore.exceptions.NotFoundError, FileNotFoundError):
            return False
        return True

    def _delete(self, name: str) -> None:
        import obstore

        paths = [item["path"] for batch in obstore.list(self._store, name) for item in batch]
        # A prefix is no directory: "a/b" also finds "a/bc".
        inside = [path for path in paths if path == name or path.startswith(f"{name}/")]
        with suppress(obstore.exceptions.NotFoundError, FileNotFoundError):
            obstore.delete(self._store, inside or [name])

    def _publish(self, source: str, target: str, names: Collection[str]) -> bool:
        """Copy the files one by one: each appears whole, and again is no harm."""
        import obstore

        for name in names:
            try:
                obstore.copy(self._store, f"{source}/{name}", f"{target}/{name}", overwrite=True)
            except (obstore.exceptions.NotFoundError, FileNotFoundError):
                if not self._exists(f"{target}/{name}"):
                    return bool(self._list(target))  # sources go last: all was there, and some was removed since
        for name in self._list(target):
            if name not in names:  # of an attempt whose commit was lost: the same rows in other files
                self._delete(f"{target}/{name}")
        self._delete(source)
        return True

    def _move(self, source: str, target: str) -> bool:
        """Copy the file, and remove it where it was: it appears whole."""
        import obstore

        if not self._exists(target):
            try:
                obstore.copy(self._store, source, target, overwrite=True)
            except (obstore.exceptions.NotFoundError, FileNotFoundError):
                return self._exists(target)
        self._delete(source)
        return True


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
