"""Where a row of a streaming DataFrame stands in what Spark read: found at the stream, kept through what is done to it.

A file's rows have its name and their own number, a message its topic, partition and offset, a rate stream's row its
value. These columns are added to the analyzed plan right above the stream and to every projection above that, so that
`select(from_json(value))` does not lose them. Names are of any length and travel as hashes; the driver knows the names
of each batch and puts them in order (`batches.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
    """Return what is in a sequence of Scala's."""
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
    """Return the DataFrame of a plan."""
    from pyspark.sql.classic.dataframe import DataFrame

    return DataFrame(session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)
