"""Messages for a topic of several partitions, each with its own number of them and its own pace in event time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

SCHEMA = "p int, n long, t long, k long, v long"
WINDOW = 100
MODULUS = (1 << 61) - 1


def sizes(count: int, partitions: int) -> list[int]:
    """Return how many of the messages each partition has: the later ones have more."""
    shares = [2 + number for number in range(partitions)]
    found = [count * share // sum(shares) for share in shares]
    found[-1] += count - sum(found)
    return found


def message(partition: int, n: int) -> dict[str, int]:
    """Return message n of a partition: times never go back in it, and rise faster in some than in others."""
    return {"p": partition, "n": n, "t": n * (3 + partition) // 5, "k": n * 7 % 23, "v": (n * n + partition) % 1000}


def messages(count: int, partitions: int) -> Iterator[tuple[int, dict[str, int]]]:
    """Give all messages with their partitions, in turns."""
    left = sizes(count, partitions)
    for n in range(max(left)):
        for partition, size in enumerate(left):
            if n < size:
                yield partition, message(partition, n)


def mixed(state: int, row: Any) -> tuple[int, tuple[int, int, int]]:
    """Mix a partition's rows into one number: another one as soon as a row is lost, doubled or out of order."""
    state = (state * 1_000_003 + row.n + row.v) % MODULUS
    return state, (row.p, row.n, state)


MIXED = {"p": int, "n": int, "mixed": int}
