"""What a co-routine waits for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.operators.port_buffer import PortBuffer


class Wait(NamedTuple):
    """What a co-routine waits for: so many rows in all of some ports, or in any of them."""

    every: bool
    counts: tuple[tuple[int, int], ...]

    def satisfied(self, pending: Sequence[PortBuffer]) -> bool:
        """Tell whether the rows are there."""
        every = self.every
        for port, count in self.counts:  # a loop, because generators take twice the time of it
            if (pending[port].count >= count) is not every:
                return not every
        return every

    def hopeless(self, pending: Sequence[PortBuffer], closed: Collection[int]) -> bool:
        """Tell whether the rows that are missing can never come, because their ports are closed."""
        missing = [port in closed for port, count in self.counts if pending[port].count < count]
        return any(missing) if self.every else all(missing)

    def __str__(self) -> str:
        counts = ", ".join(f"{port}: {count}" for port, count in self.counts)
        return f"wait_for_{'all' if self.every else 'any'}({{{counts}}})"


@lru_cache(maxsize=1024)
def checked_wait(every: bool, counts: tuple[tuple[int, int], ...], ports: int, most: int) -> Wait:
    """Make a wait, and refuse one for ports that are not there, or for rows that a port can never hold."""
    wait = Wait(every, counts)
    if not counts or any(count < 1 for _, count in counts):
        raise PenstockError(f"{wait} must name at least one port, and at least one row for each")
    for port, count in counts:
        if not 0 <= port < ports:
            raise PenstockError(no_port(port, ports))
        if count > most:
            raise PenstockError(
                f"{wait} needs {count} rows in port {port}, and max_pending={most} is the most that a port holds; give "
                f"operate() a larger max_pending="
            )
    return wait


def no_port(port: int, ports: int) -> str:
    """Say that there is no such input port."""
    return f"there is no input port {port}; the operator has {ports}, counted from 0"
