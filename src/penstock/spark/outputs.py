"""Make an epoch's rows visible: rename directories, call functions, keep results. Runs on the driver, epoch by
epoch."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from penstock.errors import CheckpointError, FlowError
from penstock.graph import Node
from penstock.ingress.paths import exists
from penstock.operators.base import Sink
from penstock.pe.part_files import part_name
from penstock.plan import Plan
from penstock.rows import Row
from penstock.spark.files import list_names, make_directory, move, read_json, remove, write_json
from penstock.spark.parts import Part, frame_staging, read_payload, staging
from penstock.write import Callback, Console, Directory, FrameCallback, Memory, refuse_file


def check_directories(plan: Plan, checkpoint: str | None) -> None:
    """Refuse what can be known before Spark starts: local directories that this run could not write to."""
    identity = None if checkpoint is None else read_json(f"{checkpoint}/flow.json")
    damaged = checkpoint is not None and identity is None and bool(list_names(f"{checkpoint}/epochs"))
    for node, writer in _directories(plan):
        if "://" not in writer.path and not damaged:  # opening a damaged checkpoint says what is wrong with it
            _refuse_taken(node, writer, "" if identity is None else identity["id"])


def _directories(plan: Plan) -> list[tuple[Node, Directory]]:
    """Return the sinks that write directories; refuse two that share one."""
    found: dict[str, tuple[Node, Directory]] = {}
    for node in plan.sinks:
        writer = _writer(node)
        if not isinstance(writer, Directory):
            continue
        if writer.path in found:
            raise FlowError(
                f"the sinks {found[writer.path][0].name!r} and {node.name!r} both write to {writer.path}; give each a "
                f"directory of its own"
            )
        found[writer.path] = (node, writer)
    return list(found.values())


def _refuse_taken(node: Node, writer: Directory, checkpoint_id: str) -> list[str]:
    """Refuse a directory that holds the rows of another run; return the epochs in it."""
    refuse_file(node.name, writer)
    owner = read_json(f"{writer.path}/_penstock/owner.json")
    rows = [name for name in list_names(writer.path) if name.startswith("epoch=")]
    if owner is None and rows:
        raise CheckpointError(
            f"sink {node.name!r}: {writer.path} holds rows, but not the note of whose they are "
            f'(_penstock/owner.json): rows of a run with engine="threads", or of something else; remove the directory, '
            f"or write elsewhere"
        )
    if owner is not None and owner["checkpoint"] != checkpoint_id and rows:
        raise CheckpointError(
            f"sink {node.name!r}: {writer.path} holds the rows of another run (flow {owner['flow']!r}); remove "
            f"it, write elsewhere, or go on with that run's checkpoint {owner['path']}"
        )
    return rows


class Outputs:
    """The sinks of a run, as the driver sees them."""

    def __init__(self, plan: Plan, checkpoint: str, checkpoint_id: str, fence: int, session: Any) -> None:
        self._plan, self._checkpoint, self._id, self._session = plan, checkpoint, checkpoint_id, session
        self._fence = fence
        self.results: dict[str, list[Row]] = {node.name: [] for node in plan.sinks if isinstance(_writer(node), Memory)}

    def open(self, committed: int) -> None:
        """Claim the sinks' directories; refuse one that holds the rows of another run."""
        _remove_rubbish(f"{self._checkpoint}/frames")
        for node, writer in _directories(self._plan):
            rows = _refuse_taken(node, writer, self._id)
            make_directory(f"{writer.path}/_penstock/staging")
            write_json(
                f"{writer.path}/_penstock/owner.json",
                {"checkpoint": self._id, "flow": self._plan.name, "path": self._checkpoint, "sink": node.name},
            )
            _remove_rubbish(f"{writer.path}/_penstock/staging")
            for name in rows:
                if int(name.removeprefix("epoch=")) > committed + 1:
                    raise CheckpointError(
                        f"sink {node.name!r}: {writer.path}/{name} is newer than the checkpoint, which ends at "
                        f"epoch {committed}; the checkpoint was replaced by an older one: restore it, or "
                        f"remove both"
                    )

    def publish(self, epoch: int, parts: list[Part]) -> dict[str, int]:
        """Make the rows of an epoch visible at each sink; return how many there are."""
        counts = {}
        for node in self._plan.sinks:
            mine = sorted((part for part in parts if part.sink == node.name), key=lambda part: part.slice)
            counts[node.name] = sum(part.rows for part in mine)
            self._publish_one(node, epoch, mine, counts[node.name])
        return counts

    def _publish_one(self, node: Node, epoch: int, parts: list[Part], rows: int) -> None:
        writer = _writer(node)
        if isinstance(writer, Directory):
            source, target = staging(writer, epoch, self._fence), f"{writer.path}/epoch={epoch:09d}"
            if rows and not exists(target):
                _remove_others(source, {part_name(part.slice, writer.format) for part in parts if part.rows})
                move(source, target)
            elif exists(source):
                remove(source)  # published by an attempt that crashed before its manifest: the same rows
        elif isinstance(writer, FrameCallback):
            where = frame_staging(self._checkpoint, node.name, epoch, self._fence)
            if rows:
                writer.function(staged_frame(self._session, where, [p.slice for p in parts if p.rows]), epoch)
            if exists(where):
                remove(where)
        elif rows:
            row = self._plan.nodes[node.inputs[0].node].types[node.inputs[0].index]
            values = [value for part in parts for chunk in read_payload(part, row) for value in chunk]
            if isinstance(writer, Memory):
                self.results[node.name].extend(values)
            elif isinstance(writer, Callback):
                writer.function(values, epoch)
            elif isinstance(writer, Console):
                _print(node.name, epoch, values, writer.limit)


def _remove_others(directory: str, wanted: set[str]) -> None:
    """Remove what attempts that were killed have left behind."""
    for name in list_names(directory, hidden=True):
        if name not in wanted:
            remove(f"{directory}/{name}")


def _remove_rubbish(directory: str) -> None:
    """Remove what drivers before this one have left behind; a task of theirs may still be adding to it."""
    for name in list_names(directory):
        with suppress(OSError):
            remove(f"{directory}/{name}")


def staged_frame(session: Any, where: str, slices: list[int]) -> Any:
    """Return part files as a DataFrame whose partitions and rows are in order."""
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import from_arrow_schema

    from penstock.ingress.paths import open_path

    files = [f"{where}/part-{number:05d}.parquet" for number in slices]
    with open_path(files[0]) as file:
        schema = from_arrow_schema(pq.read_schema(file))

    def read(batches: Any) -> Any:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with open_path(files[number]) as part:
                    yield from pq.ParquetFile(part).iter_batches()

    return session.range(0, len(files), 1, len(files)).mapInArrow(read, schema)


def _writer(node: Node) -> Any:
    assert isinstance(node.operator, Sink)
    return node.operator.writer


def _print(name: str, epoch: int, rows: list[Row], limit: int) -> None:
    print(f"{name}, epoch {epoch}: {len(rows)} rows")
    for row in rows[:limit]:
        print(f"  {row}")
    if len(rows) > limit:
        print(f"  ... {len(rows) - limit} more")
