"""Describe a run of the threads engine from its live statistics: what was done between two looks, and what waits."""

from __future__ import annotations

from collections import deque

from penstock.dashboard.epochs import describe_operator, describe_shards, key_bytes
from penstock.dashboard.graph import Json, Reached, pressure_in_queues
from penstock.kernels.shards import state_bytes
from penstock.run import Run
from penstock.statistics import FlowStats, Latency, OperatorStats
from penstock.threads.engine import LocalEngine
from penstock.threads.stateful_station import StatefulStation

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
            "latencies": {name: latency(found) for name, found in stats.queries.items()},
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
