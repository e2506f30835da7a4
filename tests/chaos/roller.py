"""A run whose files roll, on the Spark engine without Spark, that is killed. Usage: roller.py SOURCES TESTS WORK SEED.

A line is printed after each epoch, and "done" in the end.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

ROWS, KEYS = 600, 5


def flow(work: Path) -> Any:
    """Build the flow: the same rows to files that roll by size, to one file an epoch, and to partitions."""
    import penstock as ps

    built = ps.Flow("rolling")
    rows = built.source("rows", ps.read.parquet(str(work / "data")))
    rows.sink("sized", ps.write.parquet(str(work / "sized"), file_size=9_000, roll_every=1))
    rows.sink("single", ps.write.json(str(work / "single"), roll_every=0))
    rows.sink("parts", ps.write.csv(str(work / "parts"), file_size=2_000, roll_every=1, partition_by="k"))
    return built


def main(work: Path, seed: int) -> None:
    """Run the flow, or go on with it, to its end."""
    from penstock.store import lease as leases
    from tests.spark.running import make_engine

    leases._exists = lambda pid: False  # type: ignore[assignment]  # the driver before was killed
    draw = random.Random(seed)
    engine = make_engine(flow(work), work / "ck", epoch_rows=draw.randint(3, 9), tasks=draw.randint(1, 3))
    engine._listener = lambda stats: print(f"epoch {stats.epoch}", flush=True)
    engine.run()
    print("done", flush=True)


if __name__ == "__main__":
    sys.path[:0] = sys.argv[1:3]
    main(Path(sys.argv[3]), int(sys.argv[4]))
