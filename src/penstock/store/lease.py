"""One driver at a time: a lease with a fencing number, renewed while the driver lives.

The lease keeps a second driver from starting while the first one lives. That the first one can do no harm once it was
thought dead does not rest on it: that is the number, which is compared where something is committed or removed.
"""

from __future__ import annotations

import getpass
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from penstock.errors import CheckpointError, LeaseError, PenstockError, StorageError
from penstock.store.objects import DamagedError, Store

EXPIRE_SECONDS = 30.0
"""A driver on another machine that was not seen for as long counts as dead; PENSTOCK_LEASE_SECONDS sets it."""
RENEWALS = 6
"""How often a lease is renewed in that time."""
ATTEMPTS = 20
DIRECTORY = "lease"
_HELD: set[str] = set()
"""The leases of this process: that it lives does not tell whether a run of it does."""
log = logging.getLogger(__name__)


class Lease:
    """The right to write a checkpoint. Each holder has a higher number than the one before."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        machine: str | None = None,
        expire: float | None = None,
        renewing: bool = True,
    ) -> None:
        self._store, self._clock, self._renewing = store, clock, renewing
        self._machine = machine or os.environ.get("PENSTOCK_MACHINE") or _machine()
        self._expire = expire or _expire_seconds()
        self.fence = 0
        self._started, self._nonce = 0.0, uuid.uuid4().hex
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None

    def acquire(self, above: int = 0) -> None:
        """Take the lease, with a number above one that is known to be used; or refuse, naming who has it."""
        numbers = self._numbers()
        holder = self.holder()
        if holder is not None:
            raise LeaseError(
                f"the checkpoint {self._store.root} is in use by process {holder['pid']} on "
                f"{holder['host']} (user {holder['user']}), which started {self._age(holder['started'])} ago "
                f"and was seen {self._age(holder['renewed'])} ago; stop it first, or use another checkpoint"
            )
        self.fence = max([*numbers, above], default=0) + 1
        self._started = self._clock()
        _HELD.add(self._nonce)
        # A number that is free again was another's that is gone: a higher one tells.
        if not self._store.write_new(self._name(self.fence), self._body()) or not self.is_mine():
            self.fence = 0
            _HELD.discard(self._nonce)
            raise LeaseError(
                f"another driver has just taken the checkpoint {self._store.root}; stop it first, or use another "
                f"checkpoint"
            )
        for number in numbers:
            self._store.delete(self._name(number))
        if self._renewing:
            self._renewer = threading.Thread(target=self._renew, daemon=True, name="penstock-lease")
            self._renewer.start()

    def holder(self) -> dict[str, Any] | None:
        """Return what the driver that has the lease says of itself; None where no driver that lives has it."""
        for _ in range(ATTEMPTS):
            numbers = self._numbers()
            if not numbers:
                return None
            name = self._name(numbers[-1])
            try:
                body = self._store.read(name)
            except DamagedError:
                raise CheckpointError(
                    f"{self._store.path(name)} is damaged, so that nobody can tell whether a driver lives; make sure "
                    f"that none does, and remove the file"
                ) from None
            if body is not None:  # else a driver with a higher number has removed it in between
                return body if self._alive(body) else None
        raise LeaseError(f"the lease of {self._store.root} changes hands all the time; stop the other drivers")

    def is_mine(self) -> bool:
        """Tell whether no other driver has taken over."""
        return bool(self.fence) and self._numbers()[-1:] == [self.fence]

    def check(self) -> None:
        """Refuse to go on where another driver has taken over."""
        if not self.is_mine():
            raise self.lost()

    def lost(self) -> LeaseError:
        return LeaseError(
            f"another driver has taken over the checkpoint {self._store.root}, because this one was not seen for "
            f"{self._expire:.0f} s; this one stops without writing anything more"
        )

    def renew(self) -> bool:
        """Say once more that the driver lives; tell whether it still has the lease."""
        if not self.is_mine():
            return False
        self._store.write(self._name(self.fence), self._body())
        return True

    def release(self) -> None:
        """Give the lease back; its number stays taken."""
        self._stop.set()
        if self._renewer is not None:
            self._renewer.join(timeout=self._expire / RENEWALS)
        try:
            if self.is_mine():
                self._store.write(self._name(self.fence), {**self._body(), "released": True})
        except StorageError as error:
            # No reason for a run to fail that is done, nor to hide why it has failed.
            log.warning("the lease of %s could not be given back, and runs out by itself: %s", self._store.root, error)
        finally:
            _HELD.discard(self._nonce)

    def _renew(self) -> None:
        while not self._stop.wait(self._expire / RENEWALS):
            try:
                if not self.renew():
                    return
            except PenstockError:
                continue  # it may go better next time; if not, another driver may take over, and nothing is lost

    def _numbers(self) -> list[int]:
        return sorted(
            int(name.split(".")[0])
            for name in self._store.names(DIRECTORY)
            if name.endswith(".json") and name.split(".")[0].isdigit()
        )

    def _name(self, number: int) -> str:
        return f"{DIRECTORY}/{number:09d}.json"

    def _body(self) -> dict[str, Any]:
        return {
            "host": socket.gethostname(),
            "machine": self._machine,
            "pid": os.getpid(),
            "user": _user(),
            "started": self._started,
            "renewed": self._clock(),
            "born": _born(os.getpid()),
            "released": False,
            "nonce": self._nonce,  # of two drivers that write the same number, each knows its own
        }

    def _alive(self, holder: dict[str, Any]) -> bool:
        if holder["released"]:
            return False
        # Leases from before there were machines name the host alone.
        here = holder["machine"] == self._machine if "machine" in holder else holder["host"] == socket.gethostname()
        if here and holder["pid"] == os.getpid() and holder.get("nonce", "") not in _HELD:
            return False  # a run of this process that has ended and could not say so
        if here:
            # A process number is used again after a while; the time of birth tells.
            return _born(holder["pid"]) == holder["born"] and _exists(holder["pid"])
        return bool(self._clock() - holder["renewed"] < self._expire)

    def _age(self, moment: float) -> str:
        return f"{max(0.0, self._clock() - moment):.0f} s"


def _expire_seconds() -> float:
    text = os.environ.get("PENSTOCK_LEASE_SECONDS") or str(EXPIRE_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise LeaseError(f"PENSTOCK_LEASE_SECONDS is {text!r}; set it to a number of seconds above 0, or unset it")
    return seconds


def _machine() -> str:
    """Name the place in which a process number means this process: containers may share a host's name."""
    parts = [socket.gethostname()]
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts.append(file.read().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass  # not Linux: the host's name must do
    return " ".join(parts)


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
