"""What is kept of a run: who it is, what each epoch was to read (intents), and what each epoch left behind (manifests).

An epoch's intent is written before its job, so that a crash can run the same epoch again. Its manifest is written
after its sinks and says that it is done: where sources stand, the watermarks, and which files hold each shard. The
newest whole manifest is the truth; everything else in the checkpoint is either named by it or rubbish.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import CheckpointError
from penstock.graph import Node
from penstock.keys import SHARDS
from penstock.operators.base import Keyed, Source
from penstock.plan import Plan
from penstock.spark.files import list_names, make_directory, read_json, remove, write_json
from penstock.spark.spec import StatePointers
from penstock.spark.worker_state import CHAIN_LIMIT
from penstock.timing import BEFORE, Ticks

FORMAT = 1
RETAIN = 10
"""How many epochs back state can be read."""

Json = dict[str, Any]


@dataclass
class ShardIndex:
    """For one operator: the files of each shard, oldest first, and what was measured of it."""

    chains: dict[int, list[str]] = field(default_factory=dict)
    sizes: dict[int, list[int]] = field(default_factory=dict)
    """The bytes of each block of the chain."""
    keys: dict[int, int] = field(default_factory=dict)
    due: dict[int, Ticks] = field(default_factory=dict)

    def add(self, name: str, shard: int, full: bool, size: int, keys: int, next_timer: Ticks | None) -> None:
        """Take in one block of a committed file."""
        if full:
            self.chains[shard], self.sizes[shard] = [name], [size]
        else:
            self.chains.setdefault(shard, []).append(name)
            self.sizes.setdefault(shard, []).append(size)
        self.keys[shard] = keys
        if next_timer is None:
            self.due.pop(shard, None)
        else:
            self.due[shard] = next_timer

    def pointers(self) -> StatePointers:
        """Return what tasks must know of the chains."""
        files = sorted({name for chain in self.chains.values() for name in chain})
        number = {name: i for i, name in enumerate(files)}
        chains = {shard: tuple(number[name] for name in chain) for shard, chain in self.chains.items()}
        full = frozenset(shard for shard, chain in self.chains.items() if len(chain) >= CHAIN_LIMIT)
        return StatePointers(tuple(files), chains, dict(self.due), full)

    def bytes(self) -> int:
        """Return the bytes of state on disk."""
        return sum(sum(sizes) for sizes in self.sizes.values())

    def to_json(self) -> Json:
        """Write the index compactly."""
        files = sorted({name for chain in self.chains.values() for name in chain})
        number = {name: i for i, name in enumerate(files)}
        return {
            "files": files,
            "shards": [
                [
                    shard,
                    [number[name] for name in chain],
                    self.sizes[shard],
                    self.keys.get(shard, 0),
                    self.due.get(shard),
                ]
                for shard, chain in sorted(self.chains.items())
            ],
        }

    @classmethod
    def from_json(cls, body: Json) -> ShardIndex:
        """Read an index."""
        index = cls()
        for shard, chain, sizes, keys, due in body["shards"]:
            index.chains[shard] = [body["files"][i] for i in chain]
            index.sizes[shard], index.keys[shard] = sizes, keys
            if due is not None:
                index.due[shard] = due
        return index


@dataclass
class Position:
    """Where a run stands behind its last committed epoch."""

    epoch: int = 0
    batch: int = -1
    """The last batch of Spark's own stream, for DataFrame sources."""
    marks: dict[str, Ticks] = field(default_factory=dict)
    highest: tuple[int, ...] | None = None
    ended: list[str] = field(default_factory=list)
    rows_in: int = 0
    state: dict[str, ShardIndex] = field(default_factory=dict)
    sink_schemas: dict[str, str] = field(default_factory=dict)
    tables: dict[str, list[int]] = field(default_factory=dict)
    tasks: int = 0
    """The number of tasks that the tables were made for."""


class Checkpoint:
    """The directory of one run."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.id = ""

    def open(self, plan: Plan) -> Position:
        """Make the checkpoint, or read where an earlier run of the flow left off; refuse a flow that does not fit."""
        for part in ("intents", "epochs", "state"):
            make_directory(f"{self.path}/{part}")
        identity = read_json(f"{self.path}/flow.json")
        mine = _identity(plan)
        if identity is None:
            if self.epochs():
                raise CheckpointError(
                    f"{self.path}/flow.json is missing or damaged, but there are committed epochs; restore it "
                    f"from a copy, or start with a new checkpoint"
                )
            identity = {**mine, "id": uuid.uuid4().hex}
        else:
            _check_fits(self.path, identity, mine)
        self.id = identity["id"]
        write_json(f"{self.path}/flow.json", {**mine, "id": self.id})
        return self.latest(plan)

    def epochs(self) -> list[int]:
        """Return the epochs that have a manifest, ascending."""
        return _numbers(list_names(f"{self.path}/epochs"))

    def manifest(self, epoch: int) -> Json | None:
        """Return the manifest of an epoch, None where it is absent or torn."""
        body: Json | None = read_json(self._epoch_path(epoch))
        return body

    def latest(self, plan: Plan) -> Position:
        """Return where the newest whole manifest leaves the run."""
        position = Position(marks={source.name: BEFORE for source in plan.sources})
        for epoch in reversed(self.epochs()):
            body = self.manifest(epoch)
            if body is None:
                continue  # torn by a crash: as if it had never been written
            return Position(
                epoch,
                body["batch"],
                {**position.marks, **body["marks"]},
                None if body["highest"] is None else tuple(body["highest"]),
                body["ended"],
                body["rows_in"],
                {name: ShardIndex.from_json(index) for name, index in body["state"].items()},
                body["sink_schemas"],
                body["tables"],
                body["tasks"],
            )
        return position

    def offsets(self) -> list[Json]:
        """Return the committed offsets that are needed to restore the sources, oldest first."""
        found: list[Json] = []
        for epoch in reversed(self.epochs()):
            body = self.manifest(epoch)
            if body is not None:
                found.append(body["offsets"])
                if body["offsets_full"]:
                    break
        return list(reversed(found))

    def commit(self, position: Position, fence: int, offsets: Json, offsets_full: bool, sinks: dict[str, int]) -> None:
        """Write the manifest of an epoch: from here on it is done."""
        body = {
            "format": FORMAT,
            "epoch": position.epoch,
            "fence": fence,
            "batch": position.batch,
            "marks": position.marks,
            "highest": position.highest,
            "ended": position.ended,
            "rows_in": position.rows_in,
            "offsets": offsets,
            "offsets_full": offsets_full,
            "sinks": sinks,
            "sink_schemas": position.sink_schemas,
            "tables": position.tables,
            "tasks": position.tasks,
            "state": {name: index.to_json() for name, index in position.state.items()},
        }
        if not write_json(self._epoch_path(position.epoch), body, only_if_absent=True):
            raise CheckpointError(f"epoch {position.epoch} of {self.path} was committed by another driver")

    def write_intent(self, epoch: int, body: Json) -> None:
        """Log what an epoch is to read, before it reads it."""
        if not write_json(self._intent_path(epoch), body, only_if_absent=True):
            raise CheckpointError(f"epoch {epoch} of {self.path} was begun by another driver")

    def intent(self, epoch: int) -> Json | None:
        """Return what an epoch that was begun was to read."""
        body: Json | None = read_json(self._intent_path(epoch))
        return body

    def clean(self, position: Position) -> None:
        """Remove what no manifest that is kept names."""
        epochs = self.epochs()
        kept = [epoch for epoch in epochs if epoch > position.epoch - RETAIN]
        needed = min(kept, default=0)
        for epoch in reversed(epochs):
            body = self.manifest(epoch)
            if body is not None and body["offsets_full"]:
                needed = min(needed, epoch)
                break
        named: set[str] = set()
        for epoch in kept:
            body = self.manifest(epoch) or {"state": {}}
            for index in body["state"].values():
                named.update(index["files"])
        for epoch in epochs:
            if epoch < needed:
                remove(self._epoch_path(epoch))
        # An intent is of use again should the manifest of its epoch be damaged.
        for epoch in _numbers(list_names(f"{self.path}/intents")):
            if epoch <= position.epoch - RETAIN:
                remove(self._intent_path(epoch))
        for name in list_names(f"{self.path}/state"):
            if name not in named:
                remove(f"{self.path}/state/{name}")
        self._remove_unfinished()

    def _remove_unfinished(self) -> None:
        """Remove files that nobody came to give their names."""
        for part in ("intents", "epochs", "lease", "state"):
            for name in list_names(f"{self.path}/{part}", hidden=True):
                if name.endswith(".tmp"):
                    remove(f"{self.path}/{part}/{name}")

    def _epoch_path(self, epoch: int) -> str:
        return f"{self.path}/epochs/{epoch:09d}.json"

    def _intent_path(self, epoch: int) -> str:
        return f"{self.path}/intents/{epoch:09d}.json"


def _numbers(names: list[str]) -> list[int]:
    return sorted(int(name[:9]) for name in names if name[:9].isdigit() and name.endswith(".json"))


def _identity(plan: Plan) -> Json:
    return {
        "format": FORMAT,
        "flow": plan.name,
        "shards": SHARDS,
        "sources": {node.name: _describe_source(node) for node in plan.sources},
        "operators": {node.name: _describe(node) for node in plan.keyed},
    }


def _describe_source(node: Node) -> Json:
    assert isinstance(node.operator, Source)
    return {"order_by": list(node.operator.order_by), "time": node.operator.time}


def _describe(node: Node) -> Json:
    operator = node.operator
    assert isinstance(operator, Keyed)
    keys = None if operator.keys is None else [str(key) for key in operator.keys]
    # The key of a join's other port has the same.
    cut = None if operator.keys is None else operator.keys[0].ranges
    ranges = None if cut is None else [repr(bound) for bound in cut.bounds]
    logic = operator.logic
    windows = getattr(logic, "windows", logic)
    sizes = {name: getattr(windows, name) for name in ("size", "every", "offset", "gap") if hasattr(windows, name)}
    fold = getattr(logic, "fold_", None)
    aggregation = getattr(logic if fold is None else fold, "aggregation", None)
    labels = [] if aggregation is None else [aggregate.label for aggregate in aggregation.aggregates]
    return {
        "kind": operator.kind,
        "keys": keys,
        "ranges": ranges,
        "logic": " of ".join(type(part).__name__ for part in (fold, logic) if part is not None),
        "sizes": sizes,
        "aggregates": labels,
        "keeps_rows": not getattr(logic, "one_at_a_time", False),
    }


_FIXED = {
    "kind": "kind",
    "keys": "key",
    "ranges": "ranges of keys",
    "logic": "logic",
    "sizes": "window",
    "aggregates": "aggregates",
}
"""What must not change in an operator with state, and what it is called."""


def _check_fits(path: str, old: Json, new: Json) -> None:
    """Refuse a flow whose state is not the checkpoint's, saying what to do."""
    other = "or start with a new checkpoint"
    if old["format"] != new["format"]:
        raise CheckpointError(
            f"{path} was written in format {old['format']}, this Penstock reads format {new['format']}; use the "
            f"version that wrote it, {other}"
        )
    if old["flow"] != new["flow"]:
        raise CheckpointError(
            f"{path} belongs to the flow {old['flow']!r}, not to {new['flow']!r}; give that flow its old name, {other}"
        )
    if old["shards"] != new["shards"]:
        raise CheckpointError(
            f"{path} has {old['shards']} shards, this Penstock uses {new['shards']}; set the number back, {other}"
        )
    for name in old["sources"]:
        if name not in new["sources"]:
            raise CheckpointError(
                f"the source {name!r} of {path} is gone from the flow; put it back under its old name, {other}"
            )
        for part in ("order_by", "time"):
            if old["sources"][name][part] != new["sources"][name][part]:
                raise CheckpointError(
                    f"the source {name!r} had {part}={old['sources'][name][part]!r} in {path} and now has "
                    f"{new['sources'][name][part]!r}; change it back, {other}"
                )
    for name, was in old["operators"].items():
        now = new["operators"].get(name)
        if now is None:
            raise CheckpointError(
                f"the stateful operator {name!r} of {path} is gone from the flow, or was renamed; give it its old "
                f"name with name={name!r}, {other}"
            )
        for part, what in _FIXED.items():
            had = was.get(part)  # checkpoints from before there were ranges do not name them
            if had != now[part]:
                raise CheckpointError(
                    f"the operator {name!r} had the {what} {had!r} in {path} and now has {now[part]!r}, which "
                    f"its state does not fit; change it back, {other}"
                )
        kept, keeps = was.get("keeps_rows", now["keeps_rows"]), now["keeps_rows"]
        if kept != keeps:
            raise CheckpointError(
                f"the sessions of the operator {name!r} are {'with' if kept else 'without'} their rows in {path}, and "
                f"the flow now keeps them {'with' if keeps else 'without'}, because the slack of their source, or what "
                f"is between the two, is another; change it back, {other}"
            )
