"""Read the state of an operator at a committed epoch, from the checkpoint alone; no Spark is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import CheckpointError
from penstock.spark.checkpoint import RETAIN, Checkpoint, ShardIndex
from penstock.spark.deltas import apply_block
from penstock.spark.files import read_json
from penstock.spark.worker_state import FileReader


@dataclass(frozen=True)
class OperatorState:
    """What is kept of one operator."""

    operator: str
    epoch: int
    keys: int
    bytes: int
    shards: int


def epochs(checkpoint: str) -> list[int]:
    """Return the committed epochs whose state can be read, ascending."""
    found = [epoch for epoch in Checkpoint(checkpoint).epochs() if Checkpoint(checkpoint).manifest(epoch)]
    return [epoch for epoch in found if epoch > found[-1] - RETAIN]


def operators(checkpoint: str, epoch: int | None = None) -> list[OperatorState]:
    """Return the operators with state, with the number of their keys and the bytes that they take on disk."""
    number, body = _manifest(checkpoint, epoch)
    found = []
    for name, index in body["state"].items():
        shards = ShardIndex.from_json(index)
        found.append(OperatorState(name, number, sum(shards.keys.values()), shards.bytes(), len(shards.chains)))
    return found


def values(checkpoint: str, operator: str, epoch: int | None = None) -> dict[Any, Any]:
    """Return an operator's state by key, as Python values."""
    number, body = _manifest(checkpoint, epoch)
    known = (read_json(f"{checkpoint}/flow.json") or {"operators": {}})["operators"]
    if operator not in body["state"]:
        if operator in known:
            return {}
        names = ", ".join(sorted(known)) or "none"
        raise CheckpointError(f"{checkpoint} has no stateful operator {operator!r} at epoch {number}; it has {names}")
    index = ShardIndex.from_json(body["state"][operator])
    files = FileReader(f"{checkpoint}/state")
    states: dict[Any, Any] = {}
    for shard, chain in sorted(index.chains.items()):
        mine: dict[Any, Any] = {}
        for name in chain:
            full, data = files.block(name, operator, shard)
            if full:
                mine.clear()
            apply_block(mine, data, name)
        states.update(mine)
    return states


def read(checkpoint: str, operator: str, epoch: int | None = None) -> pa.Table:
    """Return an operator's state as a table of key and value, ordered by key where keys can be compared.

    A value that has no Arrow type is shown as text.
    """
    found = values(checkpoint, operator, epoch)
    try:
        keys = sorted(found)
    except TypeError:
        keys = list(found)
    return pa.table({"key": _column(keys), "value": _column([_plain(found[key]) for key in keys])})


def _manifest(checkpoint: str, epoch: int | None) -> tuple[int, dict[str, Any]]:
    kept = Checkpoint(checkpoint)
    if not kept.epochs():
        raise CheckpointError(f"{checkpoint} is no checkpoint, or has no committed epoch yet")
    readable = epochs(checkpoint)
    number = readable[-1] if epoch is None else epoch
    body = kept.manifest(number)
    if number not in readable or body is None:
        raise CheckpointError(
            f"the state of epoch {number} is not kept in {checkpoint}; kept are the epochs {readable[0]} to "
            f"{readable[-1]}"
        )
    return number, body


def _plain(value: Any) -> Any:
    """Turn tuples and records into what Arrow can hold."""
    fields = getattr(value, "_fields", None)
    if fields:
        return dict(zip(fields, map(_plain, value), strict=True))
    if isinstance(value, (tuple, list)):
        # Fields of different types make no list: number them.
        return {f"f{i}": _plain(part) for i, part in enumerate(value)} if isinstance(value, tuple) else value
    return vars(value) if hasattr(value, "__dataclass_fields__") else value


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array([repr(value) for value in values], pa.string())
