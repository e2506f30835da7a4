"""Write W1 with Polars: all files at once, running counts and sums by key, one Parquet file."""

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import data

os.environ.setdefault("POLARS_MAX_THREADS", str(os.cpu_count() or 1))

import polars as pl  # here: it reads how many threads it may have once, when it is loaded


def threads() -> int:
    """Return how many threads Polars has."""
    return int(pl.thread_pool_size())


def run(paths: Sequence[Path]) -> float:
    """Run once; return the seconds."""
    with tempfile.TemporaryDirectory(prefix="run-", dir=data.cache_directory()) as work:
        began = time.perf_counter()
        events = pl.read_parquet([str(path) for path in paths])
        found = events.select(
            "key",
            "serial",
            pl.int_range(1, pl.len() + 1).over("key").alias("count"),
            pl.col("value").cum_sum().over("key").alias("total"),
        )
        # As Penstock writes it.
        found.write_parquet(f"{work}/out.parquet", compression="zstd", compression_level=1)
        return time.perf_counter() - began
