"""Steer which task holds each shard: mend the table of each keyed operator where a task is too busy."""

from __future__ import annotations

from penstock.elastic.journal import Journal
from penstock.elastic.shard_balance import HotKey, ShardBalance, ShardKeys, ShardStatistics, imbalance
from penstock.spark.routing import even_table
from penstock.spark.stages import Stages
from penstock.spark.steering.measured import ShardLoads
from penstock.spark.worker_state import shard_count
from penstock.statistics import FlowStats, OperatorStats

LEAST_GAIN = 0.01
"""Seconds of an epoch that the busiest task must exceed the mean by before shards move."""
BALANCE = ShardBalance(least_gain=LEAST_GAIN)


class Tables:
    """The tables of all keyed operators."""

    def __init__(self, stages: Stages, journal: Journal, epoch: int, tables: dict[str, list[int]]) -> None:
        self._stages, self._journal = stages, journal
        self._keyed = [node for node in stages.plan.keyed if shard_count(node) > 1]
        self._tables = {n.name: list(tables[n.name]) for n in self._keyed if len(tables.get(n.name, ())) == n.shards}
        self._tasks: dict[str, int] = {}
        """The number of tasks that each table is made for; not known of one that was read from a checkpoint."""
        self._loads = {node.name: ShardLoads(node.shards) for node in self._keyed}
        for node in self._keyed:
            journal.begin(f"{node.name}/shards", BALANCE, epoch)

    def took(self, done: FlowStats) -> None:
        """Take in the loads of an epoch."""
        for name, loads in self._loads.items():
            loads.add(done.operators[name].shards)

    def choose(
        self, levels: tuple[int, ...], fixed: dict[str, list[int]], done: FlowStats | None, epoch: int
    ) -> dict[str, list[int]]:
        """Return the table of each keyed operator, given the tasks of each level and the tables that the user set."""
        chosen = {}
        for number, node in enumerate(self._stages.plan.keyed):
            tasks = levels[self._stages.levels[node.name]]
            if node.name not in self._loads:
                # Operators of one shard go to different tasks, so that they can run side by side.
                chosen[node.name] = fixed.get(node.name) or even_table(1, tasks, number)
                continue
            if node.name in fixed:
                self._tables[node.name] = list(fixed[node.name])
            else:
                self._mend(node.name, tasks, done, epoch)
            self._tasks[node.name] = tasks
            chosen[node.name] = list(self._tables[node.name])
        return chosen

    def _mend(self, name: str, tasks: int, done: FlowStats | None, epoch: int) -> None:
        table = self._tables.get(name)
        loads = self._loads[name].loads
        resized = table is not None and self._tasks.get(name, max(table) + 1) != tasks
        heavy = sum(loads) > LEAST_GAIN
        if table is None or (resized and (not heavy or tasks == 1)):
            if table is None or max(table) >= tasks or name in self._tasks:
                self._tables[name] = even_table(len(loads), tasks)
            return
        if not heavy or tasks == 1 or (done is None and not resized):
            return
        known_hot = self._journal.state(f"{name}/shards").hot
        if not resized and not known_hot and imbalance(loads, tuple(table), tasks) <= BALANCE.threshold:
            return  # what it sees is long, and it would hold: nothing is learned from logging that every epoch
        own = OperatorStats() if done is None else done.operators[name]
        seen = ShardStatistics(
            loads,
            tuple(table),
            tasks,
            tuple(own.shard_bytes.get(shard, 0) for shard in range(len(loads))),
            tuple(
                ShardKeys(shard, tuple(HotKey(*key) for key in keys)) for shard, keys in sorted(own.hot_keys.items())
            ),
        )
        for action in self._journal.step(f"{name}/shards", seen, epoch):
            if action.what == "shard":
                assert isinstance(action.after, int)
                table[int(action.target)] = action.after
