"""Keep the batches of streaming DataFrames in the checkpoint, where their rows may have to wait for those of others.

With `order_by` a row is taken once no other part of any source can come before it. Of a batch that Spark hands over,
some rows can be taken and others not, and Spark does not hand over half a batch. So each is written to the checkpoint,
each part in its own order, and from there read like files. A batch counts once the document that lists it is there: one
that was written in part, or by a driver that is gone, is nowhere named.
"""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow.parquet as pq

from penstock.connectors.files import Files
from penstock.connectors.interfaces import Feed, Json, Slice, Split
from penstock.connectors.paths import absolute, list_files, open_path
from penstock.errors import CheckpointError
from penstock.plan.plan import Plan
from penstock.spark.frames import FrameFeeds, SparkBatch, is_streaming
from penstock.spark.places import PLACE, place_order
from penstock.store.keeper import Keeper

_PART = f"of{PLACE}"
"""The column that files are divided by; a name that begins with an underscore would hide them."""
_NUMBER = re.compile(rf"/{_PART}=(\d+)/")


def is_staged(plan: Plan) -> bool:
    """Tell whether the batches of streaming DataFrames are to be kept."""
    return plan.layout.sequence == "order" and any(map(is_streaming, plan.sources))


def staged_plan(plan: Plan, checkpoint: str) -> Plan:
    """Return the plan that reads the batches of streaming DataFrames from the checkpoint."""
    nodes = {}
    for node in filter(is_streaming, plan.sources):
        source = node.operator
        reader = Files(f"{checkpoint}/{_directory(node.name)}", "parquet", node.types[0], follow=True)
        nodes[node.name] = dataclasses.replace(node, operator=dataclasses.replace(source, reader=reader))
    return dataclasses.replace(plan, graph=plan.graph.replaced(nodes))


@dataclass
class PartFeed(Feed):
    """Rows of one part that are kept, counted from its first."""

    name: str = ""
    rows: int = 0
    """All that were kept, whether they were removed since or not."""
    taken: int = 0
    files: list[tuple[int, str, int]] = field(default_factory=list)
    """(number of the first row, path, rows) of each file."""
    _before: int = 0

    def add(self, first: int, path: str, rows: int) -> None:
        """Take in a file, which has the row of number `first` and more."""
        self.files.append((first, path, rows))
        self.rows = max(self.rows, first + rows)

    def poll(self, limit: int) -> Slice | None:
        self._before, start = self.taken, self.taken
        self.taken = min(start + limit, self.rows)
        return self.slice(start, self.taken) if self.taken > start else None

    def slice(self, start: int, stop: int) -> Slice:
        splits = []
        for number in range(max(0, bisect_right(self.files, start, key=lambda file: file[0]) - 1), len(self.files)):
            first, path, rows = self.files[number]
            if first >= stop:
                break
            splits.append(Split(0, max(start, first) - first, min(stop, first + rows) - first, path))
        if sum(split.rows or 0 for split in splits) != stop - start:
            raise CheckpointError(f"rows {start} to {stop} of {self.name} are no longer kept; restore the checkpoint")
        return Slice(tuple(splits), {"taken": stop}, {"start": start, "stop": stop}, stop - start, self.rows - stop)

    def replay(self, logged: Json, offset: Json) -> Slice:
        return self.slice(logged["start"], logged["stop"])

    def restore(self, offset: Json) -> None:
        self.taken = offset["taken"]

    def undo(self) -> None:
        self.taken = self._before

    def exhausted(self) -> bool:
        return False


class StagedFeed(Feed):
    """The batches of one streaming DataFrame that are kept."""

    parted = True

    def __init__(self, keeper: Keeper, source: str) -> None:
        self._keeper, self._source, self._directory = keeper, source, _directory(source)
        self._store = store = keeper.checkpoint.store
        self.path = absolute(f"{keeper.checkpoint.path}/{self._directory}")
        self._parts: dict[int, PartFeed] = {}
        self._nothing = {0: PartFeed(source)}
        self._batches: dict[str, Json] = {}
        """What each document lists, by its name, oldest first."""
        names = store.names(self._directory)
        for name in names:
            if name.endswith(".json") and (body := store.read(f"{self._directory}/{name}")) is not None:
                self._add(name, body)
        listed = {directory for body in self._batches.values() for directory in _directories(body)}
        for name in names:
            # What will not be listed any more, because its batch is listed already.
            batch = name.split("-")[0]
            if batch.isdigit() and name not in listed and self.has(int(batch)):
                store.delete(f"{self._directory}/{name}")

    def parts(self) -> Mapping[int, Feed]:
        return self._parts or self._nothing

    def part_name(self, part: int) -> str:
        return self.parts()[part].name  # type: ignore[attr-defined, no-any-return]

    def whole(self, slices: Mapping[int, Slice]) -> Slice:
        splits = [dataclasses.replace(split, part=part) for part, each in slices.items() for split in each.splits]
        return Slice(
            tuple(splits),
            {"taken": {part: feed.taken for part, feed in self._parts.items()}},
            {"parts": {part: each.logged for part, each in slices.items()}},
            sum(each.rows or 0 for each in slices.values()),
            sum(feed.rows - feed.taken for feed in self._parts.values()),
        )

    def poll(self, limit: int) -> Slice | None:
        raise TypeError("rows of several parts are taken part by part")

    def replay(self, logged: Json, offset: Json) -> Slice:
        parts = {int(part): self._parts[int(part)].replay(each, {}) for part, each in logged["parts"].items()}
        return dataclasses.replace(self.whole(parts), offset=offset, backlog=None)

    def restore(self, offset: Json) -> None:
        if not isinstance(offset["taken"], dict):
            raise CheckpointError(
                f"source {self._source!r}: its batches were kept by an earlier release in another way; finish with "
                f"that release, or start with a new checkpoint"
            )
        for part, taken in offset["taken"].items():
            self._parts[int(part)].taken = taken

    def undo(self) -> None:
        raise TypeError("rows of several parts are taken back part by part")

    def exhausted(self) -> bool:
        return False

    # Batches ----------------------------------------------------------------------------------------------------

    def has(self, batch: int) -> bool:
        """Tell whether a batch is kept, or was."""
        return bool(self._batches) and f"{batch:012d}.json" <= max(self._batches)

    def keep(self, batch: int, parts: Mapping[int, str], files: list[tuple[int, str, int]]) -> None:
        """Have a batch count: the parts that are known by now, in their order, and files of (part, name, rows)."""
        known = {part: feed.name for part, feed in self._parts.items()} | dict(parts)
        body = {
            # Where each part stood, so that the documents before are not needed.
            "parts": [
                [part, name, self._parts[part].rows if part in self._parts else 0] for part, name in known.items()
            ],
            "files": [list(file) for file in files],
        }
        name = f"{batch:012d}.json"
        if not self._store.write_new(f"{self._directory}/{name}", body):
            body = self._store.read(f"{self._directory}/{name}") or body  # of a driver that is gone by now
        # Long after, what was listed by then may be removed, and its name free again: its rows were all taken.
        self._keeper.lease.check()
        self._add(name, body)

    def _add(self, name: str, body: Json) -> None:
        self._batches[name] = body
        at = {part: first for part, _, first in body["parts"]}
        for part, label, first in body["parts"]:
            self._parts.setdefault(part, PartFeed(label, first, first))
        for part, path, rows in body["files"]:
            self._parts[part].add(at[part], f"{self.path}/{path}", rows)
            at[part] += rows
        self._parts = dict(sorted(self._parts.items(), key=lambda each: _in_order(each[1].name)))

    def done(self) -> set[str]:
        """Return the documents, but for the newest, all of whose rows were taken."""
        found = set()
        for name, body in list(self._batches.items())[:-1]:
            ends = {part: rows for part, _, rows in body["parts"]}
            for part, _, rows in body["files"]:
                ends[part] += rows
            if all(self._parts[part].taken >= end for part, end in ends.items()):
                found.add(name)
        return found

    def forget(self, name: str) -> None:
        for directory in _directories(self._batches.pop(name)):
            self._store.delete(f"{self._directory}/{directory}")
            for feed in self._parts.values():
                feed.files = [file for file in feed.files if f"/{directory}/" not in file[1]]
        self._store.delete(f"{self._directory}/{name}")


class Staging:
    """Writes what Spark hands over."""

    def __init__(self, plan: Plan, keeper: Keeper, frames: FrameFeeds) -> None:
        """Keep the streaming DataFrames of a plan that still has them."""
        self._plan, self._fence, self._frames = plan, keeper.fence, frames
        self.feeds = {node.name: StagedFeed(keeper, node.name) for node in filter(is_streaming, plan.sources)}
        self._done: dict[str, set[str]] = {}
        """Batches of which all rows were taken when it was last asked."""

    def take(self, wait: float) -> None:
        """Write the batches that Spark hands over, if there are some, and let Spark go on."""
        handed = list(self._frames.poll(wait, {}).values())
        kept = False
        try:
            for each in handed:
                if not self.feeds[each.source].has(each.batch):  # Spark was not told before a crash
                    self._write(each)
            kept = True
        finally:
            for each in handed:
                self._frames.finish(each, keep=kept)

    def clean(self) -> None:
        """Remove batches of which all rows were taken long ago: an epoch that is run again may need newer ones."""
        for source, feed in self.feeds.items():
            done = feed.done()
            for name in sorted(done & self._done.get(source, set())):
                feed.forget(name)
            self._done[source] = done

    def _write(self, handed: SparkBatch) -> None:
        from pyspark.sql import functions as F

        source = self._plan.source(handed.source).operator
        # The name is this driver's own: another one may still write the same batch.
        name = f"{handed.batch:012d}-{self._fence}"
        path = f"{self.feeds[handed.source].path}/{name}"
        frame, places = place_order(handed.frame, handed.places)
        parts = handed.places.parts()
        if handed.places.kind == "content":  # nothing but order_by tells an order
            places = [*[F.col("row")[field].asc_nulls_first() for field in source.order_by], *places]
        if parts:
            # By the very column that the writer wants rows sorted by: then it does not sort them again.
            frame, places = frame.withColumn(_PART, places[0] + places[1]), [F.col(_PART), *places[2:]]
            frame.orderBy(*places).select("row.*", _PART).write.partitionBy(_PART).mode("overwrite").parquet(path)
        else:
            frame.orderBy(*places).select("row.*").write.mode("overwrite").parquet(path)
        numbers = list(parts) or [0]
        files = []
        for found in sorted(file.path for file in list_files(path)):
            part = _NUMBER.search(found)
            with open_path(found) as file:
                rows = pq.ParquetFile(file).metadata.num_rows
            if rows:
                files.append((numbers[int(part[1]) if part else 0], name + found.rsplit(f"/{name}", 1)[1], rows))
        self.feeds[handed.source].keep(handed.batch, parts or {0: handed.source}, files)


def _in_order(name: str) -> tuple[str, int]:
    """Return what orders partitions: the name of the topic, then the number."""
    topic, dash, number = name.rpartition("-")
    return (topic, int(number)) if dash and number.isdigit() else (name, 0)


def _directories(body: Json) -> set[str]:
    return {path.split("/")[0] for _, path, _ in body["files"]}


def _directory(source: str) -> str:
    return f"sources/{source}"
