"""Join part files of one format to one file, in their order."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow.parquet as pq

from penstock.connectors.part_files import FileWriter, sync_written
from penstock.connectors.paths import locate, open_path
from penstock.connectors.read import FileFormat
from penstock.connectors.retries import remove_quietly

PIECE = 1 << 22
"""Bytes of text that are copied at once."""


class JoinedFile:
    """A file that other files are added to; they must have the same fields."""

    def __init__(self, path: str, form: FileFormat, header: bool) -> None:
        """Make the file with the first rows. `header` tells whether files of CSV begin with one."""
        self._system, self._path = locate(path)
        self._form, self._header = form, header
        self._writer = FileWriter(self._system, self._path, form, header)
        self._files = 0

    def add(self, source: str) -> None:
        """Add the rows of a file."""
        with open_path(source) as file:
            if self._form == "parquet":
                for batch in pq.ParquetFile(file).iter_batches():
                    self._writer.write(batch)
            else:
                self._copy(file)
        self._files += 1

    def _copy(self, file: Any) -> None:
        piece = file.read(PIECE)
        if self._form == "csv" and self._header and self._files:
            piece = after_header(piece)
        while piece:
            self._writer.write_text(piece)
            piece = file.read(PIECE)

    def close(self) -> int:
        """Finish the file, down to the disk; return its bytes."""
        self._writer.close()
        sync_written(self._system, self._path)
        return int(self._system.get_file_info(self._path).size)

    def abandon(self) -> None:
        """Remove the file."""
        with suppress(Exception):
            self._writer.close()
        remove_quietly(self._system, self._path)


def join_files(kept: Mapping[str, Any], path: str) -> JoinedFile:
    """Begin a file that parts of the kind that is kept (format, header) are joined to."""
    return JoinedFile(path, kept["format"], kept["header"])


def after_header(text: bytes) -> bytes:
    """Return what is after the first line of CSV; the names in it may have ends of lines in quotes."""
    quoted = False
    for place, byte in enumerate(text):
        if byte == 0x22:
            quoted = not quoted
        elif byte == 0x0A and not quoted:
            return text[place + 1 :]
    return b""
