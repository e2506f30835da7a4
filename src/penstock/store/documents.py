"""Small JSON documents with a checksum. One that is there and damaged is neither absent nor to be trusted."""

from __future__ import annotations

import json
import zlib
from typing import Any

from penstock.errors import CheckpointError
from penstock.store.objects import Store

Json = dict[str, Any]


class DamagedError(CheckpointError):
    """Report a document that was read and does not have the content that was written."""


def read(store: Store, name: str) -> Json | None:
    """Read a document, None where there is none; raise `DamagedError` where it is not what was written."""
    content = store.get(name)
    if content is None:
        return None
    try:
        return _decode(content)
    except ValueError:
        content = store.get(name)  # once more: what was damaged may have been the reading
    try:
        return None if content is None else _decode(content)
    except ValueError:
        raise DamagedError(f"{store.path(name)} is damaged; restore it from a copy") from None


def write(store: Store, name: str, body: Json) -> None:
    """Write a document, in place of the one that is there."""
    store.put(name, _encode(body))


def write_new(store: Store, name: str, body: Json) -> bool:
    """Write a document if there is none; tell whether it is the one that is there."""
    return store.put_new(name, _encode(body))


def _encode(body: Json) -> bytes:
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    return f"{zlib.crc32(text.encode()):08x} {text}\n".encode()


def _decode(content: bytes) -> Json:
    crc, text = content.rstrip(b"\n").split(b" ", 1)
    if int(crc, 16) != zlib.crc32(text):
        raise ValueError("the checksum is another")
    body: Json = json.loads(text)
    return body
