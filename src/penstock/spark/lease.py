"""One driver at a time: a lease with a fencing number, renewed while the driver lives."""

from __future__ import annotations

import getpass
import os
import socket
import threading
import time
from typing import Any

from penstock.errors import LeaseError
from penstock.spark.files import list_names, make_directory, read_json, remove, write_json

RENEW_SECONDS = 5.0
EXPIRE_SECONDS = 30.0


class Lease:
    """The right to write a checkpoint. Each holder has a higher number than the one before."""

    def __init__(self, checkpoint: str, *, clock: Any = time.time) -> None:
        self._directory = f"{checkpoint}/lease"
        self._clock = clock
        self.fence = 0
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None

    def acquire(self) -> None:
        """Take the lease, or refuse, naming the driver that has it."""
        make_directory(self._directory)
        numbers = self._numbers()
        holder = self.holder()
        if holder is not None:
            raise LeaseError(
                f"the checkpoint {os.path.dirname(self._directory)} is in use by process {holder['pid']} on "
                f"{holder['host']} (user {holder['user']}), which started {self._age(holder['started'])} ago "
                f"and was seen "
                f"{self._age(holder['renewed'])} ago; stop it first, or use another checkpoint"
            )
        self.fence = (numbers[-1] if numbers else 0) + 1
        self._started = self._clock()
        if not write_json(self._path(self.fence), self._body(), only_if_absent=True):
            raise LeaseError(
                f"another driver has just taken the checkpoint {os.path.dirname(self._directory)}; stop it first, "
                f"or use another checkpoint"
            )
        for number in numbers:
            remove(self._path(number))
        self._renewer = threading.Thread(target=self._renew, daemon=True, name="penstock-lease")
        self._renewer.start()

    def holder(self) -> dict[str, Any] | None:
        """Return what the driver that has the lease says of itself; None where nobody alive has it."""
        numbers = self._numbers()
        found: dict[str, Any] | None = read_json(self._path(numbers[-1])) if numbers else None
        return found if found is not None and self._alive(found) else None

    def check(self) -> None:
        """Refuse to go on where another driver has taken over."""
        if self._numbers()[-1:] != [self.fence]:
            raise LeaseError(
                f"another driver has taken over the checkpoint {os.path.dirname(self._directory)}, because this one "
                f"was not seen for {EXPIRE_SECONDS:.0f} s; this one stops without writing anything more"
            )

    def release(self) -> None:
        """Give the lease back; its number stays taken."""
        self._stop.set()
        if self._renewer is not None:
            self._renewer.join(timeout=RENEW_SECONDS)
        if self.fence and self._numbers()[-1:] == [self.fence]:
            write_json(self._path(self.fence), {**self._body(), "released": True})

    def _renew(self) -> None:
        while not self._stop.wait(RENEW_SECONDS):
            if self._numbers()[-1:] != [self.fence]:
                return
            write_json(self._path(self.fence), self._body())

    def _numbers(self) -> list[int]:
        return sorted(
            int(name.split(".")[0])
            for name in list_names(self._directory)
            if name.endswith(".json") and name.split(".")[0].isdigit()
        )

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number:09d}.json"

    def _body(self) -> dict[str, Any]:
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "user": _user(),
            "started": self._started,
            "renewed": self._clock(),
            "born": _born(os.getpid()),
            "released": False,
        }

    def _alive(self, holder: dict[str, Any]) -> bool:
        if holder["released"]:
            return False
        if holder["host"] == socket.gethostname():
            # A process number is used again after a while; the time of birth tells.
            return _born(holder["pid"]) == holder["born"] and _exists(holder["pid"])
        return bool(self._clock() - holder["renewed"] < EXPIRE_SECONDS)

    def _age(self, moment: float) -> str:
        return f"{max(0.0, self._clock() - moment):.0f} s"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _born(pid: int) -> str | None:
    """Return when a process was born, where the system tells."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            # The name of the program, in parentheses, may hold spaces.
            fields = file.read().rpartition(")")[2].split()
            return None if fields[0] == "Z" else fields[19]  # dead, but its parent does not care
    except (OSError, IndexError):
        return None
