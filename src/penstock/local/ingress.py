"""Cut the input of a flow in batches: rows with positions, and the marks that they raise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.errors import SourceError
from penstock.graph import Node
from penstock.ingress.feeds import Slice
from penstock.ingress.splits import read_split
from penstock.operators.base import Source
from penstock.pe.chunk import Chunk, concat, sorting_order
from penstock.pe.failures import Failure
from penstock.pe.marks import Steps, rises
from penstock.pe.source_rows import end_mark, late_rows, source_chunk
from penstock.pe.stations import Rows
from penstock.plan import Plan
from penstock.sequential import late_row_message
from penstock.timing import BEFORE, FOREVER, Ticks


@dataclass
class Cut:
    """One batch of input."""

    rows: dict[str, Rows]
    """The rows of each source by its output port."""
    marks: dict[str, Ticks]
    steps: dict[str, Steps]
    count: int
    late: Failure | None = None
    """A row that came too late, where that ends the flow; nothing at or behind it is in the batch."""


@dataclass
class Cutter:
    """Cut what sources give in batches, keeping their watermarks."""

    plan: Plan
    batch_rows: int
    marks: dict[str, Ticks] = field(default_factory=dict)
    floor: tuple[int, ...] | None = None
    """The highest order_by of the epochs before."""

    def __post_init__(self) -> None:
        self.marks = {node.name: BEFORE for node in self.plan.sources}
        self._ordered = any(isinstance(n.operator, Source) and n.operator.order_by for n in self.plan.sources)

    def cut(self, slices: Mapping[str, Slice]) -> Iterator[Cut]:
        """Cut the rows of one epoch, in order."""
        if self._ordered:
            yield from self._cut_ordered(slices)
            return
        for node in self.plan.sources:
            if node.name in slices:
                for chunk in self._chunks(node, slices[node.name]):
                    for start, stop in self._cuts(len(chunk)):
                        yield self._made({node.name: {0: chunk.slice(start, stop)}})

    def _cuts(self, rows: int) -> Iterator[tuple[int, int]]:
        """Yield where batches begin and end; their size may change between two of them."""
        start = 0
        while start < rows:
            stop = min(start + self.batch_rows, rows)
            yield start, stop
            start = stop

    def ends(self, sources: list[str]) -> Cut:
        """Return the batch that ends sources: no rows, and their last marks."""
        steps = {}
        for number, node in enumerate(self.plan.sources):
            if node.name in sources:
                steps[node.name] = end_mark(number, self.plan.layout.base)
        before = dict(self.marks)
        self.marks.update(dict.fromkeys(sources, FOREVER))
        return Cut({}, before, steps, 0)

    def _chunks(self, node: Node, found: Slice) -> Iterator[Chunk]:
        assert isinstance(node.operator, Source)
        for split in found.splits:
            for piece in read_split(node.operator.reader, node.types[0], split, node.name):
                chunk = source_chunk(self.plan, node, piece, node.name in self.plan.timed)
                if len(chunk):
                    yield chunk

    def _cut_ordered(self, slices: Mapping[str, Slice]) -> Iterator[Cut]:
        """Cut an epoch whose rows have an order across sources: all of it must be there first."""
        whole = {}
        late: dict[str, Chunk] = {}
        for node in self.plan.sources:
            chunks = list(self._chunks(node, slices[node.name])) if node.name in slices else []
            if not chunks:
                continue
            chunk = concat(chunks).sorted()
            if self.floor is not None:
                behind = late_rows(chunk, self.floor)
                if behind.any():
                    late[node.name] = chunk.select(np.flatnonzero(behind))
                    chunk = chunk.select(np.flatnonzero(~behind))
            if len(chunk):
                whole[node.name] = chunk
        width = len(self.floor) if self.floor is not None else self._order_width()
        tops = [chunk.position(len(chunk) - 1)[:width] for chunk in whole.values()]
        self.floor = max([*tops, *([] if self.floor is None else [self.floor])], default=None)
        yield from self._cut_late(late)
        yield from self._cut_merged(whole)

    def _order_width(self) -> int:
        return max(len(n.operator.order_by) for n in self.plan.sources if isinstance(n.operator, Source))

    def _cut_late(self, late: dict[str, Chunk]) -> Iterator[Cut]:
        """Send late rows out of the sources' late ports, in order; they come before all rows of their epoch."""
        for name, chunk in sorted(late.items(), key=lambda item: item[1].position(0)):
            node = self.plan.nodes[name]
            if node.operator.on_error == "fail":
                error = SourceError(late_row_message(name, chunk.get_rows()[0]))
                yield Cut({}, dict(self.marks), {}, 0, Failure(name, chunk.position(0), error))
                return
            yield Cut({name: {1: chunk}}, dict(self.marks), {}, len(chunk))

    def _cut_merged(self, whole: dict[str, Chunk]) -> Iterator[Cut]:
        """Cut rows of several sources at common positions."""
        if not whole:
            return
        names = list(whole)
        columns = [np.concatenate(parts) for parts in zip(*(whole[n].positions for n in names), strict=True)]
        order = sorting_order(columns)
        order = np.arange(len(columns[0]), dtype=np.int64) if order is None else order
        starts = np.cumsum([0, *(len(whole[n]) for n in names)])
        for start, stop in self._cuts(len(order)):
            taken = np.sort(order[start:stop])
            rows: dict[str, Rows] = {}
            for number, name in enumerate(names):
                low, high = np.searchsorted(taken, [starts[number], starts[number + 1]]).tolist()
                if low < high:
                    first = int(taken[low] - starts[number])
                    rows[name] = {0: whole[name].slice(first, first + high - low)}
            yield self._made(rows)

    def _made(self, rows: dict[str, Rows]) -> Cut:
        """Put the marks to the rows, each just before the row that raises it."""
        before, steps = dict(self.marks), {}
        for name, ports in rows.items():
            source = self.plan.nodes[name].operator
            chunk = ports[0]
            assert isinstance(source, Source)
            if chunk.times is None or source.time is None:
                continue
            times = chunk.times - source.slack
            index = rises(times, self.marks[name])
            if len(index):
                positions = [p[index] for p in chunk.positions]
                positions[-1] = positions[-1] - 1
                steps[name] = Steps(positions, times[index])
                self.marks[name] = int(times.max())
        return Cut(rows, before, steps, sum(len(ports[0]) for ports in rows.values()))
