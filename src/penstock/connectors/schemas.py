"""Find the schema of files before the run, by looking into the first of them."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.paths import exists, list_files, open_path
from penstock.connectors.read import Files
from penstock.connectors.retries import retried
from penstock.connectors.text import first_schema
from penstock.errors import FlowError


def infer_schema(reader: Files, source: str) -> pa.Schema:
    """Return the schema of a directory's first file."""
    listing = f"source {source!r}: listing"
    listed = retried(lambda: list_files(reader.path), listing, reader.path)
    found = sorted(listed, key=lambda f: (f.modified, f.path))
    if not found and not retried(lambda: exists(reader.path), listing, reader.path):
        where = "" if "://" in reader.path else f" (looked in {os.getcwd()})"
        raise FlowError(
            f"source {source!r}: there is no directory {reader.path!r}{where}; make it, or, to wait for its first "
            f"file with follow=True, give schema="
        )
    if not found:
        raise FlowError(
            f"source {source!r}: there are no files in {reader.path!r} to take the schema from; give schema=, "
            f"or put the first file there"
        )
    path = found[0].path
    try:
        with open_path(path) as file:
            if reader.format == "parquet":
                return pq.read_schema(file)
            if reader.format == "csv" and not reader.options.get("header", True):
                raise FlowError(f"source {source!r}: a CSV without header needs schema=")
            return first_schema(reader.format, reader.options, file)
    except (pa.ArrowException, OSError) as error:
        raise FlowError(
            f"source {source!r}: {path} cannot be read as {reader.format}: {str(error).splitlines()[0]}; "
            f"give schema=, or repair the file"
        ) from None
