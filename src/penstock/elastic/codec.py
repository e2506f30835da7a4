"""Turn frozen dataclasses into plain JSON values and back, by their annotations.

The decision log must be read by other programs and replayed after an upgrade, so it holds plain JSON and
names no Python class: the reader knows from the controller which dataclass to expect.
"""

import dataclasses
import math
import types
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Json = Any  # What `json` reads and writes; a recursive alias helps neither mypy nor the reader.

# JSON has no infinities, and `json` would write tokens that other readers refuse.
_SPECIAL = {math.inf: "inf", -math.inf: "-inf"}
_HINTS: dict[type, dict[str, Any]] = {}


def plain(value: Any) -> Json:
    """Return a value as plain JSON: dataclasses become objects, tuples become lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return _SPECIAL.get(value, "nan")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} has no place in the decision log; use a dataclass, tuple or number")


def build(kind: type[T], value: Json) -> T:
    """Rebuild a value of the given type from plain JSON."""
    result: T = _build(kind, value)
    return result


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


def _build(kind: Any, value: Json) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _build_union(arguments, value)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_build(arguments[0], each) for each in value)
        return tuple(_build(each, part) for each, part in zip(arguments, value, strict=True))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        # A field that the log does not have takes its default: an old log replays on a newer controller.
        return kind(**{name: _build(hints[name], each) for name, each in value.items()})
    if kind is float:
        return float(value)
    if kind in (int, str, bool) and not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, found {value!r}")
    return value


def _build_union(kinds: tuple[Any, ...], value: Json) -> Any:
    if value is None:
        return None
    for kind in kinds:
        if kind in (int, float, str, bool) and type(value) is kind:
            return value
    errors = []
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _build(kind, value)
        except (TypeError, ValueError, AttributeError) as error:
            errors.append(str(error))
    raise TypeError(f"{value!r} fits none of {kinds}: {'; '.join(errors)}")
