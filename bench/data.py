"""Make W1's data: events (serial, key, value) in Parquet files, cached under the temp directory."""

import os
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEYS = 10_000
ZIPF = 0.8
ROW_GROUP = 100_000
SCHEMA = pa.schema([("serial", pa.int64()), ("key", pa.int64()), ("value", pa.float64())])
FIRST_TIME = 1_700_000_000
DDL = "serial long, key long, value double"


def cache_directory() -> Path:
    """Return the directory that keeps generated files between runs."""
    return Path(os.environ.get("PENSTOCK_BENCH_CACHE", Path(tempfile.gettempdir()) / "penstock-bench"))


@lru_cache(maxsize=4)
def _popularity(seed: int, keys: int, exponent: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the cumulative zipf distribution over ranks, and which key has which rank."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    # Shuffled, so that hot keys do not sit together in any range of keys.
    return np.cumsum(weights) / weights.sum(), np.random.default_rng(seed).permutation(keys)


def events(seed: int, number: int, rows: int, keys: int = KEYS, exponent: float = ZIPF) -> pa.Table:
    """Generate file `number` of the stream: serials go on from file to file."""
    cumulative, key_of_rank = _popularity(seed, keys, exponent)
    rng = np.random.default_rng([seed, number])
    ranks = np.searchsorted(cumulative, rng.random(rows), side="right").clip(max=keys - 1)
    return pa.table(
        [
            np.arange(number * rows, (number + 1) * rows, dtype=np.int64),
            key_of_rank[ranks].astype(np.int64),
            rng.random(rows),
        ],
        schema=SCHEMA,
    )


def files(seed: int, count: int, rows: int, keys: int = KEYS, exponent: float = ZIPF) -> list[Path]:
    """Return `count` Parquet files of `rows` events each, generating those that are not cached."""
    directory = cache_directory() / f"events-{seed}-{rows}-{keys}-{exponent}"
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{number:06d}.parquet" for number in range(count)]
    for number, path in enumerate(paths):
        if not path.exists():
            # Under another name first: a run that is cut short leaves no half file in the cache.
            unfinished = path.with_suffix(f".{os.getpid()}")
            pq.write_table(events(seed, number, rows, keys, exponent), unfinished, row_group_size=ROW_GROUP)
            unfinished.rename(path)
        # Files go by their time of change, which two benchmarks that fill the cache at once would mix up.
        os.utime(path, (FIRST_TIME + number,) * 2)
    return paths


def epochs(seed: int, count: int, rows: int, files_per_epoch: int) -> list[list[Path]]:
    """Return the files of `count` epochs of `rows` events each."""
    if rows % files_per_epoch:
        raise ValueError(f"{rows} rows do not divide into {files_per_epoch} files")
    paths = files(seed, count * files_per_epoch, rows // files_per_epoch)
    return [paths[at : at + files_per_epoch] for at in range(0, len(paths), files_per_epoch)]
