"""State files: what one task changed in one epoch, named by its content.

A file is a header (JSON: where each shard's block is) and the blocks, each a pickled (changed keys, forgotten keys).
Changed keys are a dict, or columns (`kernels/state_columns.py`); either is read into whatever the operator has today.
The name is the driver's fence and the hash of the whole, so that a retried task writes the same file again, damage
shows, and no driver writes or removes what another may need.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import uuid
from collections import OrderedDict
from collections.abc import MutableMapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from penstock.connectors.paths import locate, open_path
from penstock.connectors.retries import remove_quietly, retried
from penstock.errors import CheckpointError
from penstock.kernels.join_states import JoinStates, is_saved_join, saved_form
from penstock.kernels.state_columns import ColumnStates, Saved, is_saved, saved_states
from penstock.rows.timing import Ticks
from penstock.store.objects import sync_file
from penstock.store.old_names import unpickled

_MAGIC = b"PSTK1\n"
_BUFFER = 1 << 20
"""Bytes that are written at once: the blocks of many shards are small."""


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
    """Pickle the changes of a shard."""
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
    name = f"{fence:09d}-{_hash(*pieces)}"
    retried(lambda: _write(root, name, pieces), "writing the state file", f"{root}/{name}")
    return name


def _write(root: str, name: str, pieces: list[bytes]) -> None:
    system, directory = locate(root)
    target = f"{directory}/{name}"
    if system.type_name != "local":
        with system.open_output_stream(target) as file:
            _write_all(file, pieces)
        return
    # A rename is atomic, and of the same content, so that it does not matter who comes first.
    temporary = f"{directory}/.{name}.{uuid.uuid4().hex}.tmp"
    os.makedirs(directory, exist_ok=True)
    try:
        with system.open_output_stream(temporary) as file:
            _write_all(file, pieces)
        os.replace(temporary, target)
        sync_file(target)  # the name is synced by the driver, once for all files, before it is used
    except OSError:
        remove_quietly(system, temporary)
        raise


def _write_all(file: Any, pieces: list[bytes]) -> None:
    """Write pieces, small ones together."""
    waiting, size = list[bytes](), 0
    for piece in pieces:
        if size + len(piece) > _BUFFER:
            file.write(b"".join(waiting))
            waiting, size = [], 0
        waiting.append(piece)
        size += len(piece)
    file.write(b"".join(waiting))


def read_file(root: str, name: str) -> dict[tuple[str, int], tuple[bool, memoryview]]:
    """Read a file: for each (operator, shard), whether its block is the whole shard, and the block."""
    path = f"{root}/{name}"
    content = retried(lambda: _read(path), "reading the state file", path)
    if _hash(content) != name.rpartition("-")[2]:  # the first checkpoints had no fence in names
        raise CheckpointError(
            f"the state file {path} is damaged: its content no longer has the hash in its name; restore it "
            f"from a copy, or start with a new checkpoint"
        )
    start = len(_MAGIC) + 8
    (length,) = struct.unpack("<Q", content[len(_MAGIC) : start])
    view = content[start + length :]
    return {
        (operator, shard): (full, view[offset : offset + size])
        for operator, shard, full, offset, size in json.loads(bytes(content[start : start + length]))["blocks"]
    }


def _read(path: str) -> memoryview:
    try:
        with open_path(path, mapped=True) as file:
            return memoryview(file.read_buffer())
    except FileNotFoundError:
        raise CheckpointError(f"the state file {path} is missing; restore it, or start with a new checkpoint") from None


class FileReader:
    """Read state files, keeping the last few: one file holds many shards.

    Those on a local disk are mapped: their pages are the system's, and the same for all processes.
    """

    def __init__(self, root: str, keep: int = 64) -> None:
        self._root, self._keep = root, keep
        self._files: OrderedDict[str, dict[tuple[str, int], tuple[bool, memoryview]]] = OrderedDict()

    def block(self, name: str, operator: str, shard: int) -> tuple[bool, memoryview]:
        if name not in self._files:
            self._files[name] = read_file(self._root, name)
            while len(self._files) > self._keep:
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


def _hash(*pieces: bytes | memoryview) -> str:
    found = blake2b(digest_size=16)
    for piece in pieces:
        found.update(piece)
    return found.hexdigest() + ".state"
