"""Write W1 with PySpark's applyInPandasWithState."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from bench.peers.pandas_rows import events_of
from bench.workload import OUTPUT_DDL, STATE_DDL, Running, running


def running_of_key(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Take the rows of one key in one micro-batch."""
    current = state.get if state.exists else (0, 0.0)
    for frame in frames:
        outputs = []
        for row in events_of(frame):
            current, output = running(current, row)
            outputs.append(output)
        yield pd.DataFrame(outputs, columns=Running._fields)
    state.update(current)


def running_of_key_vectorized(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Take the rows of one key by whole columns: another program than a function of a row, for comparison."""
    count, total = state.get if state.exists else (0, 0.0)
    for frame in frames:
        counts = np.arange(count + 1, count + len(frame) + 1)
        totals = total + frame["value"].to_numpy().cumsum()
        count, total = int(counts[-1]), float(totals[-1])
        yield pd.DataFrame({"serial": frame["serial"].to_numpy(), "key": key[0], "count": counts, "total": totals})
    state.update((count, total))


def transform(events: DataFrame) -> DataFrame:
    """Return the running count and sum of every event's key."""
    return _transform(events, running_of_key)


def transform_vectorized(events: DataFrame) -> DataFrame:
    """Return the same, computed by whole columns."""
    return _transform(events, running_of_key_vectorized)


def _transform(events: DataFrame, function: Any) -> DataFrame:
    # The file sink takes append mode only, and this output is never revised.
    return events.groupBy("key").applyInPandasWithState(
        function,
        outputStructType=OUTPUT_DDL,
        stateStructType=STATE_DDL,
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )
