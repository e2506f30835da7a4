"""Steer which replica has which partition of an operator: from the busiest to the least busy (Elasticutor)."""

from __future__ import annotations

from collections.abc import Callable

from penstock.elastic.base import Action
from penstock.elastic.shard_balance import HotKey, ShardBalance, ShardKeys, ShardStatistics
from penstock.local.steering.base import Period
from penstock.pe.element import Element
from penstock.pe.hot_keys import HotKeys
from penstock.pe.partitioned_station import PartitionedStation


class ShardSteering:
    """Move partitions of one operator between its replicas. How many replicas there are is not its business."""

    def __init__(
        self, element: Element, ask: Callable[[Callable[[], int]], object], operator: str, named: bool = False
    ) -> None:
        """Changes are made by whoever brings batches in: `ask` asks for one. Hot keys may be `named`."""
        self._element, self._ask, self._operator, self._named = element, ask, operator, named
        self.name = f"shards of {operator}"
        self.controller = ShardBalance()
        station = element.stations.get(operator)
        if isinstance(station, PartitionedStation):
            station.hot = HotKeys(named)

    def measure(self, period: Period) -> ShardStatistics | None:
        """Tell the seconds that each partition took, and who has it; nothing while replicas come and go."""
        station = self._element.stations.get(self._operator)
        done = period.done.operators.get(self._operator)
        if not isinstance(station, PartitionedStation) or done is None:
            return None
        sampled, station.hot = station.hot or HotKeys(), HotKeys(self._named)
        loads = tuple(max(0.0, seconds) for _, seconds in done.shards.values())
        replicas, table = len(station.squad.hired), station.squad.table
        if replicas < 2 or not all(period.unchanged(each, 1) for each in ("replicas", "cores")) or not sum(loads):
            return None
        # Only the busiest can turn out to be hot.
        busiest = sorted(range(len(loads)), key=loads.__getitem__, reverse=True)[:replicas]
        keys = tuple(ShardKeys(each, tuple(HotKey(*pair) for pair in sampled.hottest(each))) for each in busiest)
        return ShardStatistics(loads, table, replicas, hot_keys=keys)

    def act(self, action: Action) -> None:
        """Send a label after the partition; a hot one is only reported."""
        if action.what == "shard" and isinstance(action.after, int):
            partition, replica = int(action.target), action.after
            self._ask(lambda: self._move(partition, replica))

    def _move(self, partition: int, replica: int) -> int:
        self._element.move_partition(self._operator, partition, replica)
        return partition
