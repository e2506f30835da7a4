"""The content of tables that rows were looked up in, as long as an entry of the log names it.

An object has the columns that the lookup needs, in the order of the table's rows. Its name is the fence of the driver
that wrote it and the hash of its content, so that damage shows, and no driver removes what another may need.
"""

from __future__ import annotations

from hashlib import blake2b

import pyarrow as pa

from penstock.connectors.paths import open_path
from penstock.connectors.retries import retried
from penstock.errors import CheckpointError
from penstock.store.checkpoint import TABLES
from penstock.store.objects import Store


def put_table(store: Store, fence: int, table: pa.Table, known: str | None) -> str:
    """Keep what a table has; return its name, the known one where that has the same content."""
    content = _serialized(table)
    if known is not None and _is(known, content):
        return known
    name = f"{fence:09d}-{_hash(content)}"
    store.put(f"{TABLES}/{name}", content)
    store.sync(TABLES)
    return name


def is_kept(name: str, table: pa.Table) -> bool:
    """Tell whether a table has the content that is kept under a name."""
    return _is(name, _serialized(table))


def _serialized(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(buffer.getvalue().to_pybytes())


def read_kept(checkpoint: str, operator: str, name: str) -> pa.Table:
    """Read what a lookup's table had; in any process."""
    path = f"{checkpoint}/{TABLES}/{name}"
    content = retried(lambda: _read(path), f"operator {operator!r}: reading the table that was kept,", path)
    if not _is(name, content):
        raise CheckpointError(
            f"the table {path} is damaged: its content no longer has the hash in its name; restore it from a copy, or "
            f"start with a new checkpoint"
        )
    return pa.ipc.open_stream(content).read_all()


def _read(path: str) -> bytes:
    try:
        with open_path(path) as file:
            return bytes(file.read())
    except FileNotFoundError:
        raise CheckpointError(
            f"the table {path} is missing, in which rows were looked up; restore it, or start with a new checkpoint"
        ) from None


def _is(name: str, content: bytes) -> bool:
    return name.rpartition("-")[2] == _hash(content)


def _hash(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest() + ".table"
