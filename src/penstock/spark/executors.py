"""The executors of a Spark application: count them, ask for more, give some back, without a restart."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 60.0
"""How long executors that were asked for are waited for before the number is looked at again."""


class Executors:
    """The executors of one Spark context on a cluster."""

    def __init__(self, context: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._context, self._scala, self._clock = context, context._jsc.sc(), clock
        conf = context.getConf()
        dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        self.can_change = not dynamic
        """Whether Spark takes orders: with dynamic allocation it decides by itself."""
        started = max(len(self.found()), int(conf.get("spark.executor.instances", "0")), 1)
        self.most = max(started, int(conf.get("spark.dynamicAllocation.maxExecutors", "0")))
        """As many as the application was given, unless its settings allow more."""
        self._cores_each = int(conf.get("spark.executor.cores", "0"))
        self._wanted: int | None = None
        self._until = 0.0

    def found(self) -> list[str]:
        """Return the executors that are there, the oldest first."""
        names = self._scala.getExecutorIds().mkString(",")
        return sorted((name for name in names.split(",") if name), key=lambda name: (len(name), name))

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
