"""Run the tests of rooms that measure times as if the machine were four times slower, four times faster, and shared.

    python -m tests.speeds [--quick] [arguments of pytest]

No test may depend on how fast the machine is. The engines measure with clocks that can be stretched (`penstock.clock`);
the processes that keep the machine busy are real. `--quick` runs those tests that look at times, with both stretches.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.clock import VARIABLE

ROOT = Path(__file__).parents[1]

STRETCHES = {"four times slower": "4", "four times faster": "0.25"}
BUSY = 4
QUICK = [
    "tests/spark/test_pilot_on_spark.py",
    "tests/spark/test_pilot.py",
    "tests/spark/test_measures.py",
    "tests/threads/test_engine.py",
    "tests/threads/test_pilot.py",
    "tests/threads/test_replicas.py",
    "tests/threads/test_sizing.py",
    "tests/threads/test_levers.py",
    "tests/kernels/test_waiting.py",
    "tests/dashboard/test_live_run.py",
]
OPTIONS = ["-m", "not slow", "--numprocesses", "logical", "--dist", "loadgroup"]


def measuring_rooms(source: Path = ROOT / "src/penstock") -> list[str]:
    """Return the tests of the rooms of the package that measure times: those with a module that imports the clocks."""
    rooms = {
        path.relative_to(source).parts[0]
        for path in source.glob("*/**/*.py")
        if re.search(r"^from penstock(\.clock import|.* import.*\bclock\b)", path.read_text(), re.MULTILINE)
    }
    return [f"tests/{room}" for room in sorted(rooms)]


def check_paths(paths: list[str]) -> None:
    """Say at once, and not after the first tests, which of them are no longer there."""
    if missing := [path for path in paths if not (ROOT / path).exists()]:
        sys.exit(f"tests/speeds.py: {', '.join(missing)} not found; where have these tests moved?")


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep some processors busy for the time of a block."""
    # They also end by themselves, should this process be killed: their input is closed then.
    code = "import select, sys\nwhile not select.select([sys.stdin], [], [], 0)[0]: sum(range(100_000))"
    running = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


def run_tests(how: str, arguments: list[str], **variables: str) -> bool:
    """Run the tests once; tell whether all of them passed."""
    print(f"== {how}", flush=True)
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False).returncode == 0


def main(arguments: list[str]) -> int:
    """Run the tests in all ways, whatever the first ones gave; return how many of them failed."""
    quick = "--quick" in arguments
    paths = QUICK if quick else measuring_rooms()
    check_paths(paths)
    chosen = [*OPTIONS, *(each for each in arguments if each != "--quick"), *paths]
    passed = {how: run_tests(how, chosen, **{VARIABLE: stretch}) for how, stretch in STRETCHES.items()}
    if not quick:
        with busy_processes(BUSY):
            how = f"beside {BUSY} busy processes"
            passed[how] = run_tests(how, chosen)
    for how, well in passed.items():
        print(f"{how}: {'passed' if well else 'FAILED'}")
    return list(passed.values()).count(False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
