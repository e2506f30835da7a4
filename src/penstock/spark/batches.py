"""One batch of a streaming DataFrame: the names in it, in order, and its rows with their positions.

Rows name their file or topic by a hash. The driver finds the names of a batch without reading it, orders them and logs
them, so that a replay has the same order; tasks put the numbers of the names in place of the hashes.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.splits import ROW_BITS, Piece, cast_table
from penstock.errors import SourceError
from penstock.plan.graph import SourceNode
from penstock.plan.plan import Plan
from penstock.spark.places import PLACE, Kind, Places, scala_list, xxhash64

Ints = npt.NDArray[np.int64]
_CHANGED = re.compile(r".*modification_time=(\d+)", re.DOTALL)
_NO_HOST = re.compile(r"^([a-z][a-z0-9+.-]*):///")


@dataclass(frozen=True)
class BatchPlaces:
    """What tasks must know of a batch to give its rows their positions."""

    kind: Kind
    counted: bool
    names: tuple[str, ...] = ()
    """The files or topics, in their order."""
    partitions: tuple[int, ...] = ()
    """For each topic, how many partitions are known."""

    def to_json(self) -> dict[str, Any]:
        """Return what the log of an epoch keeps, so that a replay has the same order."""
        return {"names": list(self.names), "partitions": list(self.partitions)}

    def restored(self, logged: dict[str, Any]) -> BatchPlaces:
        """Return the same with what the log of an epoch has kept."""
        return replace(self, names=tuple(logged["names"]), partitions=tuple(logged["partitions"]))

    def parts(self) -> dict[int, str]:
        """Return the parts of the source that are known, by number: partitions that write at their own pace."""
        return {
            _part(xxhash64(topic), number): f"{topic}-{number}"
            for topic, count in zip(self.names, self.partitions, strict=False)
            for number in range(count)
        }

    def numbers(self) -> dict[int, int]:
        """Return the number of each name by its hash; a topic's is that of its first partition among all."""
        if self.kind == "kafka":
            starts = [0, *itertools.accumulate(self.partitions)]
            return {xxhash64(name): start for name, start in zip(self.names, starts, strict=False)}
        found = {xxhash64(name): number for number, name in enumerate(self.names)}
        # Spark writes file:/a here and file:///a there.
        return found | {xxhash64(_NO_HOST.sub(r"\1:/", name)): number for number, name in enumerate(self.names)}


def batch_places(places: Places, jvm: Any, query: Any, batch: int) -> BatchPlaces:
    """Find the names of the batch that a streaming query has under way, in their order."""
    names: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    stream = query._jsq.streamingQuery()
    if places.kind == "files":
        names = _files(jvm, stream.lastExecution().optimizedPlan())
    elif places.kind == "kafka":
        logged = stream.offsetLog().get(batch).get().offsets().apply(0).get().json()
        topics = {topic: [int(number) for number in offsets] for topic, offsets in json.loads(logged).items()}
        names = tuple(sorted(topics))
        partitions = tuple(max(topics[topic], default=-1) + 1 for topic in names)
    return BatchPlaces(places.kind, places.counted, names, partitions)


def place_order(frame: Any, places: BatchPlaces) -> tuple[Any, list[Any]]:
    """Return a batch, and the columns that order its rows by their places in Spark itself."""
    from pyspark.sql import functions as F

    columns = [F.col(name) for name in frame.columns if name.startswith(PLACE)]
    if places.names:
        numbers = F.create_map(*[F.lit(value) for pair in places.numbers().items() for value in pair])
        columns[0] = F.element_at(numbers, columns[0])
    count = f"{PLACE}_count"
    return frame.withColumn(count, F.monotonically_increasing_id()), [*columns, F.col(count)]


def _files(jvm: Any, plan: Any) -> tuple[str, ...]:
    """Return the files that a batch reads, by modification time and then name."""
    found: list[tuple[int, str]] = []
    for leaf in scala_list(plan.collectLeaves()):
        if leaf.nodeName().startswith("LogicalRelation"):
            location = leaf.relation().location()
            # One call into the JVM for all of them: a batch can have thousands.
            changed = [int(_changed(status)) for status in location.allFiles().mkString("\0").split("\0") if status]
            names = jvm.org.apache.hadoop.util.StringUtils.join("\n", location.inputFiles()).split("\n")
            found += zip(changed, names, strict=True)
    return tuple(name for _, name in sorted(found, key=lambda file: (file[0], unquote(file[1]))))


def _changed(status: str) -> str:
    match = _CHANGED.match(status)
    assert match is not None, f"Hadoop describes a file without its modification time: {status}"
    return match[1]


def _part(topic: int, partition: int) -> int:
    """Return the number of a partition in every batch: the hash of its topic plus its own number, in 64 bits."""
    return (topic + partition + (1 << 63)) % (1 << 64) - (1 << 63)


@dataclass
class FrameRows:
    """Turn batches of a streaming DataFrame, as a task of level 0 gets them, into pieces with positions."""

    plan: Plan
    batches: dict[str, BatchPlaces]
    task: int
    counts: dict[str, int] = field(default_factory=dict)
    """The rows of each source so far."""
    numbers: dict[str, dict[int, int]] = field(default_factory=dict)

    def pieces(self, batch: pa.RecordBatch) -> Iterator[tuple[SourceNode, Piece]]:
        """Give the rows of one batch; all of them are of one source."""
        if not batch.num_rows:
            return
        node = self.plan.sources[batch.column("source")[0].as_py()]
        rows = pa.RecordBatch.from_struct_array(batch.column("row"))
        columns = [batch.column(name).to_numpy() for name in batch.schema.names if name.startswith(PLACE)]
        assert node.types[0] is not None
        own = np.stack(self._positions(node.name, columns))
        parts = columns[0] + columns[1] if self.batches[node.name].kind == "kafka" else None
        yield node, Piece(own, cast_table(node.types[0], rows, node.name, None), None, in_order=False, parts=parts)

    def _positions(self, source: str, columns: list[Ints]) -> list[Ints]:
        known = self.batches[source]
        if known.kind in ("files", "kafka"):
            number = self._numbered(source, columns[0])
            if known.kind == "kafka":
                columns = [number + columns[1], *columns[2:]]
            elif known.counted:
                columns = [number, *columns[1:]]
            else:
                columns = [(number << ROW_BITS) + columns[1]]
        if known.counted:
            first = self.counts.get(source, 0)
            self.counts[source] = first + len(columns[0])
            start = (self.task << ROW_BITS) + first
            columns = [*columns, np.arange(start, start + len(columns[0]), dtype=np.int64)]
        return columns

    def _numbered(self, source: str, hashes: Ints) -> Ints:
        """Return the number of each row's name."""
        if source not in self.numbers:
            self.numbers[source] = self.batches[source].numbers()
        # Rows of one name come together, mostly.
        starts = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1])))
        try:
            numbers = [self.numbers[source][found] for found in hashes[starts].tolist()]
        except KeyError:
            raise SourceError(
                f"source {source!r}: a row comes from a file or topic that Spark did not name for this batch: "
                f"{', '.join(self.batches[source].names[:5]) or 'it named none'}"
            ) from None
        return np.repeat(np.array(numbers, np.int64), np.diff(np.append(starts, len(hashes))))
