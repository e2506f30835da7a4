"""Follow the shards of keyed operators: load of each, the task that holds it, imbalance, moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from penstock.elastic.shard_balance import imbalance
from penstock.pe.hot_keys import HIDDEN
from penstock.statistics import FlowStats

Json = dict[str, Any]

KEPT_MOVES = 24
HOTTEST = 5
KEPT_KEYS = 12
HOT_KEY = 0.1
"""The part of its shard that a key must have to be called hot."""
HOT = 3.0
"""How many times the mean a shard must have to be called hot."""


class ShardTracker:
    """Remember tables from epoch to epoch, so that moves are seen whoever decided them."""

    def __init__(self) -> None:
        self._hot_keys: dict[str, list[Json]] = {}
        self._tables: dict[str, tuple[int, ...]] = {}
        self._moves: dict[str, deque[Json]] = {}
        self._moved: dict[str, int] = {}

    def take(self, stats: FlowStats, at: float) -> None:
        """Compare an epoch's tables with those before."""
        for name, operator in stats.operators.items():
            if operator.hot_keys:  # else it had no rows: what was hot is still known
                self._hot_keys[name] = [
                    {"shard": shard, "share": share, "key": None if key == HIDDEN else key}
                    for shard, keys in operator.hot_keys.items()
                    for key, share in keys
                    if share >= HOT_KEY
                ][:KEPT_KEYS]
            table = operator.table
            if table is None:
                continue
            before = self._tables.get(name, table)
            self._tables[name] = table
            if before == table or stats.tasks == 1:
                continue
            for shard, (old, new) in enumerate(zip(before, table, strict=True)):
                if old != new:
                    move = {"at": at, "epoch": stats.epoch, "shard": shard, "from": old, "to": new}
                    self._moves.setdefault(name, deque(maxlen=KEPT_MOVES)).append(move)
                    self._moved[name] = self._moved.get(name, 0) + 1

    def describe(self, lately: FlowStats) -> Json:
        """Describe the shards of all keyed operators by what they did lately."""
        loads = {name: each.shards for name, each in lately.operators.items()}
        return {
            name: self._operator(name, table, loads.get(name, {}))
            for name, table in self._tables.items()
            if len(table) > 1
        }

    def _operator(self, name: str, table: tuple[int, ...], loads: Mapping[int, tuple[int, float]]) -> Json:
        moves, moved = list(self._moves.get(name, ())), self._moved.get(name, 0)
        found = describe_shards(loads, len(table), table, moves, moved)
        return {**found, "hot_keys": self._hot_keys.get(name, [])}


def describe_shards(
    loads: Mapping[int, tuple[int, float]], count: int, table: tuple[int, ...] | None, moves: list[Json], moved: int
) -> Json:
    """Describe one operator's shards by their rows and seconds; without a table any worker takes any of them."""
    rows, seconds = zip(*(loads.get(shard, (0, 0.0)) for shard in range(count)), strict=True)
    # Few rows are measured too coarsely by the clock: then rows say more.
    load = [float(each) for each in (seconds if sum(seconds) > 0.001 else rows)]
    total = sum(load)
    share = [each / total if total else 0.0 for each in load]
    hottest = sorted(range(len(share)), key=lambda shard: -share[shard])[:HOTTEST]
    tasks = max(table) + 1 if table else 0
    return {
        "rows": list(rows),
        "share": [round(each, 5) for each in share],
        "table": list(table) if table else None,
        "tasks": tasks,
        "imbalance": imbalance(tuple(load), table, tasks) if table else _spread(share),
        "moves": moves,
        "moved": moved,
        "hot": [{"shard": s, "share": share[s]} for s in hottest if share[s] * len(share) > HOT],
    }


def _spread(share: list[float]) -> float:
    return max(share) * len(share) if share and sum(share) else 1.0
