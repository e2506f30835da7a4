"""Samples and pages that no run made: of any size, and with any names."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from penstock.dashboard.graph import placed
from penstock.dashboard.history import History, Page
from penstock.elastic.decisions import Decision
from penstock.errors import PenstockError

Json = dict[str, Any]
KINDS = ("stateless", "partitioned", "stateful")


def made_up_graph(layers: int, width: int, name: Callable[[int], str] = lambda number: f"operator {number}") -> Json:
    """Make layers of operators, each reading two of the layer before."""
    nodes, edges = [], []
    for layer in range(layers):
        for row in range(width):
            number = layer * width + row
            kind = "source" if layer == 0 else "sink" if layer == layers - 1 else KINDS[number % 3]
            nodes.append(
                {
                    "name": name(number),
                    "kind": kind,
                    "what": "Made",
                    "keys": ["k"] if kind == "partitioned" else [],
                    "outputs": ["out"],
                    "on_error": "fail",
                    "fields": ["a", "b"],
                }
            )
            edges += [
                {"from": name(number - width - row + above), "output": 0, "to": name(number), "input": 0}
                for above in ({row, (row + 1) % width} if layer else ())
            ]
    return {**placed(nodes, edges), "version": 1}


def made_up_sample(graph: Json, *, shards: int = 0, tasks: int = 1, at: float = 1_800_000_000.0) -> Json:
    """Make a sample that fits a graph."""
    names = [node["name"] for node in graph["nodes"]]
    operator = {
        "rows_in": 1000,
        "rows_out": 900,
        "rate_in": 500.0,
        "rate_out": 450.0,
        "seconds": 0.2,
        "wall": 2.0,
        "cpu": 1.5,
        "cpu_share": 0.75,
        "cost": 12.0,
        "selectivity": 0.9,
        "queue": 3,
        "errors": 0,
        "retries": 0,
        "timeouts": 0,
        "forgotten": 0,
        "keys": None,
        "state_bytes": 1000,
        "key_bytes": 100,
        "reorder_depth": 1,
        "oldest_gap": 0.01,
    }
    share = [(shard % 17 + 1) / 9 / max(1, shards) for shard in range(shards)]
    keyed = next((node["name"] for node in graph["nodes"] if node["kind"] == "partitioned"), None)
    described = {
        "rows": [100] * shards,
        "share": share,
        "table": [shard % tasks for shard in range(shards)],
        "tasks": tasks,
        "imbalance": 1.1,
        "moves": [{"at": at, "epoch": 1, "shard": 3, "from": 0, "to": 1}],
        "moved": 1,
        "hot": [{"shard": 16, "share": 0.02}],
        "hot_keys": [],
    }
    split = {"fixed": 0.1, "read": 0.02, "shuffle": 0.05, "user": 0.2, "state": 0.03, "sink": 0.04}
    return {
        "at": at,
        "started": at - 60,
        "flow": "made up",
        "engine": "spark",
        "state": "running",
        "error": None,
        "graph": graph["version"],
        "decisions": 0,
        "held": 0,
        "totals": {
            "rows_in": 1000,
            "rows_out": 900,
            "epochs": 3,
            "lag_rows": 10,
            "rate": 500.0,
            "latency": {"p50": 0.1, "p99": 0.4},
            "lag_seconds": 0.2,
            "size": tasks,
            "size_name": "tasks",
            "state_bytes": 1000,
            "errors": 0,
        },
        "operators": {name: {**operator, "busy": number % 11 / 10} for number, name in enumerate(names)},
        "pressure": {"causes": [], "held": {}},
        "shards": {keyed: described} if shards and keyed else {},
        "order": {"depth": 1, "gap": 0.01, "operator": names[0]},
        "epochs": [
            {"epoch": number, "at": at, "rows": 10, "seconds": 0.44, "split": split, "tasks": tasks, "attempts": 1}
            for number in range(1, 41)
        ],
        "checkpoint": {"epoch": 40, "at": at, "age": 0.5, "bytes": 1000},
        "workers": [],
        "queries": [
            {"name": node["name"], "running": True, "rows": 5, "rate": 1.0, "latency": {"p50": 0.1, "p99": 0.2}}
            for node in graph["nodes"]
            if node["kind"] == "sink"
        ],
        "can_change": False,
    }


class MadeUpRun:
    """What a page listens to and changes; `send` brings a sample to whoever listens."""

    def __init__(self, live: bool) -> None:
        self.finished = not live
        self.listeners: list[Callable[[bytes], None]] = []
        self.changes: list[tuple[str, str]] = []

    def listen(self, listener: Callable[[bytes], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def change_query(self, action: str, name: str) -> int:
        if name == "unknown":
            raise PenstockError("there is no such query")
        self.changes.append((action, name))
        return 7


class MadeUpPage(Page):
    """A page of a minute of made-up samples."""

    def __init__(self, graph: Json, sample: Json, decisions: tuple[Decision, ...] = (), live: bool = True) -> None:
        self.run = MadeUpRun(live)
        super().__init__(History(), self.run)
        self.history.describe({"graph": graph})
        self.history.decide((sample["at"], decision) for decision in decisions)
        for second in range(-59, 1):
            self.put({**sample, "at": sample["at"] + second})

    def put(self, sample: Json) -> None:
        """Make this the newest sample."""
        self.history.add(sample, json.dumps(sample).encode())

    def send(self, sample: Json) -> None:
        for listener in list(self.run.listeners):
            listener(json.dumps(sample).encode())
