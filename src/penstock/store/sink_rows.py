"""Read what a sink's directory has: all that is committed and nothing else, in order, also what waits to be a file.

The log of the run says what waits and what is about to appear; the note in the directory says where the log is. Where
that cannot be reached, or the run had none (threads), what is visible is all that is known, and says so.

While a run is at work files appear, and what waited goes. Rows keep their order, so a reader that finds a file gone
looks again and passes over the rows that it has given: those of each partition after its last visible epoch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.directory import NO_VALUE
from penstock.connectors.files import Files
from penstock.connectors.interfaces import Split, read_split
from penstock.connectors.paths import exists, list_files, locate, open_path
from penstock.connectors.retries import retried
from penstock.connectors.text import first_schema, refuse_types
from penstock.errors import CheckpointError, FlowError, PenstockError, StorageError
from penstock.rows.records import RowType
from penstock.store.checkpoint import Checkpoint, Position
from penstock.store.objects import DamagedError, Json, Store, open_store
from penstock.store.publication import owner_of, rolls_of
from penstock.store.rolling import staged_name, visible

LOOKS = 20
"""How often a reader looks again because files came and went."""


@dataclass
class SinkUnit:
    """Files of one partition that appear at once, or wait: the rows up to an epoch."""

    epoch: int
    paths: list[str] = field(default_factory=list)
    waits: bool = False


@dataclass
class Listing:
    """What is committed, by partition ("" without any), in order."""

    units: dict[str, list[SinkUnit]]
    format: str
    header: bool
    schema: pa.Schema | None
    """Of all fields, where the log tells."""
    knows_all: bool
    """Whether the log was read: otherwise there may be committed rows that wait."""


def list_sink(path: str) -> Listing:
    """Find what a directory has; refuse one that is no sink's."""
    for _ in range(LOOKS):
        with suppress(_Changed):
            return _list(path)
    raise _restless(path)


def _restless(path: str) -> StorageError:
    return StorageError("reading", path, LOOKS, "files came and went all the time", "try again")


def _list(path: str) -> Listing:
    store = open_store(path)
    owner = owner_of(store)
    position = None if owner is None else _position(owner)
    sink = None if owner is None else owner["sink"]
    units: dict[str, dict[int, SinkUnit]] = {}
    root = locate(path)[1].rstrip("/")
    form = (owner or {}).get("format")
    shown = set()
    # After the log was read: what it says is to appear may have appeared by now, and is then found here.
    for file in retried(lambda: list_files(path), f"sink {path}: listing", path):
        name = locate(file.path)[1][len(root) + 1 :]
        says = visible(name)
        if says is not None and says.format:
            shown.add(name)
            form = form or says.format
            _unit(units, says.label, says.epoch).paths.append(file.path)
    waiting: Json | None = None
    if position is not None:
        roll = rolls_of(position.staged).get(str(sink), {"path": None})
        if roll["path"] == path:
            _add_roll(store, units, roll, shown)
        waiting = position.waiting.get(str(sink))
        if waiting is not None and waiting["path"] == path:
            first = waiting["parts"][0][0]
            if any(epoch >= first for each in units.values() for epoch in each):
                raise _Changed
            _add_waiting(path, units, waiting)
    if form is None and owner is None and not units:
        if not exists(path):
            raise FlowError(f"there is no directory {path}; a run makes it with the first rows of its sink")
        raise FlowError(f"{path} is no directory of a sink: it has neither rows of one nor the note of whose they are")
    by_label = {label: [each[epoch] for epoch in sorted(each)] for label, each in sorted(units.items())}
    for each in by_label.values():
        for unit in each:
            unit.paths.sort(key=lambda name: name.rpartition("/")[2])
    header = bool((owner or {}).get("header", True))
    return Listing(by_label, form or "parquet", header, _schema(position, sink, path), position is not None)


class _Changed(Exception):
    """Files came or went while they were listed or read."""


def _unit(units: dict[str, dict[int, SinkUnit]], label: str, epoch: int) -> SinkUnit:
    return units.setdefault(label, {}).setdefault(epoch, SinkUnit(epoch))


def _add_roll(store: Store, units: dict[str, dict[int, SinkUnit]], roll: Json, shown: set[str]) -> None:
    """Add what was committed to appear and has not yet, from where it is."""
    moved = {target: source for source, target in roll["moves"]}
    appears = {f"{roll['target']}/{name}": f"{roll['source']}/{name}" for name in roll["names"]} or moved
    for target, source in appears.items():
        if target not in shown:
            label = "" if target.startswith("epoch=") else target.rpartition("/")[0]
            before = moved.get(source)  # it gets the name of the directory that appears first
            where = source if before is None or not store.exists(before) else before
            _unit(units, label, roll["epoch"]).paths.append(store.path(where))


def _add_waiting(path: str, units: dict[str, dict[int, SinkUnit]], waiting: Json) -> None:
    for epoch, fence, parts in waiting["parts"]:
        for name, *_ in parts:
            unit = _unit(units, name.rpartition("/")[0], epoch)
            unit.waits = True
            unit.paths.append(f"{path}/{staged_name(epoch, fence)}/{name}")


def _position(owner: Json) -> Position | None:
    """Return where the run stands whose rows a directory has; None where that cannot be known."""
    try:
        checkpoint = Checkpoint(owner["path"])
        description = checkpoint.description()
        if description is None or description["id"] != owner["checkpoint"]:
            return None
        return checkpoint.latest()
    except (CheckpointError, StorageError, DamagedError):
        return None


def _schema(position: Position | None, sink: Any, path: str) -> pa.Schema | None:
    if position is None:
        return None
    described = ((position.flow or {}).get("sinks") or {}).get(sink) or {}
    known = described.get("schema") or position.sink_schemas.get(sink)
    if known is None or described.get("path") != path:
        return None
    return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(known)))


class SinkReader:
    """Gives each committed row of a directory once, in order; asked again, those that were committed since."""

    def __init__(self, path: str, *, header: bool | None = None, schema: pa.Schema | None = None) -> None:
        self._path, self._header, self._schema = path, header, schema
        self._at: dict[str, tuple[int, int]] = {}
        """For each partition the last visible epoch that was given whole, and the rows given after it."""
        self.visible = self.waiting = 0
        """Rows that were given from visible files, and from those that wait."""
        self.knows_all = True

    def read(self) -> Iterator[pa.RecordBatch]:
        """Return the rows that were not given yet."""
        for _ in range(LOOKS):
            try:
                yield from self._read(list_sink(self._path))
                return
            except _Changed:
                continue
        raise _restless(self._path)

    def _read(self, listing: Listing) -> Iterator[pa.RecordBatch]:
        self.knows_all = listing.knows_all
        decode = _decoder(listing, self._header, self._schema)
        for label, units in listing.units.items():
            base, beyond = self._at.get(label, (0, 0))
            skip = beyond
            for unit in units:
                if unit.epoch <= base:
                    continue
                count = 0
                for path in unit.paths:
                    for batch in _open(path, decode, label):
                        count += batch.num_rows
                        passed = min(skip, batch.num_rows)
                        skip -= passed
                        if passed == batch.num_rows:
                            continue
                        rows = batch.num_rows - passed
                        beyond += rows
                        self._at[label] = (base, beyond)
                        if unit.waits:
                            self.waiting += rows
                        else:
                            self.visible += rows
                        yield batch.slice(passed)
                if not unit.waits:
                    base, beyond = unit.epoch, max(0, beyond - count)
                    self._at[label] = (base, beyond)


Decode = Callable[[str, str], Iterator[pa.RecordBatch]]


def _open(path: str, decode: Decode, label: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from decode(path, label)
    except FileNotFoundError:
        raise _Changed from None
    except PenstockError as error:
        if not exists(path):
            raise _Changed from error
        raise


def _decoder(listing: Listing, header: bool | None, given: pa.Schema | None) -> Decode:
    """Return what reads a file, and adds the fields of its partition."""
    schema = given if given is not None else listing.schema
    options = {"header": listing.header if header is None else header, "delimiter": ",", "own": True}
    by = [segment.partition("=")[0] for segment in next(iter(listing.units), "").split("/") if segment]
    types = {name: _type(schema, name, index, listing) for index, name in enumerate(map(unquote, by))}

    def read(path: str) -> Iterator[pa.RecordBatch]:
        with open_path(path) as file:
            if listing.format == "parquet":
                yield from pq.ParquetFile(file).iter_batches()
                return
            inside = None if schema is None else pa.schema([each for each in schema if each.name not in types])
            if inside is None:
                inside = first_schema(listing.format, options, file)
        refuse_types(listing.format, inside, path)
        reader: Files[Any] = Files(path, listing.format, inside, options=options)  # type: ignore[arg-type]
        for piece in read_split(reader, RowType(inside, "record"), Split(0, 0, 0, path), "sink"):
            assert piece.columns is not None
            yield piece.columns

    def decode(path: str, label: str) -> Iterator[pa.RecordBatch]:
        values = [segment.partition("=")[2] for segment in label.split("/")] if label else []
        for batch in read(path):
            whole = batch
            for (name, kind), value in zip(types.items(), values, strict=True):
                text = None if value == NO_VALUE else unquote(value)
                column = pa.array([text], pa.string()).cast(kind).take(pa.array([0] * batch.num_rows, pa.int64()))
                whole = whole.append_column(pa.field(name, kind), column)
            yield whole if schema is None or not types else whole.select(schema.names)

    return decode


def _type(schema: pa.Schema | None, name: str, index: int, listing: Listing) -> pa.DataType:
    """Return the type of a field that only names of directories tell: as declared, or whole numbers, or text."""
    if schema is not None and name in schema.names:
        return schema.field(name).type
    values = {label.split("/")[index].partition("=")[2] for label in listing.units}
    numbers = all(re.fullmatch(r"-?\d{1,18}", value) for value in values - {NO_VALUE})
    return pa.int64() if numbers else pa.string()
