"""Run declared keyed operators from Parquet to Parquet: the threads engine against Polars doing the same once."""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from bench import data, local_side, measure
from bench.keyed_loops import COUNT, EVERY, GAP, SIZE
from penstock.threads.engine import LocalOptions

Sources = tuple[Any, Any]
FILES = 4
SUM = {"s": ps.agg.sum("v")}


def join(left: Any, right: Any) -> Any:
    """Join two streams by key, in windows."""
    return left.join(right, window=ps.tumbling(SIZE // 20))


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "tumbling": lambda keyed, _: keyed.window(SIZE).aggregate(**SUM),
    "sliding": lambda keyed, _: keyed.window(ps.sliding(SIZE, EVERY)).aggregate(**SUM),
    "session": lambda keyed, _: keyed.window(ps.session(GAP)).aggregate(**SUM),
    "count_window": lambda keyed, _: keyed.window(ps.count_window(COUNT)).aggregate(**SUM),
    "join": join,
}


def make_files(work: Path, seed: int, rows: int, keys: int) -> None:
    """Write the rows of both sources: times that rise by one, keys and values in no order."""
    random = np.random.default_rng(seed)
    for side, values in (("left", "v"), ("right", "w")):
        (work / side).mkdir()
        for number in range(FILES):
            some = rows // FILES
            columns = {
                "at": np.arange(number * some, (number + 1) * some),
                "k": random.integers(0, keys, some),
                values: random.random(some),
            }
            pq.write_table(pa.table(columns), work / side / f"{number}.parquet")


def penstock_turn(name: str, work: Path, options: LocalOptions) -> tuple[pa.Table, float]:
    """Run an operator; return what it wrote and the seconds."""
    with tempfile.TemporaryDirectory(dir=work) as out:
        flow = ps.Flow(name)
        left = flow.source("left", ps.read.parquet(str(work / "left")), time="at").key_by("k")
        right = flow.source("right", ps.read.parquet(str(work / "right")), time="at") if name == "join" else None
        built = OPERATORS[name](left, None if right is None else right.key_by("k"))
        built.sink("out", ps.write.parquet(f"{out}/rows"))
        _, seconds = local_side.run_flow(flow, options)
        return pa.concat_tables(map(pq.read_table, sorted(Path(out).glob("rows/epoch=*/*.parquet")))), seconds


def polars_turn(name: str, work: Path) -> tuple[pa.Table, float]:
    """Do the same with Polars; return the rows and the seconds."""
    os.environ.setdefault("POLARS_MAX_THREADS", str(os.cpu_count() or 1))
    import polars as pl  # here: it reads how many threads it may have once, when it is loaded

    began = time.perf_counter()
    left = pl.read_parquet(str(work / "left" / "*.parquet"))
    sums = pl.col("v").sum().alias("s")
    if name == "tumbling":
        found = left.group_by("k", (pl.col("at") // SIZE).alias("start"), maintain_order=True).agg(sums)
    elif name == "sliding":
        starts = [(pl.col("at") // EVERY - back).alias("start") for back in range(SIZE // EVERY)]
        both = pl.concat([left.with_columns(start) for start in starts])
        found = both.group_by("k", "start", maintain_order=True).agg(sums)
    elif name == "session":
        begins = (pl.col("at").diff() >= GAP).fill_null(value=True).over("k")
        numbered = left.with_columns(begins.cast(pl.Int64).cum_sum().over("k").alias("number"))
        found = numbered.group_by("k", "number", maintain_order=True).agg(sums)
    elif name == "count_window":
        numbered = left.with_columns((pl.int_range(pl.len()).over("k") // COUNT).alias("number"))
        found = numbered.group_by("k", "number", maintain_order=True).agg(sums)
    else:
        window = (pl.col("at") // (SIZE // 20)).alias("window")
        right = pl.read_parquet(str(work / "right" / "*.parquet"))
        found = left.with_columns(window).join(right.with_columns(window), on=["k", "window"])
    with tempfile.TemporaryDirectory(dir=work) as out:
        found.write_parquet(f"{out}/rows.parquet", compression="zstd", compression_level=1)
        seconds = time.perf_counter() - began
    return found.to_arrow(), seconds


def check(name: str, ours: pa.Table, theirs: pa.Table) -> None:
    """Fail unless both have as many rows, and nearly the same values: Polars adds up in another order."""
    column = "w" if name == "join" else "s"
    one, other = (np.sort(table[column].to_numpy()) for table in (ours, theirs))
    if len(one) != len(other) or not np.allclose(one, other, rtol=1e-9):
        raise AssertionError(f"{name}: {len(one)} rows of Penstock's, {len(other)} of Polars', or other values")


def compare(seed: int, rows: int, keys: int, rounds: int, only: list[str] | None = None) -> dict[str, Any]:
    """Run each operator on both sides in turns; return the ratios, and the worst."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="run-", dir=data.cache_directory()) as folder:
        work = Path(folder)
        make_files(work, seed, rows, keys)
        for name in only or OPERATORS:
            ours, theirs = penstock_turn(name, work, LocalOptions()), polars_turn(name, work)
            check(name, ours[0], theirs[0])
            turns = {
                "penstock": local_side.clocked(
                    f"{name}, penstock", rows, partial(_seconds, penstock_turn, name, work, LocalOptions())
                ),
                "polars": local_side.clocked(f"{name}, polars", rows, partial(_seconds, polars_turn, name, work)),
            }
            speeds = measure.interleave(turns, rounds, 0)
            figures[name] = {
                **{f"{side}_rows_per_s": measure.median(speeds[side], seed=seed).median for side in turns},
                "ratio": measure.ratio(speeds["penstock"], speeds["polars"], seed=seed).as_dict(),
            }
    return {"operators": figures, "worst": min(each["ratio"]["median"] for each in figures.values())}


def _seconds(turn: Callable[..., tuple[pa.Table, float]], *arguments: Any) -> float:
    return turn(*arguments)[1]
