"""Reach files by path or URI through `pyarrow.fs`, so that local disks and object stores are alike."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from penstock.errors import FlowError

_CODECS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}
"""How text files are compressed, by how their names end."""
Stamp = list[int]
"""Size and time of change of a file."""


class Found(NamedTuple):
    path: str
    modified: int
    """Nanoseconds since 1970."""
    size: int

    @property
    def stamp(self) -> Stamp:
        """What tells the file from another of its name; asked for one object, stores give whole seconds."""
        return [self.size, self.modified // (10**9 if "://" in self.path else 1)]


def locate(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path inside it."""
    if "://" in path:
        # Hadoop's names for S3, which Spark users write.
        system, inside = fs.FileSystem.from_uri(re.sub(r"^s3[an]://", "s3://", path))
        return system, inside
    return _local(), str(Path(path).absolute())


def path_given(path: Any, what: str) -> str:
    """Return a path that a user gave as text; refuse other types, since `str` makes a path of anything."""
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise FlowError(f'{what}: {path!r} is no path; give the name of a directory, such as "data/orders"')
    return str(path)


def absolute(path: str) -> str:
    """Return a path that means the same in every process: workers may have another working directory."""
    return path if "://" in path else str(Path(path).absolute())


@lru_cache(maxsize=2)
def _local(mapped: bool = False) -> fs.FileSystem:
    return fs.LocalFileSystem(use_mmap=mapped)


def open_path(path: str, *, mapped: bool = False) -> Any:
    """Open a file for random access; `mapped` into memory on a local disk."""
    system, inside = locate(path)
    return (_local(True) if mapped and system.type_name == "local" else system).open_input_file(inside)


def open_text(path: str) -> Any:
    """Open a file for reading from its start; what its name says is compressed is not, as it is read."""
    file, codec = open_path(path), _codec(path)
    return file if codec is None else pa.CompressedInputStream(file, codec)


def is_damaged(error: OSError, path: str) -> bool:
    """Tell whether an error of reading a compressed file comes from what is in it, and not from disk or network.

    Arrow reports both alike: as OSError without a number. So all of the file is fetched, and read from memory.
    """
    codec = _codec(path)
    if codec is None or error.errno is not None:
        return False
    with open_path(path) as file:
        content = file.read()
    try:
        with pa.CompressedInputStream(pa.BufferReader(content), codec) as stream:
            while stream.read(1 << 20):
                pass
    except OSError:
        return True
    return False


def _codec(path: str) -> str | None:
    return _CODECS.get(path.rpartition(".")[2])


def list_files(path: str) -> list[Found]:
    """List the files below a directory (or the one file), hidden ones left out, in no particular order."""
    system, inside = locate(path)
    info = system.get_file_info(inside)
    if info.type == fs.FileType.File:
        infos = [info]
    elif info.type == fs.FileType.Directory:
        # Elsewhere there are no directories that could go: names are listed by how they begin.
        infos = (
            _walk(system, inside)
            if system.type_name == "local"
            else system.get_file_info(fs.FileSelector(inside, recursive=True))
        )
    else:
        infos = []
    prefix = path.split("://", 1)[0] + "://" if "://" in path else ""
    return [
        Found(prefix + item.path, item.mtime_ns or 0, item.size)
        for item in infos
        if item.type == fs.FileType.File
        and not is_hidden(item.path[len(inside) :])  # what the user named is not, wherever it is
        and item.size
    ]


def _walk(system: Any, directory: str) -> list[Any]:
    """List what is below a directory that others change meanwhile, hidden ones left out: one that goes is gone."""
    items, left = [], [directory]
    while left:
        for item in system.get_file_info(fs.FileSelector(left.pop(), allow_not_found=True)):
            items.append(item)
            if item.type == fs.FileType.Directory and not is_hidden(item.base_name):
                left.append(item.path)
    return items


def stamp_of(path: str) -> Stamp | None:
    """Return what tells a file from another of its name; None where there is none."""
    system, inside = locate(path)
    info = system.get_file_info(inside)
    return None if info.type == fs.FileType.NotFound else Found(path, info.mtime_ns or 0, info.size or 0).stamp


def exists(path: str) -> bool:
    system, inside = locate(path)
    return bool(system.get_file_info(inside).type != fs.FileType.NotFound)


def is_file(path: str) -> bool:
    system, inside = locate(path)
    return bool(system.get_file_info(inside).type == fs.FileType.File)


def is_hidden(path: str) -> bool:
    """Tell whether a part of a path begins with _ or ., as names that readers skip."""
    return any(part.startswith(("_", ".")) for part in path.split("/") if part)


def sync_file(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
