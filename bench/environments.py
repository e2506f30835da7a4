"""Make an environment for a program, run it there, and watch the memory of it and of all that it starts."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMMON = ("pyarrow>=11", "numpy>=1.22")
"""What every environment has: the data are Parquet."""


class Unavailable(Exception):
    """Say why a peer is not measured."""


def interpreter(folder: Path, installs: Sequence[str], patience: float) -> Path:
    """Return the Python of an environment, making it first if need be."""
    python, stamp = folder / "bin" / "python", folder / ".made"
    wanted = "\n".join((*installs, *COMMON))
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"making {folder} with {', '.join(installs) or 'nothing'}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _called([sys.executable, "-m", "venv", str(folder)], patience)
    _called([str(python), "-m", "pip", "install", "--disable-pip-version-check", *wanted.split("\n")], patience)
    stamp.write_text(wanted)
    return python


def _called(command: Sequence[str], patience: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"not installed within {patience:.0f} s") from None
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines or ["no message"]
        raise Unavailable(f"cannot be installed: {errors[-1].strip()}")


def run_program(python: Path, arguments: Sequence[str], patience: float) -> dict[str, Any]:
    """Run a peer's program, watching its memory; return what it reports, and the peak."""
    command = [str(python), "-m", "bench.peers", *arguments]
    # As if the environment were activated: Spark and Flink start the first Python that they find.
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    # Of its own session, so that whatever it started can be found and ended with it.
    process = subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    memory = Memory(process.pid)
    memory.start()
    try:
        out, err = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        memory.end_all()
        process.communicate()
        raise Unavailable(f"not done within {patience:.0f} s") from None
    finally:
        memory.stop()
    if process.returncode:
        lines = [line for line in err.decode(errors="replace").splitlines() if line.strip()]
        raise Unavailable(f"failed: {lines[-1].strip() if lines else process.returncode}")
    report: dict[str, Any] = json.loads(out.decode().strip().splitlines()[-1])
    return {**report, "peak_mb": memory.peak / 2**20}


class Memory(threading.Thread):
    """Watch the memory of a process and of all that it started (Linux)."""

    EVERY = 0.1

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._done = pid, threading.Event()
        self.peak = 0

    def run(self) -> None:
        """Look until it is over."""
        while not self._done.wait(self.EVERY):
            self.peak = max(self.peak, sum(map(_resident, self._members())))

    def stop(self) -> None:
        """End the watch."""
        self._done.set()
        self.join()

    def end_all(self) -> None:
        """End the process and what it started."""
        for pid in self._members():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue

    def _members(self) -> list[int]:
        """Return the processes of its session: what it started, and what that started."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
                except (OSError, IndexError, ValueError):
                    continue  # it has ended meanwhile
                if session == self._pid:
                    found.append(int(entry.name))
        return found


def _resident(pid: int) -> int:
    """Return the bytes of a process, pages that it shares with others counted in parts."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration, ValueError):
        return 0
