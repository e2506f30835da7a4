"""Read the state of an operator at a committed epoch, from the checkpoint alone; no Spark is needed."""

from __future__ import annotations

import pickle
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from penstock.errors import CheckpointError
from penstock.store.checkpoint import Checkpoint, ShardIndex
from penstock.store.state_files import FileReader, apply_block


@dataclass(frozen=True)
class OperatorState:
    """What is kept of one operator."""

    operator: str
    epoch: int
    keys: int
    bytes: int
    shards: int


@dataclass(frozen=True)
class ShardSize:
    """How much one shard of an operator has."""

    shard: int
    keys: int
    bytes: int
    files: int
    """How many files a worker must read to have it."""


@dataclass(frozen=True)
class Change:
    """How the state of one key differs between two epochs."""

    key: Any
    change: Literal["added", "changed", "removed"]
    before: Any
    after: Any


def epochs(checkpoint: str) -> list[int]:
    """Return the committed epochs whose state can be read, ascending."""
    return list(_epochs(checkpoint))


def shards(checkpoint: str, operator: str, epoch: int | None = None) -> list[ShardSize]:
    """Return the sizes of an operator's shards."""
    number, body = _manifest(checkpoint, epoch)
    index = _index(checkpoint, operator, number, body)
    return [
        ShardSize(shard, index.keys.get(shard, 0), sum(index.sizes[shard]), len(chain))
        for shard, chain in sorted(index.chains.items())
    ]


def compare(checkpoint: str, operator: str, before: int, after: int | None = None) -> list[Change]:
    """Return the keys of an operator whose state differs between two epochs, ordered where they can be."""
    old, new = values(checkpoint, operator, before), values(checkpoint, operator, after)
    changes = []
    for key in _in_order([*old, *(key for key in new if key not in old)]):
        if key not in new:
            changes.append(Change(key, "removed", old[key], None))
        elif key not in old:
            changes.append(Change(key, "added", None, new[key]))
        elif old[key] != new[key] and pickle.dumps(old[key]) != pickle.dumps(new[key]):
            # By content too: objects of classes without a comparison are never equal.
            changes.append(Change(key, "changed", old[key], new[key]))
    return changes


def operators(checkpoint: str, epoch: int | None = None) -> list[OperatorState]:
    """Return the operators with state, with the number of their keys and the bytes that they take on disk."""
    number, body = _manifest(checkpoint, epoch)
    states = []
    for name, index in body["state"].items():
        shards = ShardIndex.from_json(index)
        states.append(OperatorState(name, number, sum(shards.keys.values()), shards.bytes(), len(shards.chains)))
    return states


def values(checkpoint: str, operator: str, epoch: int | None = None) -> dict[Any, Any]:
    """Return an operator's state by key, as Python values."""
    number, body = _manifest(checkpoint, epoch)
    index = _index(checkpoint, operator, number, body)
    files = FileReader(f"{checkpoint}/state")
    states: dict[Any, Any] = {}
    for shard, chain in sorted(index.chains.items()):
        mine: MutableMapping[Any, Any] = {}
        for name in chain:
            full, data = files.block(name, operator, shard)
            if full:
                mine.clear()
            mine = apply_block(mine, data, name)
        states.update(mine)
    return states


def read(checkpoint: str, operator: str, epoch: int | None = None) -> pa.Table:
    """Return an operator's state as a table of key and value, ordered by key where keys can be compared.

    A value that has no Arrow type is shown as text.
    """
    return _table(values(checkpoint, operator, epoch))


def listed(checkpoint: str, operator: str, epoch: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of `read` for people: tuples are tuples, whose parts need no names outside of a table."""
    states = values(checkpoint, operator, epoch)
    keys = _in_order(list(states))
    rows = _table(states).to_pylist()
    return [
        {"key": _tupled(row["key"], key), "value": _tupled(row["value"], states[key])}
        for key, row in zip(keys, rows, strict=True)
    ]


def _table(states: dict[Any, Any]) -> pa.Table:
    keys = _in_order(list(states))
    return pa.table({"key": _column(keys), "value": _column([_plain(states[key]) for key in keys])})


def _in_order(keys: list[Any]) -> list[Any]:
    try:
        return sorted(keys)
    except TypeError:
        return keys


def _index(checkpoint: str, operator: str, number: int, body: dict[str, Any]) -> ShardIndex:
    """Return where an operator's shards are; one that has no state yet has none."""
    if operator in body["state"]:
        return ShardIndex.from_json(body["state"][operator])
    described = body.get("flow") or Checkpoint(checkpoint).description() or {"operators": {}}
    known = described["operators"]
    if operator in known:
        return ShardIndex()
    names = ", ".join(sorted(known)) or "none"
    raise CheckpointError(f"{checkpoint} has no stateful operator {operator!r} at epoch {number}; it has {names}")


def _manifest(checkpoint: str, epoch: int | None) -> tuple[int, dict[str, Any]]:
    readable = _epochs(checkpoint)
    number = max(readable) if epoch is None else epoch
    if number not in readable:
        raise CheckpointError(
            f"the state of epoch {number} is not kept in {checkpoint}; kept are the epochs {min(readable)} to "
            f"{max(readable)}"
        )
    return number, readable[number]


def _epochs(checkpoint: str) -> dict[int, dict[str, Any]]:
    readable = Checkpoint(checkpoint).epochs()
    if not readable:
        raise CheckpointError(f"{checkpoint} is no checkpoint, or has no committed epoch yet")
    return readable


def _plain(value: Any) -> Any:
    fields = getattr(value, "_fields", None)
    if fields:
        return dict(zip(fields, map(_plain, value), strict=True))
    if isinstance(value, (tuple, list)):
        # Fields of different types make no list: number them.
        return {f"f{i}": _plain(part) for i, part in enumerate(value)} if isinstance(value, tuple) else value
    return vars(value) if hasattr(value, "__dataclass_fields__") else value


def _tupled(shown: Any, value: Any) -> Any:
    """Turn what Arrow made of a value back where that was a tuple."""
    if not isinstance(value, tuple) or isinstance(shown, str):
        return shown
    fields = getattr(value, "_fields", None)
    if isinstance(shown, dict) and fields:
        return {name: _tupled(shown[name], part) for name, part in zip(fields, value, strict=True)}
    if isinstance(shown, dict):
        return tuple(_tupled(shown[f"f{i}"], part) for i, part in enumerate(value))
    return tuple(shown)


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array([repr(value) for value in values], pa.string())


def __dir__() -> list[str]:
    return ["compare", "epochs", "operators", "read", "shards", "values"]
