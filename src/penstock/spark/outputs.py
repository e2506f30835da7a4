"""The sinks of a run, as the driver sees them: refuse directories that it must not write to, call functions, keep
results, and say which part files a commit is to make visible."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa

from penstock.connectors.directory import Directory, refuse_file, refuse_strangers, sink_directories
from penstock.connectors.interfaces import Delivery
from penstock.connectors.part_files import join_files
from penstock.errors import CheckpointError
from penstock.plan.graph import SinkNode
from penstock.plan.plan import Plan
from penstock.rows.records import Row
from penstock.spark.parts import Part, frame_staging, read_payload
from penstock.store.checkpoint import Checkpoint, Position
from penstock.store.lease import Lease
from penstock.store.objects import DamagedError, Json, Store, open_store
from penstock.store.publication import OWNER, Publication, SinkFiles, last_visible, own, owner_of
from penstock.store.rolling import Target, retention_of


def check_directories(plan: Plan, checkpoint: str | None) -> None:
    """Refuse what can be known before Spark starts: local directories that this run could not write to."""
    checkpoint_id = ""
    if checkpoint is not None:
        try:
            checkpoint_id = (Checkpoint(checkpoint).description() or {"id": ""})["id"]
        except DamagedError:
            return  # opening the checkpoint says what is wrong with it
        if not checkpoint_id and Checkpoint(checkpoint).entries():
            return
    for node, writer in sink_directories(plan):
        if "://" not in writer.path:
            _refuse_taken(node, writer, _store(node, writer), checkpoint_id)


def _store(node: SinkNode, writer: Directory) -> Store:
    return open_store(writer.path, owner=f"sink {node.name!r}")


def _refuse_taken(node: SinkNode, writer: Directory, store: Store, checkpoint_id: str) -> int:
    """Refuse a directory with the rows of another run, or files of another program; return the last epoch in it."""
    refuse_file(node.name, writer)
    owner, rows = owner_of(store), last_visible(store)
    if owner is None and rows:
        raise CheckpointError(
            f"sink {node.name!r}: {writer.path} holds rows, but not the note of whose they are "
            f"(_penstock/owner.json): rows of a run with on=ps.Threads(), or of something else; remove the directory, "
            f"or write elsewhere"
        )
    if owner is not None and owner["checkpoint"] != checkpoint_id and rows:
        raise CheckpointError(
            f"sink {node.name!r}: {writer.path} holds the rows of another run (flow {owner['flow']!r}); remove "
            f"it, write elsewhere, or go on with that run's checkpoint {owner['path']}"
        )
    holder = None if owner is None or owner["checkpoint"] == checkpoint_id else _driver_of(owner)
    if owner is not None and holder is not None:
        raise CheckpointError(
            f"sink {node.name!r}: {writer.path} is the directory of a run that is at work (flow {owner['flow']!r}, "
            f"process {holder['pid']} on {holder['host']}, checkpoint {owner['path']}), whose rows are about to "
            f"appear there; stop it and remove the directory, or write elsewhere"
        )
    refuse_strangers(node.name, writer, store.names(""))
    return rows


def _driver_of(owner: Json) -> dict[str, Any] | None:
    """Return what the driver says of itself that is at work for a run that has a directory; None where none is."""
    checkpoint = Checkpoint(owner["path"])
    description = checkpoint.description()
    return Lease(checkpoint.store).holder() if (description or {}).get("id") == owner["checkpoint"] else None


def memory_sinks(plan: Plan) -> list[SinkNode]:
    """Return the sinks whose rows are kept in memory."""
    return [node for node in plan.sinks if node.operator.writer.keeps]


class Outputs:
    """The sinks of a run."""

    def __init__(self, plan: Plan, checkpoint: Checkpoint, session: Any) -> None:
        self._plan, self._checkpoint, self._session = plan, checkpoint, session
        self._directories = sink_directories(plan)
        self.stores = {writer.path: _store(node, writer) for node, writer in self._directories}
        self.results: dict[str, list[Row]] = {node.name: [] for node in memory_sinks(plan)}

    def accept(self, position: Position, checkpoint_id: str) -> None:
        """Refuse directories that this run must not write to; nothing is changed."""
        for node, writer in self._directories:
            self._refuse_gone(node, writer, position)
            rows = _refuse_taken(node, writer, self.stores[writer.path], checkpoint_id)
            self._refuse_newer(node, writer, rows, position.epoch)
            self._refuse_other_rows(node, writer, position)

    def claim(self, checkpoint_id: str, committed: int) -> None:
        """Say in the sinks' directories whose rows they have; refuse those that got rows of another run meanwhile."""
        for node, writer in self._directories:
            note = {
                "checkpoint": checkpoint_id,
                "flow": self._plan.name,
                "path": self._checkpoint.path,
                "sink": node.name,
                "format": writer.format,
                "header": writer.header,
            }
            store = self.stores[writer.path]
            _refuse_taken(node, writer, store, checkpoint_id)  # once more: another may have begun since
            while not own(store, note):
                _refuse_taken(node, writer, store, checkpoint_id)
            self._refuse_newer(node, writer, last_visible(store), committed)

    def check_claims(self, checkpoint_id: str, parts: list[Part]) -> None:
        """Refuse to add rows to a directory that another run has claimed since: it had no rows yet, so both could."""
        for node, writer in self._directories:
            if not any(part.rows for part in _of(node, parts)):
                continue
            owner = owner_of(self.stores[writer.path])
            if owner is None or owner["checkpoint"] != checkpoint_id:
                whose = "is gone" if owner is None else f"is of a run with the checkpoint {owner['path']} now"
                raise CheckpointError(
                    f"sink {node.name!r}: the note of whose rows {writer.path} holds ({OWNER}) {whose}, so that this "
                    f"run stops without writing anything more; give each run a directory of its own, and start this "
                    f"one again"
                )

    def _refuse_newer(self, node: SinkNode, writer: Directory, last: int, committed: int) -> None:
        """Refuse rows that the checkpoint knows nothing of, but for those that it is about to write once more."""
        if last > committed + 1 or (last > committed and self._checkpoint.intent(last) is None):
            raise CheckpointError(
                f"sink {node.name!r}: {writer.path} has rows up to epoch {last}, newer than the checkpoint, which ends "
                f"at epoch {committed}; the checkpoint was replaced by an older one: restore it, or remove both"
            )

    def _refuse_gone(self, node: SinkNode, writer: Directory, position: Position) -> None:
        """Refuse to begin anew where a directory was moved away, or its disk is not mounted."""
        if self.stores[writer.path].exists(""):
            return
        # A driver that takes over names its sinks before it makes their directories; one that commits has made them.
        committed = self._checkpoint.entry(position.base[0]) or {}
        was = ((committed.get("flow") or {}).get("sinks") or {}).get(node.name)
        if was is not None and was["path"] == writer.path:
            raise CheckpointError(
                f"sink {node.name!r}: {writer.path}, to which this run has written up to epoch {position.epoch}, is "
                f"gone; put it back, or, where its rows were read and removed, make an empty directory there (on an "
                f"object store, any object in it), or give the sink another"
            )

    def _refuse_other_rows(self, node: SinkNode, writer: Directory, position: Position) -> None:
        """Refuse to add rows to a directory whose rows have other fields, or are in another format."""
        was = _known_sink(node, position)
        if was is None:
            return
        if was["path"] != writer.path:
            position.sink_schemas.pop(node.name, None)  # a new directory: its first rows tell their fields
            return
        fix = "give the sink another directory, change it back, or start with a new checkpoint and a new directory"
        if tuple(was.get("partition_by", ())) != writer.partition_by:
            raise CheckpointError(
                f"sink {node.name!r}: the rows in {writer.path} are in partitions by "
                f"{_listed(was.get('partition_by'))}, and the flow's now by {_listed(writer.partition_by)}; {fix}"
            )
        if was["format"] != writer.format:
            raise CheckpointError(
                f"sink {node.name!r}: the rows in {writer.path} are in the format {was['format']}, and the flow now "
                f"writes {writer.format}; {fix}"
            )
        known = was["schema"] or position.sink_schemas.get(node.name)
        declared = self._plan.row_type(node.inputs[0])
        if known is None:
            return
        if declared is None:
            position.sink_schemas[node.name] = known
            return
        had = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(known)))
        if not had.equals(declared.schema, check_metadata=False):
            raise CheckpointError(
                f"sink {node.name!r}: the rows in {writer.path} have the fields {_shown(had)}, and those of the flow "
                f"now have {_shown(declared.schema)}; {fix}"
            )

    def count(self, parts: list[Part]) -> dict[str, int]:
        return {node.name: sum(part.rows for part in parts if part.sink == node.name) for node in self._plan.sinks}

    def publication(self) -> Publication:
        return Publication(
            self.stores,
            {node.name: Target.of(writer) for node, writer in self._directories},
            join_files,
            [found for node, writer in self._directories if (found := retention_of(node.name, writer)) is not None],
        )

    def files(self, parts: list[Part]) -> dict[str, SinkFiles]:
        """Return what tasks have written for each sink that is a directory, in order."""
        return {
            node.name: (
                {"path": writer.path, "format": writer.format, "header": writer.header},
                [file for part in _of(node, parts) for file in part.files],
            )
            for node, writer in self._directories
        }

    def deliver(self, epoch: int, fence: int, parts: list[Part]) -> None:
        """Call the sinks that are called at least once: before the commit, so that none of their rows is lost."""
        for node in self._plan.sinks:
            writer, mine = node.operator.writer, [part for part in _of(node, parts) if part.rows]
            where = frame_staging(node.name, epoch, fence)
            if mine:
                path, slices = f"{self._checkpoint.path}/{where}", [part.slice for part in mine]
                frame = partial(staged_frame, self._session, path, slices)
                writer.deliver(Delivery(epoch, partial(self._values, node, mine), frame, f"{node.name}, epoch {epoch}"))
            if writer.files is not None and writer.directory is None:
                self._checkpoint.store.delete(where)

    def keep(self, parts: list[Part]) -> None:
        """Keep the rows of the sinks in memory, once their epoch is committed."""
        for node in memory_sinks(self._plan):
            self.results[node.name].extend(self._values(node, _of(node, parts)))

    def _values(self, node: SinkNode, parts: list[Part]) -> list[Row]:
        row = self._plan.row_type(node.inputs[0])
        return [value for part in parts for chunk in read_payload(part, row) for value in chunk]


def _known_sink(node: SinkNode, position: Position) -> Json | None:
    """Return what the checkpoint says of a sink's directory; None where it was written without one so far."""
    found: Json | None = ((position.flow or {}).get("sinks") or {}).get(node.name)
    return found


def _of(node: SinkNode, parts: list[Part]) -> list[Part]:
    return sorted((part for part in parts if part.sink == node.name), key=lambda part: part.slice)


def _listed(names: Any) -> str:
    return ", ".join(names or ()) or "nothing"


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema) or "none"


def staged_frame(session: Any, where: str, slices: list[int]) -> Any:
    """Return part files as a DataFrame whose partitions and rows are in order."""
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import from_arrow_schema

    from penstock.connectors.paths import open_path

    files = [f"{where}/part-{number:05d}.parquet" for number in slices]
    with open_path(files[0]) as file:
        schema = from_arrow_schema(pq.read_schema(file))

    def read(batches: Any) -> Any:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with open_path(files[number]) as part:
                    yield from pq.ParquetFile(part).iter_batches()

    return session.range(0, len(files), 1, len(files)).mapInArrow(read, schema)
