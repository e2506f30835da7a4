"""What is kept under the name of its content: state files, and the tables that rows were looked up in.

A name is the fence of the driver and the hash of the whole, so that a retried task writes the same file again, damage
shows, and no driver writes or removes what another may need.

A state file is what one task changed in one epoch: a header (JSON: where each shard's block is) and the blocks, each a
pickled (changed keys, forgotten keys). Changed keys are a dict, or columns (`kernels/state_columns.py`); either is read
into whatever the operator has today. A table has the columns that a lookup needs, in the order of its rows.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
import uuid
from collections import OrderedDict
from collections.abc import MutableMapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from penstock.connectors.paths import locate, open_path, sync_file
from penstock.connectors.retries import remove_quietly, retried
from penstock.errors import CheckpointError
from penstock.kernels.join_states import JoinStates, is_saved_join, saved_form
from penstock.kernels.state_columns import ColumnStates, Saved, is_saved, saved_states
from penstock.rows.timing import Ticks
from penstock.store.checkpoint import TABLES
from penstock.store.objects import Store
from penstock.store.old_names import unpickled

_MAGIC = b"PSTK1\n"
_BUFFER = 1 << 20
"""Bytes that are written at once: the blocks of many shards are small."""
_KEPT_FILES = 64
"""Files that a reader keeps, mapped where they are on a local disk."""


@dataclass(frozen=True)
class Block:
    """What changed in one shard of one operator."""

    operator: str
    shard: int
    full: bool
    """Whether the block holds the whole shard, so that nothing before it is needed."""
    data: bytes
    keys: int
    next_timer: Ticks | None


def make_block(
    operator: str,
    shard: int,
    full: bool,
    changed: dict[Any, Any] | Saved,
    forgotten: list[Any],
    keys: int,
    next_timer: Ticks | None,
) -> Block:
    try:
        data = pickle.dumps((changed, forgotten), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise CheckpointError(
            f"operator {operator!r}: its state cannot be saved: {error}; keep plain values (numbers, text, "
            f"tuples, lists, dicts, dataclasses of an importable module) in state"
        ) from None
    return Block(operator, shard, full, data, keys, next_timer)


def write_file(root: str, epoch: int, fence: int, blocks: list[Block]) -> str:
    """Write blocks as one file; return its name.

    The epoch is part of the content: a change that is made twice must not look like one change to a cache.
    """
    header, offset = [], 0
    for block in blocks:
        header.append([block.operator, block.shard, block.full, offset, len(block.data)])
        offset += len(block.data)
    head = json.dumps({"epoch": epoch, "blocks": header}).encode()
    # Never joined: that would be all of it in memory once more.
    pieces = [_MAGIC + struct.pack("<Q", len(head)) + head, *(block.data for block in blocks)]
    name = f"{fence:09d}-{_hash(*pieces)}.state"
    retried(lambda: _write(root, name, pieces), "writing the state file", f"{root}/{name}")
    return name


def _write(root: str, name: str, pieces: list[bytes]) -> None:
    system, directory = locate(root)
    target = f"{directory}/{name}"
    if system.type_name != "local":
        with system.open_output_stream(target, buffer_size=_BUFFER) as file:
            for piece in pieces:
                file.write(piece)
        return
    # A rename is atomic, and of the same content, so that it does not matter who comes first.
    temporary = f"{directory}/.{name}.{uuid.uuid4().hex}.tmp"
    os.makedirs(directory, exist_ok=True)
    try:
        with system.open_output_stream(temporary, buffer_size=_BUFFER) as file:
            for piece in pieces:
                file.write(piece)
        os.replace(temporary, target)
        sync_file(target)  # the name is synced by the driver, once for all files, before it is used
    except OSError:
        remove_quietly(system, temporary)
        raise


def read_file(root: str, name: str) -> dict[tuple[str, int], tuple[bool, memoryview]]:
    """Read a file: for each (operator, shard), whether its block is the whole shard, and the block."""
    content = _checked(f"{root}/{name}", "reading the state file", "the state file")
    start = len(_MAGIC) + 8
    (length,) = struct.unpack("<Q", content[len(_MAGIC) : start])
    view = content[start + length :]
    return {
        (operator, shard): (full, view[offset : offset + size])
        for operator, shard, full, offset, size in json.loads(bytes(content[start : start + length]))["blocks"]
    }


def _checked(path: str, what: str, kind: str, use: str = "") -> memoryview:
    """Read what is kept; refuse what is gone, or no longer has the hash in its name."""

    def read() -> memoryview:
        try:
            with open_path(path, mapped=True) as file:
                return memoryview(file.read_buffer())
        except FileNotFoundError:
            raise CheckpointError(
                f"{kind} {path} is missing{use}; restore it, or start with a new checkpoint"
            ) from None

    content = retried(read, what, path)
    if not _is(path, content):
        raise CheckpointError(
            f"{kind} {path} is damaged: its content no longer has the hash in its name; restore it from a copy, or "
            f"start with a new checkpoint"
        )
    return content


class FileReader:
    """Read state files, keeping the last few: one file holds many shards.

    Those on a local disk are mapped: their pages are the system's, and the same for all processes.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._files: OrderedDict[str, dict[tuple[str, int], tuple[bool, memoryview]]] = OrderedDict()

    def block(self, name: str, operator: str, shard: int) -> tuple[bool, memoryview]:
        if name not in self._files:
            self._files[name] = read_file(self._root, name)
            while len(self._files) > _KEPT_FILES:
                self._files.popitem(last=False)
        return self._files[name][operator, shard]


def apply_block(states: MutableMapping[Any, Any], data: memoryview | bytes, where: str) -> MutableMapping[Any, Any]:
    """Apply the changes of a block; return the states, which are others where a dict cannot take what changed."""
    try:
        changed, forgotten = unpickled(data)
    except (AttributeError, ImportError) as error:
        raise CheckpointError(
            f"state in {where} holds a class that is gone: {error}; keep classes that state is made of under "
            f"their old names"
        ) from None
    if is_saved_join(changed):
        if not isinstance(states, JoinStates):
            states = JoinStates(saved_form(changed))
        states.load(changed)
    elif not is_saved(changed):
        states.update(changed)
    elif isinstance(states, ColumnStates):
        states.load(changed)
    else:
        states.update(saved_states(changed))
    for key in forgotten:
        states.pop(key, None)
    return states


def put_table(store: Store, fence: int, table: pa.Table, known: str | None) -> str:
    """Keep what a table has; return its name, the known one where that has the same content."""
    content = _serialized(table)
    if known is not None and _is(known, content):
        return known
    name = f"{fence:09d}-{_hash(content)}.table"
    store.put(f"{TABLES}/{name}", content)
    store.sync(TABLES)
    return name


def is_kept(name: str, table: pa.Table) -> bool:
    return _is(name, _serialized(table))


def read_kept(checkpoint: str, operator: str, name: str) -> pa.Table:
    """Read what a lookup's table had; in any process."""
    what = f"operator {operator!r}: reading the table that was kept,"
    content = _checked(f"{checkpoint}/{TABLES}/{name}", what, "the table", ", in which rows were looked up")
    return pa.ipc.open_stream(content).read_all()


def _serialized(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(buffer.getvalue().to_pybytes())


def _is(name: str, content: bytes | memoryview) -> bool:
    # The first checkpoints had no fence in names.
    return re.split("[-/]", name)[-1].partition(".")[0] == _hash(content)


def _hash(*pieces: bytes | memoryview) -> str:
    digest = blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
