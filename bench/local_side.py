"""Run flows in this process and clock them: what the benchmarks of the threads engine share."""

import argparse
import gc
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import penstock as ps
from bench import data, measure
from penstock.lab.workloads import synthetic
from penstock.plan.plan import make_plan
from penstock.threads import building, element, partitioned_station, stations
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.settings import Settings

EngineClass = type[LocalEngine]
Kernel = synthetic.Kernel
serials = synthetic.serials
BUILDERS = (stations, partitioned_station, building, element)
"""The modules that build an engine's parts."""


def run_flow(
    flow: ps.Flow, options: LocalOptions | None = None, kind: EngineClass = LocalEngine
) -> tuple[LocalEngine, float]:
    """Run a flow to its end; return the engine, which has the results, and the seconds that the run took."""
    engine = kind(make_plan(flow), LocalOptions() if options is None else options)
    began = time.perf_counter()
    engine.run()
    return engine, time.perf_counter() - began


def clocked(name: str, rows: int, run: Callable[[], float]) -> Callable[[], float]:
    """Return a turn of a side: run it, say what it took, and return its rows a second."""

    def turn() -> float:
        gc.collect()  # what the side before left behind is not this side's to clear
        seconds = run()
        say(f"{name}: {rows:,} rows in {seconds:.2f} s, {rows / seconds:,.0f} rows/s")
        return rows / seconds

    return turn


def say(line: str) -> None:
    """Tell whoever watches how it goes."""
    print(line, file=sys.stderr, flush=True)


def peer(module: str) -> ModuleType | None:
    """Import a peer's module of `bench.peers`; a peer that is not installed is named, and None returned."""
    try:
        return importlib.import_module(f"bench.peers.{module}")
    except ModuleNotFoundError as error:
        say(f"{module}: skipped, {error.name} is not installed (pip install 'penstock[bench]')")
        return None


def directory(seed: int, files: int, rows: int) -> tuple[Path, list[Path]]:
    """Return a directory with exactly these files of events, for a source that reads directories."""
    cached = data.files(seed, files, rows)
    # The cache may hold more files of the same shape than this run is to read.
    chosen = cached[0].parent.with_name(f"{cached[0].parent.name}-first-{files}")
    chosen.mkdir(exist_ok=True)
    paths = []
    for path in cached:
        link = chosen / path.name
        if not link.exists():
            link.symlink_to(path)
        paths.append(link)
    return chosen, paths


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the engine; its own defaults are what the bars are held to."""
    default = LocalOptions()
    parser.add_argument("--batch-rows", type=int, help="rows of a batch (default: found by the engine)")
    parser.add_argument("--model", choices=("manual", "dedicated", "dynamic", "bound"), default=default.settings.model)
    parser.add_argument("--workers", type=int, default=default.settings.workers)
    parser.add_argument("--partitions", type=int, default=default.settings.partitions)


def engine_options(args: argparse.Namespace) -> LocalOptions:
    """Make the engine's options of those of the command line."""
    settings = Settings(model=args.model, workers=args.workers, partitions=args.partitions)
    return LocalOptions(args.batch_rows, settings=settings)


def engine_figures(options: LocalOptions) -> dict[str, Any]:
    """Return the engine's options for the result."""
    used = options.settings
    return {
        "batch_rows": options.batch_rows,
        "model": used.model,
        "workers": used.workers,
        "partitions": used.partitions,
    }


def compare(speeds: Mapping[str, Sequence[float]], pairs: Mapping[str, tuple[str, str]], seed: int) -> dict[str, Any]:
    """Return the rows a second of every side and the ratio of every pair that was measured, else None."""
    sides = {name: measure.median(each, seed=seed) for name, each in speeds.items()}
    ratios = {
        key: measure.ratio(speeds[above], speeds[below], seed=seed)
        for key, (above, below) in pairs.items()
        if above in speeds and below in speeds
    }
    return {
        **{key: ratios[key].median if key in ratios else None for key in pairs},
        **{f"{name}_rows_s": each.median for name, each in sides.items()},
        "intervals": {name: each.as_dict() for name, each in (sides | ratios).items()},
    }


@contextmanager
def engine_with(**replaced: Any) -> Iterator[None]:
    """Build engines from other parts while inside: a baseline differs from the engine in these alone.

    A part is replaced in every module that builds with it, and one that none of them knows is refused: a part that
    is not replaced would compare the engine with itself. Whoever uses this looks at what was built, too.
    """
    shipped = [
        (module, name, getattr(module, name)) for module in BUILDERS for name in replaced if hasattr(module, name)
    ]
    missing = replaced.keys() - {name for _, name, _ in shipped}
    if missing:
        raise AssertionError(f"the engine is not built with {', '.join(sorted(missing))}")
    try:
        for module, name, _ in shipped:
            setattr(module, name, replaced[name])
        yield
    finally:
        for module, name, part in shipped:
            setattr(module, name, part)


def check_part(name: str, part: object, kind: type) -> None:
    """Fail if an engine was not built with the part that is being measured."""
    if type(part) is not kind:
        raise AssertionError(f"{name}: the engine was built with a {type(part).__name__}, not a {kind.__name__}")


def check_order(name: str, found: Sequence[int], rows: int) -> None:
    """Fail unless these are all serial numbers, in order."""
    if list(found) != list(range(rows)):
        problem = "are not in the order of the inputs" if sorted(found) == list(range(rows)) else "are not complete"
        raise AssertionError(f"{name}: the outputs {problem}")
