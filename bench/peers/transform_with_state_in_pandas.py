"""Write W1 with PySpark's transformWithStateInPandas."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from bench.workload import OUTPUT_DDL, STATE_DDL


class RunningFrames(StatefulProcessor):  # type: ignore[misc]
    """Keep count and sum of a key, and yield both for every row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.state = handle.getValueState("running", STATE_DDL)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Take the rows of one key in one micro-batch, vectorized."""
        count, total = self.state.get() or (0, 0.0)
        for frame in rows:
            counts = np.arange(count + 1, count + len(frame) + 1)
            totals = total + frame["value"].to_numpy().cumsum()
            count, total = int(counts[-1]), float(totals[-1])
            yield pd.DataFrame(
                {"serial": frame["serial"].to_numpy(), "key": key[0], "count": counts, "total": totals}
            )
        self.state.update((count, total))

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def transform(events: DataFrame) -> DataFrame:
    """Return the running count and sum of every event's key."""
    return events.groupBy("key").transformWithStateInPandas(
        statefulProcessor=RunningFrames(), outputStructType=OUTPUT_DDL, outputMode="append", timeMode="None"
    )
