"""What was seen of rows before they are taken: how far they reach by `order_by`, known by statistics or by reading.

Rows of one part come in stretches. A row group of a Parquet file whose statistics are sound is a stretch of which only
the ends are known; its values are read where that does not decide.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.connectors.interfaces import Span, Split, read_split
from penstock.kernels.order import Bound, Key, Part, climb, order_column, order_values, within
from penstock.operators.base import Source
from penstock.plan.graph import SourceNode
from penstock.rows.chunk import Ints
from penstock.rows.records import RowType, record_type


@dataclass
class Stretch:
    """Consecutive rows of a part, placed by the highest values up to each."""

    rows: int
    low: Key
    """No row is placed before this."""
    high: Key
    """Where the last row is placed."""
    read: Callable[[], list[Ints]]
    columns: list[Ints] | None = None
    """The values of each row, once they were read."""

    @property
    def known(self) -> bool:
        """Tell whether the place of each row is known without reading."""
        return self.columns is not None or self.low == self.high

    def values(self) -> list[Ints]:
        """Return the values that each row is placed by."""
        if self.columns is None:
            same = self.low == self.high
            self.columns = [np.full(self.rows, value) for value in self.high] if same else self.read()
        return self.columns

    def key(self, row: int) -> Key:
        """Return where a row is placed."""
        if self.low == self.high or row == self.rows - 1:
            return self.high
        return tuple(int(column[row]) for column in self.values())

    def cut(self, start: int, stop: int) -> Stretch:
        return _stretch([column[start:stop] for column in self.values()])


@dataclass(frozen=True)
class Ahead:
    """Rows of a part, in their order."""

    stretches: tuple[Stretch, ...] = ()
    over: bool = False
    """Whether the part gives no more than this."""

    def __len__(self) -> int:
        return sum(stretch.rows for stretch in self.stretches)

    @property
    def shown(self) -> Key | None:
        """Return the highest values, None where there are no rows."""
        return self.stretches[-1].high if self.stretches else None

    def most(self, limit: int) -> int:
        """Return how many rows to take of at most `limit`: fewer where that spares reading."""
        border = 0
        for stretch in self.stretches:
            if border + stretch.rows > limit:
                return border if border and not stretch.known else limit
            border += stretch.rows
        return border

    def least(self, row: int) -> Key:
        """Return values that no row from this one on is placed before."""
        for stretch in self.stretches:
            if row < stretch.rows:
                return stretch.low if row == 0 else stretch.key(row)
            row -= stretch.rows
        raise IndexError(row)

    def key(self, row: int) -> Key:
        """Return where a row is placed."""
        for stretch in self.stretches:
            if row < stretch.rows:
                return stretch.key(row)
            row -= stretch.rows
        raise IndexError(row)

    def within(self, part: Part, bound: Bound, most: int) -> int:
        """Return how many of the first `most` rows are within a bound."""
        count = 0
        for stretch in self.stretches:
            if count >= most or (stretch.low, part) > bound:
                break
            if (stretch.high, part) <= bound:
                count += stretch.rows
                continue
            count += within(stretch.values(), part, bound)
            break
        return min(count, most)

    def divided(self, count: int) -> tuple[Ahead, Ahead]:
        """Return the first rows, and the rest."""
        first, rest, left = [], [], count
        for stretch in self.stretches:
            if left >= stretch.rows:
                first.append(stretch)
            elif left <= 0:
                rest.append(stretch)
            else:
                first.append(stretch.cut(0, left))
                rest.append(stretch.cut(left, stretch.rows))
            left -= stretch.rows
        return Ahead(tuple(first), self.over), Ahead(tuple(rest), self.over)

    def borders(self) -> list[int] | None:
        """Return the numbers of the rows at which stretches begin, None where all values are known anyway."""
        if all(stretch.known for stretch in self.stretches):
            return None
        return [0, *itertools.accumulate(stretch.rows for stretch in self.stretches)]


@dataclass
class OrderReader:
    """Learns how far the rows of a source reach."""

    node: SourceNode
    _spans: dict[str | None, list[Span]] = field(default_factory=dict)

    @property
    def _source(self) -> Source:
        return self.node.operator

    def stretches(self, splits: Sequence[Split], skip: int, floor: Key | None, *, spare: bool = False) -> list[Stretch]:
        """Return what rows of splits reach to, those left out that are known, after rows that reach to `floor`.

        With `spare` the last rows are left out where they are only some of a row group, and there are others: two, for
        one may have to stay.
        """
        stretches: list[Stretch] = []
        seen = skip
        for split in splits:
            rows = split.rows or 0
            if skip >= rows:
                skip -= rows
                continue
            if split.payload is not None:
                stretches.append(_stretch(self._read(split, skip, floor)))
                seen += stretches[-1].rows
            else:
                wanted = split.cut(split.start + skip, split.stop)
                for piece, span, part in self._pieces(wanted):
                    if part and spare and split is splits[-1] and seen > 1:
                        break
                    stretches.append(self._reaching(piece, span, floor))
                    floor, seen = stretches[-1].high, seen + stretches[-1].rows
            floor, skip = stretches[-1].high if stretches else floor, 0
        paths = {split.path for split in splits}
        self._spans = {path: groups for path, groups in self._spans.items() if path in paths}
        return stretches

    def _reaching(self, piece: Split, span: tuple[Key, Key] | None, floor: Key | None) -> Stretch:
        read = partial(self._read, piece, 0, floor)
        if span is None:
            return _stretch(read())
        low, high = span if floor is None else (max(floor, span[0]), max(floor, span[1]))
        return Stretch(piece.rows or 0, low, high, read)

    def _pieces(self, split: Split) -> Iterator[tuple[Split, tuple[Key, Key] | None, bool]]:
        """Cut a split in row groups of which statistics tell the ends, and what is between them.

        Each comes with the ends, and whether it stops inside of a row group that has some.
        """
        at = split.start
        for group in self._known_spans(split):
            if group.ends is None or group.stop <= at or group.start >= split.stop:
                continue
            if group.start > at:
                yield split.cut(at, group.start), None, False
            start, stop = max(at, group.start), min(group.stop, split.stop)
            least, greatest = order_values(group.ends).tolist()
            whole = (start, stop) == (group.start, group.stop)
            yield split.cut(start, stop), ((least,), (greatest,)) if whole else None, stop < group.stop
            at = stop
        if at < split.stop:
            yield split.cut(at, split.stop), None, False

    def _known_spans(self, split: Split) -> list[Span]:
        fields, declared = self._source.order_by, self.node.types[0]
        if len(fields) != 1 or declared is None:
            return []  # of several columns, nothing tells the greatest values that one row has
        if split.path not in self._spans:
            kind = declared.schema.field(fields[0]).type
            self._spans[split.path] = self._source.reader.spans(split.path, fields[0], kind, self.node.name)
        return self._spans[split.path]

    def _read(self, split: Split, skip: int, floor: Key | None) -> list[Ints]:
        """Read the values that rows are placed by, those left out that are known."""
        fields, parts = self._source.order_by, list[list[Ints]]()
        for piece in read_split(self._source.reader, self._read_type, split, self.node.name):
            columns = [order_column(piece, field)[skip:] for field in fields]
            skip = max(0, skip - piece.positions.shape[-1])
            if len(columns[0]):
                climbed, _ = climb(columns, floor)
                floor = tuple(int(column[-1]) for column in climbed)
                parts.append(climbed)
        return [np.concatenate(columns) for columns in zip(*parts, strict=True)]

    @property
    def _read_type(self) -> RowType | None:
        """Return the type of just the order_by fields where a source can be read by columns, else that of its rows."""
        declared = self.node.types[0]
        if declared is None or not self._source.reader.by_columns or self._source.on_error != "fail":
            return declared  # what cannot be read is found by reading all of it
        only = record_type(pa.schema([declared.schema.field(name) for name in self._source.order_by]))
        return replace(only, defaults=declared.defaults, may_lack=declared.may_lack)


def _stretch(columns: list[Ints]) -> Stretch:
    low, high = (tuple(int(column[row]) for column in columns) for row in (0, -1))
    return Stretch(len(columns[0]), low, high, lambda: columns, columns)
