"""A batch: some rows of one stream, under the number that all streams of a flow share.

A flow's input is cut once, where it comes in. Batch `n` of every stream is what batch `n` of the input led to, empty if
need be, so one number per batch orders everything, and a header per number says what is the same for all streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.kernels.marks import Steps
from penstock.order.parts import SplitBatch
from penstock.order.primitives import Empty
from penstock.rows.chunk import Chunk
from penstock.rows.timing import Ticks

Taken = tuple["Header", "list[Chunk | None]"]
"""A batch as all sinks have it: the rows of each, in the order of the header's sinks."""


@dataclass(frozen=True, slots=True)
class Header:
    """What is the same for batch `number` on every stream."""

    number: int
    marks: Mapping[str, Ticks]
    """The watermark of each source before the batch."""
    steps: Mapping[str, Steps]
    """How they rise in it."""
    entered: float
    """When its rows were read, by the engine's clock."""
    sinks: tuple[str, ...]
    """The sinks that the batch goes to."""
    parts: SplitBatch[Chunk | None, list[Chunk | None]]
    """Gathers what they get; the last one to get its part has the whole batch."""

    def finish(self, sink: str, chunk: Chunk | None) -> list[Chunk | None] | Empty:
        """Take what a sink gets; return what all got once this was the last one."""
        return self.parts.finish(self.sinks.index(sink), chunk)


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one stream in one batch; None for no rows."""

    header: Header
    chunk: Chunk | None

    def __len__(self) -> int:
        return 0 if self.chunk is None else len(self.chunk)


class Call(Batch):
    """Calls a worker to an operator whose work waits elsewhere; it has neither rows nor a number."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None)  # type: ignore[arg-type]


CALL = Call()
URGENT = Call()
"""The same from one that is called itself, and must not wait for room: those that wait for each other wait for ever."""
