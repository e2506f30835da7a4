"""Say what to write where a kind of stream does not have a method that another kind has."""

from __future__ import annotations

from typing import Any

from penstock.errors import FlowError


def missing_method(stream: object, name: str) -> AttributeError:
    """Return the error of a method that is not there."""
    from penstock.flow.keyed import KeyedStream
    from penstock.flow.stream import Stream
    from penstock.flow.windowed import WindowedStream

    kind = type(stream).__name__
    fix = ""
    if not name.startswith("_"):
        if isinstance(stream, WindowedStream) and (hasattr(Stream, name) or hasattr(KeyedStream, name)):
            fix = (
                "; say first what comes out of each window: aggregate(...), count(), sum(...), reduce(...), apply(...)"
            )
        elif isinstance(stream, KeyedStream) and hasattr(Stream, name):
            fix = f"; {name}() needs no key: write it before key_by(...), or after what the key is for"
        elif isinstance(stream, Stream) and hasattr(KeyedStream, name):
            fix = f"; {name}() needs a key: write key_by(...) before it, on both streams"
        elif hasattr(WindowedStream, name):
            fix = f"; {name}() needs a window: write window(...) before it, or aggregate(...) for a running value"
    return AttributeError(f"{kind} has no {name!r}{fix}", name=name, obj=stream)


def refuse_without_key(other: Any, what: str, operator: str) -> None:
    """Refuse the other side of a join that has no key."""
    from penstock.flow.keyed import KeyedStream

    if not isinstance(other, KeyedStream):
        raise FlowError(
            f"{what} after operator {operator!r}: the other stream has no key; write key_by(...) on it, too, with "
            f"fields of the same types"
        )
