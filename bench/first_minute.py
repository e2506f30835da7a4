"""Measure the first minute: seconds from the command to the first output, in threads and on Spark, and where they go.

Beside it is Spark's own start: a session, and one job with a Python function. A flow cannot be faster there. `again` is
a flow that is started in a program whose session runs: what a user waits for in a notebook.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from bench import measure

DESCRIPTION = "the first minute: seconds from the command to the first output, cold and with a session, by step"

FLOW = """
import penstock as ps

def spent(total, row):
    return total + row.price, {"user": row.user, "total": total + row.price}

def make(name):
    flow = ps.Flow(name)
    orders = flow.source("orders", [{"user": "ann", "price": 3.0}, {"user": "bob", "price": 12.0}] * 4)
    totals = orders.key_by("user").scan(spent, 0.0, schema={"user": str, "total": float})
    totals.sink("out", ps.write.console())
    return flow

flow = make("first")
"""
SPARK = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.sparkContext.parallelize([1, 2], 2).map(lambda n: n + 1).collect(), flush=True)
"""
AGAIN = (
    SPARK
    + """
import sys, time
sys.path.insert(0, sys.argv[1])
import penstock as ps
from first import make
for name in ("one", "two"):
    began = time.perf_counter()
    ps.run(make(name), on=ps.Spark(spark))
    print("ran", time.perf_counter() - began, flush=True)
"""
)


def environment() -> dict[str, str]:
    """Return the environment of the programs: Spark's workers have the Python of this one."""
    return {**os.environ, "PYSPARK_PYTHON": sys.executable}


def first_line(command: list[str], is_output: Callable[[str], bool], errors: Callable[[str, float], None]) -> float:
    """Run a command to its end; return the seconds to its first line of output, and hand on what it says meanwhile."""
    began = time.perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment()) as process:
        assert process.stdout is not None
        assert process.stderr is not None

        def read(stream: IO[str]) -> None:
            for line in stream:
                errors(line.strip(), time.perf_counter() - began)

        reader = threading.Thread(target=read, args=(process.stderr,))
        reader.start()
        seconds = next((time.perf_counter() - began for line in process.stdout if is_output(line)), None)
        process.stdout.read()
        reader.join()
    if seconds is None or process.returncode:
        raise AssertionError(f"{' '.join(command[:4])} ... ended with {process.returncode} and without output")
    return seconds


def run_flow(folder: Path, engine: str, steps: dict[str, list[float]]) -> float:
    """Run the flow by the command line; return the seconds to its first row, and note when each step began."""

    def note(line: str, seconds: float) -> None:
        if line.startswith("penstock: flow") and " s: " in line:
            steps.setdefault(line.partition(" s: ")[2].partition("; ")[0], []).append(seconds)

    checkpoint = ["--checkpoint", tempfile.mkdtemp(dir=folder)] if engine == "spark" else []
    command = [sys.executable, "-m", "penstock.cli", "run", str(folder / "first.py:flow"), "--engine", engine]
    return first_line([*command, "--no-page", "--progress", *checkpoint], lambda line: "total" in line, note)


def run_python(*arguments: str) -> float:
    """Run a program; return the seconds to its first line."""
    return first_line([sys.executable, *arguments], lambda line: bool(line.strip()), lambda line, seconds: None)


def run_again(folder: Path) -> float:
    """Run a flow in a program that has a session and has run another flow; return its seconds."""
    command = [sys.executable, "-c", AGAIN, str(folder)]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment()).stdout
    return float([line.split()[1] for line in out.splitlines() if line.startswith("ran ")][-1])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rounds", type=int, default=3, help="measured turns of every side; one more is not counted")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="leave out the Spark engine")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all sides in turns."""
    steps: dict[str, dict[str, list[float]]] = {"threads": {}, "spark": {}}
    with tempfile.TemporaryDirectory(prefix="penstock-first-") as name:
        folder = Path(name)
        (folder / "first.py").write_text(FLOW)
        sides: dict[str, Callable[[], float]] = {
            "python": partial(run_python, "-c", "print(1)"),
            "import": partial(run_python, "-c", "import penstock; print(1)"),
            "threads": partial(run_flow, folder, "threads", steps["threads"]),
        }
        if args.spark:
            sides["spark_itself"] = partial(run_python, "-c", SPARK)
            sides["spark"] = partial(run_flow, folder, "spark", steps["spark"])
            sides["again"] = partial(run_again, folder)
        found = measure.interleave(sides, args.rounds, warmup=1)
    seconds = {side: measure.median(each, seed=args.seed).as_dict() for side, each in found.items()}
    over = measure.ratio(found["spark"], found["spark_itself"], seed=args.seed).as_dict() if args.spark else None
    begun = {engine: middle_of(each, args.rounds) for engine, each in steps.items() if each}
    return {"rounds": args.rounds, "seconds": seconds, "over_spark_itself": over, "steps": begun}


def middle_of(steps: dict[str, list[float]], rounds: int) -> dict[str, float]:
    """Return when each step began in the rounds that count, in the middle."""
    return {text: round(measure.median(each[-rounds:]).median, 3) for text, each in steps.items()}
