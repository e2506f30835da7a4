"""A chain: consecutive operators without memory that run as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from penstock.graph import Node
from penstock.pe.chunk import Chunk
from penstock.pe.failures import Failures
from penstock.pe.stateless import run_stateless


class Chain(ABC):
    """Consecutive operators.

    None of them goes on behind an error: which row failed must be known without calling anything twice. Under "fail" a
    chunk with a row that fails is run again operator by operator, which finds the error that comes first.
    """

    def __init__(self, nodes: tuple[Node, ...], width: int) -> None:
        self.nodes, self._width = nodes, width

    @abstractmethod
    def run(self, chunk: Chunk) -> tuple[Chunk, list[int]] | None:
        """Take rows through all operators; return what is left and the rows out of each, or None if a row failed."""

    def run_each(self, chunk: Chunk, failures: Failures, last: int | None = None) -> Iterator[Chunk | None]:
        """Take rows through one operator after the other, up to the last one; yield what leaves each of them."""
        now: Chunk | None = chunk.widened(self._width)
        for node in self.nodes[: None if last is None else last + 1]:
            now = None if now is None else run_stateless(node, now, failures).get(0)
            yield now
