"""Keep generated tables in a directory, one directory a table, made when they are first asked for."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import FlowError
from penstock.lab.workloads.tpcx_bb import generator, tables

ROW_GROUP = 125_000
MAKERS: dict[str, Callable[[float, int], Iterable[pa.Table]]] = {
    "web_clickstreams": generator.web_clickstreams,
    "store_sales": generator.store_sales,
    "item": lambda scale, seed: [tables.item(scale, seed)],
    "web_page": lambda scale, seed: [tables.web_page(scale, seed)],
}


def prepare(data: str, scale: float, seed: int, *names: str) -> dict[str, str]:
    """Return the directories of tables; make those that are absent.

    Tables that others put there are taken as they are, whatever the scale and the seed.
    """
    for name in names:
        directory = Path(data) / name
        if not directory.exists():
            write(directory, MAKERS[name](scale, seed))
            _note(directory, scale, seed)
        _check(directory, scale, seed)
    return {name: str(Path(data) / name) for name in names}


def write(directory: Path, parts: Iterable[pa.Table]) -> list[Path]:
    """Write tables as Parquet files whose names are in order; the directory appears when it is whole."""
    unfinished = directory.with_name(f".{directory.name}.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        names = [write_part(unfinished / f"part-{number:06d}.parquet", part).name for number, part in enumerate(parts)]
        unfinished.rename(directory)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return [directory / name for name in names]


def write_part(path: Path, part: pa.Table) -> Path:
    """Write one file. Times, which hardly repeat, would only fill a dictionary that is then thrown away."""
    plain = {"wcs_click_ts", "wcs_click_time_sk", "wcs_sales_sk", "ss_sold_ts", "ss_ticket_number", "ss_net_paid"}
    coded = [name for name in part.column_names if name not in plain]
    pq.write_table(part, path, row_group_size=ROW_GROUP, use_dictionary=coded, compression="snappy")
    return path


def keys_where(directory: str, key: str, column: str, values: Iterable[int | str]) -> list[int]:
    """Return the keys of the rows of a small table that have one of these values in a column."""
    table = pq.read_table(directory, columns=[key, column])
    wanted = pc.is_in(table[column], value_set=pa.array(list(values), table.schema.field(column).type))
    keys: list[int] = table[key].filter(wanted).to_pylist()
    return keys


def numbers(text: str) -> list[int]:
    """Read an option such as "1,2,3"."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise FlowError(f"{text!r} is no list of whole numbers; write for example 1,2,3") from None


def _note(directory: Path, scale: float, seed: int) -> None:
    # Beside the table, not in it: a source reads every file of its directory.
    directory.with_name(f"{directory.name}.json").write_text(json.dumps({"scale": scale, "seed": seed}))


def _check(directory: Path, scale: float, seed: int) -> None:
    note = directory.with_name(f"{directory.name}.json")
    found = json.loads(note.read_text()) if note.exists() else None
    if found is not None and found != {"scale": scale, "seed": seed}:
        raise FlowError(
            f"{directory} was made with scale={found['scale']} and seed={found['seed']}, not with scale={scale} and "
            f"seed={seed}; give another directory with -o data=DIR, or remove it"
        )
