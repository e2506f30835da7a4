"""The executors of a Spark application: count them, ask for more, give some back, without a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.clock import waiting_time
from penstock.rows.keys import SHARDS

PATIENCE_SECONDS = 60.0
"""How long executors that were asked for are waited for before the number is looked at again."""


class Executors:
    """The executors of one Spark context on a cluster."""

    def __init__(self, context: Any, clock: Callable[[], float] = waiting_time) -> None:
        self._context, self._scala, self._clock = context, context._jsc.sc(), clock
        conf = context.getConf()
        dynamic = allocates_dynamically(conf)
        self.can_change = not dynamic
        """Whether Spark takes orders: with dynamic allocation it decides by itself."""
        self._cores_each = int(conf.get("spark.executor.cores", "0"))
        self._allowed = _allowed(conf, dynamic)
        self._seen = 0
        """The most that were there at once."""
        self._wanted: int | None = None
        self._until = 0.0

    def found(self) -> list[str]:
        """Return the executors that are there, the oldest first."""
        names = [name for name in self._scala.getExecutorIds().mkString(",").split(",") if name]
        self._seen = max(self._seen, len(names))
        return sorted(names, key=lambda name: (len(name), name))

    @property
    def most(self) -> int:
        """Return how many there may be: as many as were there at once so far, unless the settings allow more.

        A cluster gives executors only once the application runs, one after the other, so this must be asked anew.
        """
        return max(1, len(self.found()), self._seen, self._allowed)

    @property
    def most_tasks(self) -> int | None:
        """Return how many tasks they may come to run at once; None while neither executors nor settings tell."""
        most, each = self.most, self.cores_each
        return most * each if self._cores_each and (self._seen or self._allowed) else None

    @property
    def cores_each(self) -> int:
        """Return how many tasks an executor runs at once, as far as that is known."""
        if not self._cores_each:
            # Spark's default parallelism would not do: it is never below two.
            listed = self._scala.statusStore().executorList(True)
            each = [listed.apply(number) for number in range(listed.size())]
            self._cores_each = max((one.totalCores() for one in each if one.id() != "driver"), default=0)
        return max(1, self._cores_each)

    @property
    def cores(self) -> int:
        """Return how many tasks all executors that are there run at once; 0 before the first has come."""
        return len(self.found()) * self.cores_each

    @property
    def changing(self) -> bool:
        """Tell whether executors that were asked for, or given back, have not come or gone yet."""
        if self._wanted is None:
            return False
        if len(self.found()) == self._wanted or self._clock() >= self._until:
            self._wanted = None
        return self._wanted is not None

    def change(self, count: int) -> None:
        """Ask for so many executors in all; the newest go where there are more."""
        jvm, found = self._context._jvm, self.found()
        self._wanted, self._until = count, self._clock() + PATIENCE_SECONDS
        # First the total: otherwise Spark would put others in the place of those that go.
        self._scala.requestTotalExecutors(count, 0, jvm.PythonUtils.toScalaMap({}))
        if len(found) > count:
            self._scala.killExecutors(jvm.PythonUtils.toSeq(found[count:]))


def allocates_dynamically(conf: Any) -> bool:
    """Tell whether Spark itself decides how many executors there are."""
    return bool(conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true")


def _allowed(conf: Any, dynamic: bool) -> int:
    """Return how many executors the settings allow, 0 where they do not say; more than shards would have no work."""

    def number(key: str) -> int:
        return int(conf.get(key, "0"))

    most = number("spark.dynamicAllocation.maxExecutors")
    if dynamic:
        return min(most or SHARDS, SHARDS)
    each = number("spark.executor.cores")
    of_cores = number("spark.cores.max") // each if each else 0
    return min(max(most, number("spark.executor.instances"), of_cores), SHARDS)
