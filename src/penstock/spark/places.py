"""Where a row of a streaming DataFrame stands in what Spark read: found at the stream, kept through what is done to it.

A file's rows have its name and their own number, a message its topic, partition and offset, a rate stream's row its
value. These columns are added to the analyzed plan right above the stream and to every projection above that, so that
`select(from_json(value))` does not lose them. Names are of any length and travel as hashes; the driver knows the names
of each batch, finds and orders them without reading it, and logs them, so that a replay has the same order. Tasks put
the numbers of the names in place of the hashes.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.interfaces import ROW_BITS, Piece, cast_table
from penstock.errors import SourceError
from penstock.plan.graph import SourceNode
from penstock.plan.plan import Plan

_1, _2, _3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_4, _5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MASK = (1 << 64) - 1
_SEED = 42
"""Spark's."""


def xxhash64(text: str) -> int:
    """Return the 64 bits that Spark's function of this name gives for a string, as a signed number."""
    data = text.encode()
    size, at = len(data), 0
    if size >= 32:
        lanes = [_SEED + _1 + _2, _SEED + _2, _SEED, _SEED - _1]
        while at + 32 <= size:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane] & _MASK, int.from_bytes(data[at : at + 8], "little"))
                at += 8
        mixed = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            mixed = ((mixed ^ _round(0, lane)) * _1 + _4) & _MASK
    else:
        mixed = (_SEED + _5) & _MASK
    mixed = (mixed + size) & _MASK
    while at + 8 <= size:
        mixed ^= _round(0, int.from_bytes(data[at : at + 8], "little"))
        mixed = (_rotated(mixed, 27) * _1 + _4) & _MASK
        at += 8
    if at + 4 <= size:
        mixed ^= (int.from_bytes(data[at : at + 4], "little") * _1) & _MASK
        mixed = (_rotated(mixed, 23) * _2 + _3) & _MASK
        at += 4
    for byte in data[at:]:
        mixed = (_rotated(mixed ^ (byte * _5 & _MASK), 11) * _1) & _MASK
    mixed = ((mixed ^ (mixed >> 33)) * _2) & _MASK
    mixed = ((mixed ^ (mixed >> 29)) * _3) & _MASK
    mixed ^= mixed >> 32
    return mixed - (1 << 64) if mixed >> 63 else mixed


def _round(lane: int, word: int) -> int:
    return (_rotated((lane + word * _2) & _MASK, 31) * _1) & _MASK


def _rotated(bits: int, by: int) -> int:
    return ((bits << by) | (bits >> (64 - by))) & _MASK


Kind = Literal["files", "kafka", "rate", "content"]
PLACE = "__penstock_place"
"""How the columns of places are called; a number follows."""

_PASSING = {"Project", "Filter", "SubqueryAlias", "EventTimeWatermark", "ResolvedHint", "View", "Sample"}
"""Nodes of a plan that give at most one row for a row."""
_EXCHANGE = re.compile(r"^[ :+|*()\d-]*Exchange\b", re.MULTILINE)
_SHUFFLES = re.compile(r"\b(Aggregate|Join|Repartition\w*|RebalancePartitions|Deduplicate\w*|Sort|Window|\w*Limit)\b")
_MESSAGE = {"topic": "string", "partition": "int", "offset": "bigint"}


@dataclass(frozen=True)
class Places:
    """A streaming DataFrame whose rows have their places with them."""

    kind: Kind
    frame: Any
    """The user's columns, then those of the place: first the hash of a name, where the kind has names."""
    columns: int
    """How many columns tell the place."""
    counted: bool
    """Whether several rows can have one place, so that they must be counted too."""
    problem: str | None = None
    """Why the rows have no order of their own, where that is so."""

    @property
    def width(self) -> int:
        """Return how many numbers tell a row's place in the end."""
        # Topic and partition become one number, that of the part; so do a file and a row that has a number in it.
        joined = self.kind == "kafka" or (self.kind == "files" and not self.counted)
        return self.columns - joined + self.counted


def find_places(frame: Any) -> Places:
    """Find out how the rows of a streaming DataFrame are ordered, before anything runs."""
    plan = frame._jdf.queryExecution().analyzed()
    if (shuffle := _shuffle(frame.sparkSession, plan)) is not None:
        return _by_content(
            frame, f"the streaming DataFrame contains a shuffle ({shuffle}), after which its rows have no order"
        )
    streams = [leaf for leaf in scala_list(plan.collectLeaves()) if leaf.isStreaming()]
    if len(streams) != 1:
        return _by_content(
            frame,
            f"the streaming DataFrame is made of {len(streams)} streams, and Spark does not say how their rows follow "
            f"each other; make each of them a source of its own",
        )
    name = streams[0].sourceName()
    kind, columns, numbered = _stream_columns(streams[0], name)
    if kind == "content":
        return _by_content(frame, f"Spark's stream {name!r} does not say where its rows stand")
    try:
        carried = _Carrier(frame.sparkSession, kind, columns).carry(plan)
    except _LostError as lost:
        return _by_content(frame, str(lost))
    from pyspark.sql import functions as F

    ties = [_content(frame)] if carried.joined else []
    placed = _of_rows(frame.sparkSession, carried.plan)
    whole = placed.select(
        *[F.col(f"`{column}`") for column in frame.columns],
        *[F.col(f"{PLACE}{number}") for number in range(len(columns))],
        *[tie.alias(f"{PLACE}{len(columns)}") for tie in ties],
    )
    return Places(kind, whole, len(columns) + len(ties), carried.several or not numbered)


def scala_list(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _shuffle(session: Any, plan: Any) -> str | None:
    """Name the shuffle that Spark would do for a plan; to broadcast a static DataFrame is none."""
    execution = _of_rows(session, plan)._jdf.queryExecution()
    if not _EXCHANGE.search(session._jvm.PythonSQLUtils.explainString(execution, "simple")):
        return None
    found = _SHUFFLES.search(plan.toString())
    return found[1] if found else "Exchange"


def _stream_columns(stream: Any, name: str) -> tuple[Kind, list[Any], bool]:
    """Return what tells the place of a stream's rows, on the stream itself, and whether each row has another place."""
    from pyspark.sql import functions as F

    if name.startswith("FileSource["):
        metadata = scala_list(stream.metadataOutput())
        fields = metadata[0].dataType().simpleString() if metadata else ""
        path = F.xxhash64("_metadata.file_path")
        if "row_index:" in fields:
            return "files", [path, F.col("_metadata.row_index")], True
        if "file_block_start:" in fields:
            return "files", [path, F.col("_metadata.file_block_start")], False
    if name == "kafka":
        return "kafka", [F.xxhash64("topic"), F.col("partition"), F.col("offset")], True
    if name in ("rate", "rate-micro-batch"):
        return "rate", [F.col("value")], True
    return "content", [], False


def _by_content(frame: Any, problem: str) -> Places:
    """Order rows by what they hold, where `order_by` leaves it open: the same after a restart, on any cores."""
    from pyspark.sql import functions as F

    columns = [F.col(f"`{column}`") for column in frame.columns]
    return Places("content", frame.select(*columns, _content(frame).alias(f"{PLACE}0")), 1, True, problem)


def _content(frame: Any) -> Any:
    """Return a hash of a whole row; what cannot be hashed (maps, variants) goes by its JSON."""
    from pyspark.sql import functions as F

    def hashed(name: str, kind: str) -> Any:
        return F.to_json(F.struct(f"`{name}`")) if re.search("map<|variant", kind) else F.col(f"`{name}`")

    return F.xxhash64(*[hashed(name, kind) for name, kind in frame.dtypes])


class _LostError(Exception):
    """A node of a plan makes rows that do not say which rows they came from."""


class _Carrier:
    """Add the columns of places to a plan, from the stream at its bottom to its top."""

    def __init__(self, session: Any, kind: Kind, columns: Sequence[Any]) -> None:
        self._session, self._kind, self._columns = session, kind, columns
        self.plan: Any = None
        self.several = False
        """Whether several rows of the result can come from one of the stream."""
        self.joined = False
        """Whether such rows come in an order that Spark does not repeat."""

    def carry(self, plan: Any) -> _Carrier:
        self.plan, _ = self._carried(plan)
        return self

    def _carried(self, node: Any) -> tuple[Any, list[Any]]:
        """Return a node with the columns, and these."""
        below = scala_list(node.children())
        if not below:
            return self._placed(node)
        kind = node.nodeName()
        made, columns = list(below), list[Any]()
        for number, child in enumerate(below):
            if child.isStreaming():
                made[number], columns = self._carried(child)
        if kind == "Project":
            chosen = node.projectList()
            for column in columns:
                chosen = chosen.appended(column)
            return node.copy(chosen, made[0]), columns
        rebuilt = node.withNewChildren(self._session._jvm.PythonUtils.toSeq(made))
        known = {column.exprId().id() for column in scala_list(rebuilt.output())}
        if kind not in _PASSING:
            self.several = True
            self.joined = self.joined or len(below) > 1
        if any(column.exprId().id() not in known for column in columns):
            return self._found_again(rebuilt, kind)
        return rebuilt, columns

    def _placed(self, node: Any) -> tuple[Any, list[Any]]:
        """Return a projection of a node's own columns and those of the place."""
        named = [column.cast("long").alias(f"{PLACE}{number}") for number, column in enumerate(self._columns)]
        project = _of_rows(self._session, node).select(*named)._jdf.queryExecution().analyzed()
        chosen = node.output()
        for column in scala_list(project.projectList()):
            chosen = chosen.appended(column)
        placed = project.copy(chosen, project.child())
        return placed, scala_list(placed.output())[-len(named) :]

    def _found_again(self, node: Any, kind: str) -> tuple[Any, list[Any]]:
        """Go on above a function of the user's whose rows have a message's topic, partition and offset again."""
        types = {column.name(): column.dataType().simpleString() for column in scala_list(node.output())}
        if self._kind == "kafka" and _MESSAGE.items() <= types.items():
            return self._placed(node)
        keep, instead = "keep topic, partition and offset among its columns", "do its work in the flow"
        fix = keep if self._kind == "kafka" else instead
        raise _LostError(f"{kind} of the streaming DataFrame makes rows that do not say where they came from; {fix}")


def _of_rows(session: Any, plan: Any) -> Any:
    from pyspark.sql.classic.dataframe import DataFrame

    return DataFrame(session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


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
