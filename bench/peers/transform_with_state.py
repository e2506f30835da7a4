"""Write W1 with PySpark's transformWithState over rows."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from bench.workload import OUTPUT_DDL, STATE_DDL, Running, running

# A Row made from a template takes its values by position: faster than by keyword.
Output = Row(*Running._fields)


class RunningRows(StatefulProcessor):  # type: ignore[misc]
    """Keep count and sum of a key, and yield both for every row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.state = handle.getValueState("running", STATE_DDL)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Take the rows of one key in one micro-batch."""
        # None means a new key: asking exists() first would cost a second round trip.
        state = self.state.get() or (0, 0.0)
        for row in rows:
            state, output = running(state, row)
            yield Output(*output)
        self.state.update(state)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def transform(events: DataFrame) -> DataFrame:
    """Return the running count and sum of every event's key."""
    return events.groupBy("key").transformWithState(
        statefulProcessor=RunningRows(), outputStructType=OUTPUT_DDL, outputMode="append", timeMode="None"
    )
