"""Rows that go from one task to another on the same machine: by a file, of which Spark moves only the name.

Through Spark each byte would be copied half a dozen times and compressed: with a million rows an epoch that was a third
of all processor time. A file is a task's own, so that one that runs twice disturbs nobody; the driver removes all of an
epoch together.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

ALIGNED = 64
"""Arrow wants its buffers at multiples of so many bytes."""
LEAST_BYTES = 1 << 16
"""What is shorter goes through Spark, which is no slower then."""


@dataclass(frozen=True)
class FilePart:
    """Where a batch of rows is, as an Arrow stream."""

    path: str
    offset: int
    length: int


class SharedFile:
    """What one task has for others."""

    def __init__(self, directory: str | None) -> None:
        """Without a directory everything goes through Spark."""
        self._path = None if directory is None else f"{directory}/{uuid.uuid4().hex}"
        self._file: Any = None

    def put(self, batch: pa.RecordBatch) -> pa.RecordBatch | FilePart:
        """Write a batch; it comes back if it is short, or cannot be written."""
        if self._path is None or batch.nbytes < LEAST_BYTES:
            return batch
        try:
            if self._file is None:
                self._file = pa.OSFile(self._path, "wb")
            offset = -(-self._file.tell() // ALIGNED) * ALIGNED
            self._file.write(bytes(offset - self._file.tell()))
            with pa.ipc.new_stream(self._file, batch.schema) as writer:
                writer.write_batch(batch)
            return FilePart(self._path, offset, self._file.tell() - offset)
        except OSError:  # no room: Spark may have some elsewhere
            self.close()
            self._path = None
            return batch

    def close(self) -> None:
        """Write no more."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


class MappedFiles:
    """Files of others, each mapped once."""

    def __init__(self) -> None:
        self._maps: dict[str, Any] = {}

    def read(self, part: FilePart) -> pa.Buffer:
        """Return what was written; it is mapped, not copied. Raises `OSError` where the file is gone."""
        if part.path not in self._maps:
            self._maps[part.path] = pa.memory_map(part.path, "r")
        found = self._maps[part.path]
        found.seek(part.offset)
        return found.read_buffer(part.length)
