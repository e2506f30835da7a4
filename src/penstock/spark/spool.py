"""Hold what was sent to a task until all of it is there: in memory up to a limit, then in a file that is mapped."""

from __future__ import annotations

import tempfile
from typing import IO, Any

import pyarrow as pa

from penstock.spark.envelope import Envelope, Kind, Payload, as_buffer, size_of

MEMORY_BYTES = 64 << 20

Place = Any
"""A payload in memory, or (offset, length) in the file."""


class Spool:
    """Envelopes of one task. A shuffle delivers in any order, so the first row may come last."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit, self._held = limit, 0
        self._file: IO[bytes] | None = None
        self._map: Any = None
        self.data: dict[int, list[tuple[int, Place]]] = {}
        """For each edge, the first position and the place of each run."""
        self.marks: list[tuple[int, bytes]] = []

    def add(self, envelope: Envelope) -> None:
        if envelope.kind == Kind.MARK:
            self.marks.append((envelope.edge, bytes(envelope.payload)))
            return
        if envelope.kind == Kind.WAKE:
            return
        place: Place = envelope.payload
        size = size_of(envelope.payload)
        if self._held + size > self._limit:
            place = self._spill(as_buffer(envelope.payload))
        else:
            self._held += size
        self.data.setdefault(envelope.edge, []).append((envelope.position, place))

    def seal(self) -> None:
        """Say that all is there; runs can be read from now on."""
        if self._file is not None:
            self._file.flush()
            self._map = pa.memory_map(self._file.name, "r")

    def read(self, place: Place) -> Payload:
        """Return a payload; one in the file is mapped, not copied."""
        if not isinstance(place, tuple):
            return place
        offset, length = place
        self._map.seek(offset)
        return self._map.read_buffer(length)

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self, payload: Any) -> tuple[int, int]:
        if self._file is None:
            self._file = tempfile.NamedTemporaryFile(prefix="penstock-spool-")  # noqa: SIM115
        # Arrow wants its buffers aligned.
        offset = -(-self._file.tell() // 64) * 64
        self._file.seek(offset)
        self._file.write(payload)
        return offset, len(payload)
