"""Small files of a checkpoint: JSON with a checksum, written so that they appear whole or not at all."""

from __future__ import annotations

import json
import os
import uuid
import zlib
from typing import Any

from pyarrow import fs

from penstock.ingress.paths import locate


def write_json(path: str, body: Any, *, only_if_absent: bool = False) -> bool:
    """Write a JSON file with its checksum; return False where it was to be new and is there already."""
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    content = f"{zlib.crc32(text.encode()):08x} {text}\n".encode()
    system, inside = locate(path)
    if system.type_name != "local":
        if only_if_absent and read_json(path) is not None:
            return False
        with system.open_output_stream(inside) as file:
            file.write(content)
        return True
    temporary = f"{inside}.{uuid.uuid4().hex}.tmp"
    with open(temporary, "wb") as local:
        local.write(content)
    if only_if_absent:
        try:
            os.link(temporary, inside)  # fails if the target exists: the one atomic way to be first
            os.unlink(temporary)
            return True
        except FileExistsError:
            if read_json(path) is not None:
                os.unlink(temporary)
                return False
    os.replace(temporary, inside)  # a torn file counts as absent
    return True


def read_json(path: str) -> Any:
    """Read a JSON file; None where it is absent, torn or damaged."""
    system, inside = locate(path)
    try:
        with system.open_input_file(inside) as file:
            content = file.read()
    except (FileNotFoundError, OSError):
        return None
    try:
        crc, text = content.rstrip(b"\n").split(b" ", 1)
        return json.loads(text) if int(crc, 16) == zlib.crc32(text) else None
    except (ValueError, json.JSONDecodeError):
        return None


def list_names(directory: str, *, hidden: bool = False) -> list[str]:
    """List the names in a directory, sorted; none where there is no directory."""
    system, inside = locate(directory)
    found = system.get_file_info(fs.FileSelector(inside, allow_not_found=True))
    return sorted(info.base_name for info in found if hidden or not info.base_name.startswith("."))


def make_directory(path: str) -> None:
    """Make a directory and those around it."""
    system, inside = locate(path)
    system.create_dir(inside, recursive=True)


def remove(path: str) -> None:
    """Remove a file or a directory, if it is there."""
    system, inside = locate(path)
    kind = system.get_file_info(inside).type
    if kind == fs.FileType.Directory:
        system.delete_dir(inside)
    elif kind == fs.FileType.File:
        system.delete_file(inside)


def move(source: str, target: str) -> None:
    """Rename a file or a directory."""
    system, inside = locate(source)
    system.move(inside, locate(target)[1])
