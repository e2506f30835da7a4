"""Hold many keys on Spark: what a key costs in the memory of all workers, and whether epochs slow down with keys held.

Keys come in epochs of their own; a tenth of them first, then epochs that touch some keys again, then the rest, then
epochs that touch the same keys. `growth` is what those take with all keys held, over with a tenth. Sizes are small by
default: `--keys 10000000 --epoch-rows 1000000` is the full size.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench import measure, session
from bench.memory import Watch
from bench.workload import running

DESCRIPTION = "memory per key and time of epochs by keys held, on Spark: declared aggregates and a function"
FEW = 10
"""The first measured epochs have one in so many of the keys."""

KINDS: dict[str, Callable[[Any], ps.Stream]] = {
    "declared": lambda keyed: keyed.aggregate(count=ps.agg.count(), total=ps.agg.sum("value"), name="held"),
    "function": lambda keyed: keyed.scan(running, (0, 0.0), name="held"),
}


class Rows:
    """Make events by their numbers: a class, so that the sizes travel with it."""

    def __init__(self, keys: int, touching: int) -> None:
        """After a tenth of the keys, and after all, `touching` rows are of the same keys, those of the first epochs."""
        self.keys, self.few, self.touching = keys, keys // FEW, touching

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.keys + 2 * self.touching

    def __call__(self, start: int, stop: int) -> pa.Table:
        serial = np.arange(start, stop, dtype=np.int64)
        later = self.keys + self.touching
        number = np.where(serial < self.few, serial, serial - self.touching)
        again = (serial - self.few) % self.few
        number = np.where((serial >= self.few) & (serial < self.few + self.touching), again, number)
        number = np.where(serial >= later, (serial - later) % self.few, number)
        # Keys are spread over all numbers, and each number is one key: the factor is odd.
        key = (number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
        return pa.table({"serial": serial, "key": key, "value": (serial % 1000) / 7.0})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--epoch-rows", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=5, help="measured epochs with few keys, and with all")
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run the flow once for each kind of operator."""
    if args.keys % (FEW * args.epoch_rows):
        raise SystemExit(f"--keys must be a multiple of {FEW} times --epoch-rows, so that epochs are of one kind")
    found = {}
    for kind in args.kinds:
        spark = session.make("bench-large-state", session.FAST)
        work = Path(tempfile.mkdtemp(prefix="penstock-large-state-"))
        try:
            found[kind] = _run_once(spark, work, kind, args)
        finally:
            session.close(spark)
            shutil.rmtree(work, ignore_errors=True)
        print(f"{kind}: {found[kind]}", file=sys.stderr, flush=True)
    return {
        "keys": args.keys,
        "epoch_rows": args.epoch_rows,
        "bytes_per_key": {kind: each["bytes_per_key"] for kind, each in found.items()},
        "growth": max(each["growth"]["median"] for each in found.values()),
        "kinds": found,
    }


def _run_once(spark: Any, work: Path, kind: str, args: argparse.Namespace) -> dict[str, Any]:
    made = Rows(args.keys, args.epochs * args.epoch_rows)
    flow = ps.Flow("large-state")
    schema = {"serial": int, "key": int, "value": float}
    events = flow.source("events", ps.read.generate(made, schema=schema, rows=made.rows))
    KINDS[kind](events.key_by("key")).sink("out", ps.write.parquet(str(work / "out")))
    few, filled = args.keys // FEW // args.epoch_rows, args.keys // args.epoch_rows
    peaks: list[int] = []
    with Watch() as watch:

        def note(stats: Any) -> None:
            peaks.append(sum(watch.peaks.values()))

        on = ps.Spark(spark, epoch_rows=args.epoch_rows, tasks=2)
        done = ps.run(flow, on=on, checkpoint=str(work / "checkpoint"), on_epoch=note)
    epochs = [stats for stats in done.epochs if stats.rows_in]
    few_held, all_held = epochs[few : few + args.epochs], epochs[filled + args.epochs : filled + 2 * args.epochs]
    at_few, at_all = [stats.seconds for stats in few_held], [stats.seconds for stats in all_held]
    computed = [[stats.computed for stats in some] for some in (all_held, few_held)]
    state = {item.operator: item for item in ps.state.operators(str(work / "checkpoint"))}["held"]
    if state.keys != args.keys:
        raise AssertionError(f"{state.keys:,} keys are held, not {args.keys:,}")
    # With a tenth of the keys and without one, a worker has as much beside them.
    held = args.keys - args.keys // FEW
    return {
        "bytes_per_key": round((peaks[-1] - peaks[few + args.epochs - 1]) / held, 1),
        "peak_mb": round(peaks[-1] / 1e6),
        "workers": len(watch.peaks),
        "file_bytes_per_key": round(state.bytes / state.keys, 1),
        "growth": measure.ratio(at_all, at_few, seed=args.seed).as_dict(),
        "cpu_growth": measure.ratio(*computed, seed=args.seed).as_dict(),
        "epoch_seconds": {"few": round(float(np.median(at_few)), 3), "all": round(float(np.median(at_all)), 3)},
    }
