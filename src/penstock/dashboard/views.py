"""Describe a run for the page: from its last epochs, with its shards, or from live statistics of the threads engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import reduce

from penstock.dashboard.graph import Json, Reached, pressure_in_epochs, pressure_in_queues
from penstock.elastic.shard_balance import imbalance
from penstock.kernels.shards import HIDDEN, state_bytes
from penstock.run import Run
from penstock.statistics import FlowStats, Latency, OperatorStats
from penstock.threads.engine import LocalEngine
from penstock.threads.stateful_station import StatefulStation

KEPT_MOVES = 24
HOTTEST = 5
KEPT_KEYS = 12
HOT_KEY = 0.1
"""The part of its shard that a key must have to be called hot."""
HOT = 3.0
"""How many times the mean a shard must have to be called hot."""


class ShardTracker:
    """Remember tables from epoch to epoch, so that moves are seen, whatever decided them."""

    def __init__(self) -> None:
        self._hot_keys: dict[str, list[Json]] = {}
        self._tables: dict[str, tuple[int, ...]] = {}
        self._moves: dict[str, deque[Json]] = {}
        self._moved: dict[str, int] = {}

    def take(self, stats: FlowStats, at: float) -> None:
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
        loads = {name: each.shards for name, each in lately.operators.items()}
        return {
            name: self._operator(name, table, loads.get(name, {}))
            for name, table in self._tables.items()
            if len(table) > 1
        }

    def _operator(self, name: str, table: tuple[int, ...], loads: Mapping[int, tuple[int, float]]) -> Json:
        moves, moved = list(self._moves.get(name, ())), self._moved.get(name, 0)
        described = describe_shards(loads, len(table), table, moves, moved)
        return {**described, "hot_keys": self._hot_keys.get(name, [])}


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


RECENT_EPOCHS_SECONDS = 5.0
KEPT = 1000
"""Epochs that are remembered: latencies are of these."""
SHOWN = 48


class EpochView:
    """Remember the last epochs. The engine's thread brings them; another one describes."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._recent: deque[tuple[float, FlowStats]] = deque(maxlen=KEPT)
        self._shards = ShardTracker()
        self._reach = Reached()

    def take(self, stats: FlowStats, at: float) -> None:
        self._shards.take(stats, at)
        self._recent.append((at, stats))

    def describe(self, graph: Json, now: float, stats: FlowStats) -> Json:
        """Return the engine's part of a sample; `stats` is what the run has done since it started."""
        epochs = list(self._recent)
        window, span = recent(epochs, now)
        lately = reduce(FlowStats.plus, window, FlowStats())
        rate = lately.rows_in / span
        latencies = quantiles([(each.seconds, each.rows_in) for _, each in epochs[-200:]])
        lag = None
        if stats.backlog is not None:
            lag = stats.backlog / rate if rate else (0.0 if not stats.backlog else None)
        tasks = max((each.tasks for each in window), default=1)
        nothing = OperatorStats()
        operators = {
            name: self._operator(stats.operators.get(name, nothing), lately.operators.get(name, nothing), span, tasks)
            for name in (node["name"] for node in graph["nodes"])
        }
        seconds = {name: each["seconds"] for name, each in operators.items()}
        mean_rows = lately.rows_in // max(1, len(window))
        fixed = lately.split.get("fixed", 0.0) / lately.seconds if lately.seconds else 0.0
        return {
            "totals": {
                "rate": round(rate, 1),
                "latency": latencies,
                "lag_seconds": None if lag is None else round(lag, 3),
                "size": stats.tasks,
                "size_name": "tasks",
                "state_bytes": stats.state_bytes,
                "errors": sum(each.errors for each in stats.operators.values()),
            },
            "operators": operators,
            "pressure": pressure_in_epochs(self._reach.look(graph), stats.backlog, mean_rows, seconds, fixed),
            "shards": self._shards.describe(lately),
            "order": {"depth": 0, "gap": 0.0, "operator": None},
            "epochs": [epoch_as_json(each, at) for at, each in epochs[-SHOWN:]],
            "checkpoint": self._checkpoint(epochs, now, stats.state_bytes),
            "workers": [],
            "latencies": dict.fromkeys(operators, latencies),
        }

    def _checkpoint(self, epochs: Sequence[tuple[float, FlowStats]], now: float, size: int) -> Json | None:
        if self._engine != "spark" or not epochs:
            return None
        at, stats = epochs[-1]
        return {"epoch": stats.epoch, "at": round(at, 3), "age": round(max(0.0, now - at), 3), "bytes": size}

    def _operator(self, now: OperatorStats, lately: OperatorStats, span: float, tasks: int) -> Json:
        return {
            **describe_operator(now, lately, span),
            "busy": round(min(1.0, lately.wall / span / tasks), 4),
            "queue": None,
            "state_bytes": now.state_bytes,
            "key_bytes": key_bytes(now.memory_bytes, now.keys),
        }


def key_bytes(memory: int | None, keys: int | None) -> int | None:
    """Return what a key costs: the bytes of memory of its state, its place in an index included, about."""
    return round(memory / keys) if memory and keys else None


def describe_operator(now: OperatorStats, lately: OperatorStats, span: float) -> Json:
    """Return what an operator has done as plain JSON, and what it did in the last `span` seconds."""
    shown = now.selectivity if now.kind != "sink" else None
    return {
        "rows_in": now.rows_in,
        "rows_out": now.rows_out,
        "rate_in": round(lately.rows_in / span, 1),
        "rate_out": round(lately.rows_out / span, 1),
        "seconds": round(lately.wall, 5),
        "wall": round(now.wall, 4),
        "cpu": round(now.cpu, 4),
        "cpu_share": round(min(1.0, lately.cpu / lately.wall), 4) if lately.wall > 0 else None,
        "cost": round(1e6 * now.wall / now.rows_in, 3) if now.rows_in and now.wall else None,
        "selectivity": None if shown is None else round(shown, 4),
        "errors": now.errors,
        "retries": now.retries,
        "timeouts": now.timeouts,
        "forgotten": now.forgotten,
        "keys": now.keys,
        "reorder_depth": now.reorder_depth,
        "oldest_gap": round(now.oldest_gap, 4),
    }


def epoch_as_json(stats: FlowStats, at: float) -> Json:
    split = {part: round(seconds, 5) for part, seconds in stats.split.items()} or {"user": round(stats.seconds, 5)}
    return {
        "epoch": stats.epoch,
        "at": round(at, 3),
        "rows": stats.rows_in,
        "seconds": round(stats.seconds, 5),
        "split": split,
        "tasks": stats.tasks,
        "attempts": stats.attempts,
    }


def recent(epochs: Sequence[tuple[float, FlowStats]], now: float) -> tuple[list[FlowStats], float]:
    """Return the epochs of the last seconds, at least one, and the seconds that they span; none where all is quiet."""
    if not epochs:
        return [], 1.0
    at, last = epochs[-1]
    if now - at > max(RECENT_EPOCHS_SECONDS, 3 * last.seconds):
        return [], 1.0
    window: list[FlowStats] = []
    began = at
    for committed, stats in reversed(epochs):
        if window and committed < now - RECENT_EPOCHS_SECONDS:
            # From this one's commit on: between epochs time passes too.
            return window, max(at - committed, 1e-3)
        window.append(stats)
        began = committed - stats.seconds
    return window, max(at - began, 1e-3)


def quantiles(weighted: Sequence[tuple[float, int]]) -> Json | None:
    """Return the median and the 99th percentile of (seconds, rows): rows of an epoch take as long as the epoch."""
    with_rows = sorted((seconds, rows) for seconds, rows in weighted if rows)
    total = sum(rows for _, rows in with_rows)
    if not total:
        return None
    at_part = {}
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        passed = 0
        for seconds, rows in with_rows:
            passed += rows
            if passed >= part * total:
                at_part[name] = round(seconds, 5)
                break
    return at_part


KEPT_PERIODS = 60
RECENT_SECONDS = 3.0
"""Rates are of as many seconds: operators count a batch when it is done, so a shorter time would flicker."""
PERIOD_SECONDS = 0.8
"""The least time of a period: one from look to look, however the clocks jitter."""
SIZE_EVERY = 8
"""Looks from one guess of the state's size to the next."""


class ThreadsView:
    """Compare the statistics with those of the last look."""

    def __init__(self, run: Run) -> None:
        assert isinstance(run.engine, LocalEngine)
        self._run, self._engine = run, run.engine
        self._earlier: deque[FlowStats] = deque([run.stats])
        self._period_began = self._earlier[0]
        self._sizes: dict[str, int] = {}
        self._looks = 0
        self._periods: list[Json] = []
        self._reach = Reached()

    def describe(self, graph: Json, now: float, stats: FlowStats) -> Json:
        """Return the engine's part of a sample."""
        self._earlier.append(stats)
        while len(self._earlier) > 2 and self._earlier[1].at < stats.at - RECENT_SECONDS:
            self._earlier.popleft()
        done = stats.since(self._earlier[0])
        seconds = max(done.seconds, 1e-9)
        workers = max(1, sum(worker.state != "suspended" for worker in stats.workers))
        self._guess_sizes()
        names = {node["name"] for node in graph["nodes"]}
        operators = {
            name: self._operator(each, done.operators[name], seconds, workers)
            for name, each in stats.operators.items()
            if name in names
        }
        inside = stats.in_flight
        busy = {name: each["seconds"] for name, each in operators.items()}
        self._period(stats, workers, now)
        worst = max(stats.operators.values(), key=lambda each: each.oldest_gap, default=None)
        return {
            "totals": {
                "rate": round(done.rows_in / seconds, 1),
                "latency": latency(stats.latency),
                "lag_seconds": round(stats.oldest, 4),
                "size": len(stats.workers),
                "size_name": "workers",
                "in_flight": inside,
                "most_in_flight": stats.most_in_flight,
                "state_bytes": sum(self._sizes.values()),
                "errors": sum(each.errors for each in stats.operators.values()),
            },
            "operators": operators,
            "pressure": pressure_in_queues(
                self._reach.look(graph),
                {name: each["queue"] for name, each in operators.items()},
                stats.capacity,
                inside / stats.most_in_flight if stats.most_in_flight else 0.0,
                busy,
                {name: each.queue_of for name, each in stats.operators.items()},
            ),
            "shards": {
                name: describe_shards(each.shards, len(each.shards), each.table, [], 0)
                for name, each in stats.operators.items()
                if len(each.shards) > 1 and name in names
            },
            "order": {
                "depth": sum(each.reorder_depth for each in stats.operators.values()),
                "gap": round(worst.oldest_gap, 4) if worst else 0.0,
                "operator": worst.name if worst and worst.oldest_gap else None,
            },
            "epochs": list(self._periods),
            "checkpoint": None,
            "workers": [
                {
                    "number": worker.number,
                    "state": worker.state,
                    "operator": worker.operator,
                    "busy_for": round(worker.busy_for, 3),
                }
                for worker in stats.workers
            ],
            "latencies": {name: latency(latencies) for name, latencies in stats.queries.items()},
        }

    def _operator(self, now: OperatorStats, done: OperatorStats, seconds: float, workers: int) -> Json:
        room = min(workers, now.permits) if now.permits else workers
        return {
            **describe_operator(now, done, seconds),
            "busy": round(min(1.0, done.wall / seconds / room), 4),
            "queue": max(now.queued, default=0),
            "state_bytes": self._sizes.get(now.name),
            "key_bytes": key_bytes(self._sizes.get(now.name), now.keys),
        }

    def _guess_sizes(self) -> None:
        """Guess the size of the state now and then: nothing else knows it, for it is never written."""
        if self._looks % SIZE_EVERY == 0:
            stations = list(self._engine.element.stations.items())
            for name, station in stations:
                if isinstance(station, StatefulStation):
                    size = state_bytes(station.state())
                    self._sizes[name] = self._sizes.get(name, 0) if size is None else size
        self._looks += 1

    def _period(self, stats: FlowStats, workers: int, now: float) -> None:
        """Split the workers' time of a second, as an epoch of Spark's is split."""
        seconds = stats.at - self._period_began.at
        if seconds < PERIOD_SECONDS:
            return
        done, self._period_began = stats.since(self._period_began), stats
        spent = {"user": 0.0, "sink": 0.0}
        for each in done.operators.values():
            spent["sink" if each.kind == "sink" else "user"] += each.wall / workers
        split = {part: round(min(each, seconds), 4) for part, each in spent.items()}
        split["idle"] = round(max(0.0, seconds - sum(split.values())), 4)
        period = {
            "epoch": self._periods[-1]["epoch"] + 1 if self._periods else 1,
            "at": round(now, 3),
            "rows": done.rows_in,
            "seconds": round(seconds, 4),
            "split": split,
            "tasks": workers,
            "attempts": 1,
        }
        self._periods = [*self._periods, period][-KEPT_PERIODS:]


def latency(measured: Latency | None) -> Json | None:
    return None if measured is None else {"p50": round(measured.p50, 5), "p99": round(measured.p99, 5)}
