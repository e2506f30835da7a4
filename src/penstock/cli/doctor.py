"""Look at this machine, and at a run's checkpoint, and say what is wrong and how to fix it.

    penstock doctor                             Python, Java, PySpark, PyArrow, pandas, memory, temporary space
    penstock doctor --checkpoint state/first    and whether what that run keeps is whole

Nothing is changed and no Spark is started. The exit code is 1 if something is broken, 0 otherwise; a warning is
something that works now and may not for long.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from penstock.cli import DONE, FAILED
from penstock.cli.displays import count, show, size
from penstock.connectors.paths import exists
from penstock.errors import CheckpointError, PenstockError, StorageError
from penstock.spark.java import check_java
from penstock.store.checkpoint import Checkpoint, Position
from penstock.store.lease import Lease
from penstock.store.objects import DamagedError, Json
from penstock.store.state_files import read_file

State = Literal["ok", "warning", "broken"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: State
    found: str
    fix: str = ""
    """What to do about it; empty where nothing is to be done."""


_PART = re.compile(r"(>=|<|==|!=|<=|>)\s*([0-9][0-9.]*)")


def installed(package: str) -> str | None:
    """Return the version of an installed package; None where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def known_range(package: str) -> str:
    """Return the range of versions in Penstock's own metadata, "" where it has none or is not installed."""
    try:
        wanted = metadata.requires("penstock") or []
    except metadata.PackageNotFoundError:
        return ""
    for line in wanted:
        requirement = line.partition(";")[0]
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if name is not None and name[0].lower() == package:
            return ",".join("".join(part) for part in _PART.findall(requirement))
    return ""


def fits(version: str, range_: str) -> bool:
    """Tell whether a version is in a range such as ">=4.3,<4.4"; pre-releases count as their release."""
    mine = _numbers(version)
    for sign, text in _PART.findall(range_):
        other = _numbers(text)
        width = max(len(mine), len(other))
        a, b = _padded(mine, width), _padded(other, width)
        held = {">=": a >= b, "<": a < b, "==": a == b, "!=": a != b, "<=": a <= b, ">": a > b}[sign]
        if not held:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    digits = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in digits[0].split(".")) if digits else ()


def _padded(numbers: tuple[int, ...], width: int) -> tuple[int, ...]:
    return numbers + (0,) * (width - len(numbers))


GB = 1_000_000_000
LEAST_MEMORY, GOOD_MEMORY = 1 * GB, 3 * GB
"""Spark's driver takes 1 GB unless told otherwise, and each Python worker some hundred MB."""
LEAST_SPACE, GOOD_SPACE = 0.2 * GB, 2 * GB
"""Shuffles, and the state of runs without a checkpoint, are written there."""


def examine_machine() -> list[Finding]:
    return [python(), java(), *packages(), workers(), memory(available_memory()), *temporary(), loopback()]


def python() -> Finding:
    """Name the interpreter: one that is too old never comes here."""
    return Finding("Python", "ok", f"{platform.python_version()} ({sys.executable})")


def java() -> Finding:
    try:
        return Finding("Java", "ok", check_java())
    except (PenstockError, OSError) as error:
        first, *rest = str(error).splitlines()
        return Finding("Java", "broken", first, "\n".join(rest) or "install Java 17 or later")


def packages() -> list[Finding]:
    """Compare the packages that matter with the ranges that were tested."""
    findings = [package("PySpark", "pyspark"), package("PyArrow", "pyarrow"), package("NumPy", "numpy")]
    return [*findings, pandas(installed("pandas"), known_range("pandas"))]


def package(what: str, name: str) -> Finding:
    version, range_ = installed(name), known_range(name)
    if version is None:
        return Finding(what, "broken", "not installed", f"pip install '{name}{range_}'")
    if not fits(version, range_):
        return Finding(what, "broken", f"{version}, tested is {range_}", f"pip install '{name}{range_}'")
    return Finding(what, "ok", version)


def pandas(version: str | None, range_: str) -> Finding:
    """Look at pandas, which Penstock never needs: PySpark's own pandas functions do, and are choosy."""
    if version is None:
        return Finding("pandas", "ok", "not installed; only PySpark's own pandas functions need it")
    if not fits(version, range_):
        return Finding(
            "pandas",
            "warning",
            f"{version}, tested is {range_}",
            f"Penstock does not use it; where you use PySpark's pandas functions: pip install 'pandas{range_}'",
        )
    return Finding("pandas", "ok", version)


def workers() -> Finding:
    """See whether Spark's workers would run the Python that drives them."""
    chosen = os.environ.get("PYSPARK_PYTHON")
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    if chosen is None:
        return Finding("workers' Python", "ok", "the same")
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([chosen, "-c", code], capture_output=True, text=True, check=False, timeout=30)
        theirs = done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        theirs = ""
    if theirs == mine:
        return Finding("workers' Python", "ok", f"{theirs} (PYSPARK_PYTHON={chosen})")
    problem = f"{theirs or 'none that runs'} at PYSPARK_PYTHON={chosen}, and the driver's is {mine}"
    return Finding("workers' Python", "broken", problem, f"unset PYSPARK_PYTHON, or point it at a Python {mine}")


def available_memory() -> int | None:
    """Return the bytes that can be had: the system's, or less where a container has a limit; None if not known."""
    limits = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
        limits += [max(0, int(limit) - int(used))] if limit != "max" else []
    except (OSError, ValueError):
        pass  # another system, or no container
    return min(limits, default=None)


def memory(free: int | None) -> Finding:
    if free is None:
        return Finding("memory", "ok", "this system does not tell")
    fix = (
        "Spark's driver takes 1 GB and each worker some hundred MB: end other programs, give the container more, "
        'or use fewer workers: --master "local[2]"'
    )
    return Finding("memory", _grade(free, LEAST_MEMORY, GOOD_MEMORY), f"{size(free)} available", fix)


def _grade(amount: float, least: float, good: float) -> State:
    return "broken" if amount < least else "warning" if amount < good else "ok"


def temporary() -> list[Finding]:
    """Look at the directories where Spark and Penstock write what is not kept."""
    places = {tempfile.gettempdir(): "temporary space"}
    for place in filter(None, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")):
        places.setdefault(place, "Spark's space")
    return [space(what, place) for place, what in places.items()]


def space(what: str, place: str) -> Finding:
    """Judge one directory: writable, and with room."""
    fix = "set TMPDIR, and SPARK_LOCAL_DIRS for Spark, to directories with room"
    try:
        with tempfile.NamedTemporaryFile(dir=place) as file:
            file.write(b"x")
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Finding(what, "broken", f"{place}: {error.strerror}", fix)
    return Finding(what, _grade(free, LEAST_SPACE, GOOD_SPACE), f"{size(free)} free in {place}", fix)


def loopback() -> Finding:
    """See whether programs of this machine can talk to each other: Spark and Python do, all the time."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        return Finding("loopback", "broken", str(error), "let programs listen and connect on 127.0.0.1")
    return Finding("loopback", "ok", "127.0.0.1 answers")


NEW = "or start with a new checkpoint and new output directories"


def examine_checkpoint(path: str) -> list[Finding]:
    """Look at a checkpoint; reads every state file that a run would need."""
    if not exists(path):
        return [Finding("checkpoint", "broken", f"there is no {path}", "give the directory of --checkpoint")]
    try:
        return _examine(path, Checkpoint(path))
    except StorageError as error:
        problem, _, fix = str(error).partition("; ")
        return [Finding("checkpoint", "broken", problem, fix)]


def _examine(path: str, kept: Checkpoint) -> list[Finding]:
    entries = kept.entries()
    try:
        flow = kept.description()
    except DamagedError:
        flow = None
    if flow is None:
        problem = f"{path}/flow.json is missing or damaged"
        fix = f"restore it from a copy, {NEW}" if entries else "this is no checkpoint, or its run never began"
        return [Finding("checkpoint", "broken", problem, fix)]
    whole: dict[int, Json] = {}
    torn = []
    for number in entries:
        try:
            body = kept.entry(number)
        except DamagedError:
            torn.append(number)
            continue
        if body is not None:
            whole[number] = body
    position = kept.latest()
    findings = [
        Finding("checkpoint", "ok", f"flow {flow['flow']!r}, {_last(position.epoch)}"),
        holder(path, kept),
        log(path, kept, sorted(whole), torn, position),
    ]
    if whole:
        findings.append(state(path, position))
    return [*findings, *begun(kept, position.epoch), *unfinished(kept)]


def _last(epoch: int) -> str:
    return f"last committed epoch {epoch}" if epoch else "no epoch is committed yet"


def holder(path: str, kept: Checkpoint) -> Finding:
    try:
        driver = Lease(kept.store).holder()
    except CheckpointError as error:
        problem, _, fix = str(error).partition("; ")
        return Finding("driver", "broken", problem, fix)
    if driver is None:
        return Finding("driver", "ok", "none: a run can begin")
    return Finding("driver", "ok", f"process {driver['pid']} on {driver['host']} (user {driver['user']}) has it")


def log(path: str, kept: Checkpoint, whole: list[int], torn: list[int], position: Position) -> Finding:
    """Look for entries of the log that are damaged, and say whether a run can go on without them."""
    if not torn:
        return Finding("epochs", "ok", f"{count(len(whole), 'commit')} in the log, all whole")
    names = "damaged: " + ", ".join(f"{path}/epochs/{number:09d}.json" for number in torn)
    if not whole:
        return Finding("epochs", "broken", f"{names}; none is whole", f"restore them from a copy, {NEW}")
    try:
        kept.offsets(position)
    except CheckpointError:
        return Finding("epochs", "broken", names, f"a run needs them: restore them from a copy, {NEW}")
    if torn[-1] > whole[-1]:
        fix = f"nothing needs to be done: the next run goes on after epoch {position.epoch}, and runs later ones again"
    else:
        fix = "nothing needs to be done: no run needs them any more"
    return Finding("epochs", "warning", names, fix)


def state(path: str, position: Position) -> Finding:
    """Read every state file that the last epoch names, and compare it with the hash in its name."""
    indexes = list(position.state.values())
    files = {name for index in indexes for name in index.files()}
    bad = []
    for name in sorted(files):
        try:
            read_file(f"{path}/state", name)
        except CheckpointError as error:
            bad.append(str(error).partition(";")[0])
        except (OSError, ValueError) as error:
            bad.append(f"the state file {name} cannot be read: {error}")
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        return Finding("state", "broken", bad[0] + more, f"restore the files of {path}/state from a copy, {NEW}")
    keys, taken = sum(sum(index.keys.values()) for index in indexes), sum(index.bytes() for index in indexes)
    return Finding("state", "ok", f"{count(keys, 'key')}, {size(taken)} in {count(len(files), 'file')}, all whole")


def begun(kept: Checkpoint, committed: int) -> list[Finding]:
    """See whether an epoch was begun and not committed: a crash, or a run that is at it now."""
    following = committed + 1
    try:
        if kept.intent(following) is None:
            return []
    except DamagedError as error:
        problem, _, fix = str(error).partition("; ")
        return [Finding("epoch under way", "broken", problem, f"{fix}, {NEW}")]
    return [Finding("epoch under way", "ok", f"epoch {following} was begun; the next run takes the same rows again")]


def unfinished(kept: Checkpoint) -> list[Finding]:
    """Count the files that a crash left without their names."""
    left = [name for part in ("intents", "epochs", "lease", "state") for name in kept.store.unfinished(part)]
    if not left:
        return []
    problem = f"{count(len(left), 'file')} of a crash; a run removes them after a while"
    return [Finding("unfinished files", "ok", problem)]


HELP = "check this machine, or a checkpoint, and say how to fix it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", metavar="DIR", help="look at what a run keeps, too")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(args: argparse.Namespace) -> int:
    findings = examine_machine()
    if args.checkpoint is not None:
        findings += examine_checkpoint(args.checkpoint.rstrip("/") or "/")
    if args.json:
        show([finding.__dict__ for finding in findings], True)
    else:
        print("\n".join(line for finding in findings for line in _lines(finding)))
    return FAILED if any(finding.state == "broken" for finding in findings) else DONE


def _lines(finding: Finding) -> list[str]:
    lines = [f"{finding.state:8}{finding.what:16}{finding.found}"]
    if finding.state != "ok":
        lines += [f"{'':24}{line}" for line in finding.fix.splitlines()]
    return lines
