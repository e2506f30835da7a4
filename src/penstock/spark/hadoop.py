"""Stores that Hadoop reaches, such as HDFS: through Spark, because only Hadoop's own client keeps the promises of one.

Arrow's file system for HDFS answers "not found" where the name node does not answer, and renames a file onto one that
is there by removing that one first. Hadoop's client tells absent from failed, and of two renames onto one name the name
node lets one through.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.store.objects import Store

_ABSENT = "java.io.FileNotFoundException"
_TAKEN = "org.apache.hadoop.fs.FileAlreadyExistsException"
_REFUSED = "org.apache.hadoop.security.AccessControlException"


def open_hadoop(path: str, **options: Any) -> Store:
    """Return the store of a path that Spark's Hadoop knows; Spark is started where it does not run."""
    from penstock.spark.session import make_session

    return HadoopStore(path, make_session("penstock").sparkContext, **options)


class HadoopStore(Store):
    """Files of HDFS."""

    def __init__(self, root: str, context: Any, **options: Any) -> None:
        super().__init__(root, **options)
        self._gateway, hadoop = context._gateway, context._jvm.org.apache.hadoop.fs
        self._make_path, self._read_all = hadoop.Path, context._jvm.org.apache.commons.io.IOUtils.toByteArray
        configuration = context._jsc.hadoopConfiguration()
        place = hadoop.Path(self.root)
        self._files = place.getFileSystem(configuration)
        self._inside = self._files.makeQualified(place).toString()  # "hdfs:///a" names no name node
        self._renames = hadoop.FileContext.getFileContext(configuration)
        self._rename_kinds = getattr(hadoop, "Options$Rename")

    def _attempt(self, what: str, name: str, call: Callable[[], Any]) -> Any:
        from py4j.protocol import Py4JError

        def translated() -> Any:
            try:
                return call()
            except Py4JError as error:
                kind, words = _kind(error), _words(error)
                if kind == _REFUSED:
                    raise PermissionError(errno.EACCES, words) from error
                raise OSError(words) from error

        return super()._attempt(what, name, translated)

    def _at(self, name: str) -> Any:
        return self._make_path(f"{self._inside}/{name}" if name else self._inside)

    def _get(self, name: str) -> bytes | None:
        with _unless(_ABSENT):
            stream = self._files.open(self._at(name))
            try:
                return bytes(self._read_all(stream))
            finally:
                stream.close()
        return None

    def _put(self, name: str, content: bytes) -> None:
        self._name(self._write(name, content), self._at(name), "OVERWRITE")

    def _put_new(self, name: str, content: bytes) -> bool:
        temporary = self._write(name, content)
        with _unless(_TAKEN):
            self._name(temporary, self._at(name), "NONE")
            return True
        self._files.delete(temporary, False)
        return False

    def _write(self, name: str, content: bytes) -> Any:
        directory, _, last = name.rpartition("/")
        temporary = self._at(f"{directory}/.{last}.{uuid.uuid4().hex}.tmp")
        stream = self._files.create(temporary, True)
        try:
            stream.write(content)
            stream.hsync()
        finally:
            stream.close()
        return temporary

    def _name(self, source: Any, target: Any, kind: str) -> None:
        kinds = self._gateway.new_array(self._rename_kinds, 1)
        kinds[0] = getattr(self._rename_kinds, kind)
        self._renames.rename(source, target, kinds)

    def _list(self, directory: str) -> list[str]:
        with _unless(_ABSENT):
            return [str(found.getPath().getName()) for found in self._files.listStatus(self._at(directory))]
        return []

    def _exists(self, name: str) -> bool:
        with _unless(_ABSENT):
            self._files.getFileStatus(self._at(name))
            return True
        return False

    def _delete(self, name: str) -> None:
        self._files.delete(self._at(name), True)

    def _make_room(self, directory: str) -> None:
        self._files.mkdirs(self._at(directory))

    def _rename(self, source: str, target: str) -> bool:
        with _unless(_TAKEN, _ABSENT):
            self._name(self._at(source), self._at(target), "NONE")
            return True
        return False


@contextmanager
def _unless(*kinds: str) -> Iterator[None]:
    """Go on after exceptions of Java's of some kinds."""
    try:
        yield
    except Exception as error:
        if _kind(error) not in kinds:
            raise


def _kind(error: BaseException) -> str | None:
    """Return the class of the Java exception that an error stands for."""
    problem = getattr(error, "java_exception", None)
    return None if problem is None else str(problem.getClass().getName())


def _words(error: BaseException) -> str:
    problem = getattr(error, "java_exception", None)
    text = str(error) if problem is None else f"{_kind(error)}: {problem.getMessage()}"
    return (text.splitlines() or [type(error).__name__])[0]
