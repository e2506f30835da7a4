"""Write W1 with PySpark's transformWithStateInPandas."""

from collections.abc import Iterator
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from bench.peers.pandas_rows import events_of
from bench.workload import OUTPUT_DDL, STATE_DDL, Running, running


class RunningFrames(StatefulProcessor):  # type: ignore[misc]
    """Keep count and sum of a key, and yield both for every row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.state = handle.getValueState("running", STATE_DDL)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Take the rows of one key in one micro-batch."""
        state = self.state.get() or (0, 0.0)
        for frame in rows:
            outputs = []
            for row in events_of(frame):
                state, output = running(state, row)
                outputs.append(output)
            yield pd.DataFrame(outputs, columns=Running._fields)
        self.state.update(state)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def transform(events: DataFrame) -> DataFrame:
    """Return the running count and sum of every event's key."""
    return events.groupBy("key").transformWithStateInPandas(
        statefulProcessor=RunningFrames(), outputStructType=OUTPUT_DDL, outputMode="append", timeMode="None"
    )
