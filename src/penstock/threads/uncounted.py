"""Without a GIL: what all workers of a flow use is not counted by each of them.

Whoever uses a function, a class or a descriptor counts a reference to it up, and down again. Without a GIL that is an
atomic write to memory that all workers share, and their cores wait for each other at each of them: of two workers whose
function returns a named tuple each does little more than half as much. CPython may be told to leave the counting of an
object to its collector (deferred reference counting, from 3.14 on). It does so by itself for modules, classes and the
functions in them; not for functions inside others, for what they capture, for the fields of named tuples or for what
else a class has. Here it is told so of all that the functions of a flow name; such an object ends when the collector
looks. That is for bytecode only. Where C makes an object of a class it counts the class, and looks up `__new__`, so
these are told to live as long as the process (immortal), as everything that is built in does.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from penstock.operators.base import Sink, Source
from penstock.order.threads import gil_enabled
from penstock.plan.plan import Plan
from penstock.rows.records import RowType

MOST_OBJECTS = 10_000
"""What the functions of a flow name, at most: a net, for a class may lead to many others."""


def leave_uncounted(plan: Plan) -> int:
    """Leave all that the functions of a flow use uncounted; return how many objects had been counted till now."""
    defer, keep = _told("PyUnstable_Object_EnableDeferredRefcount"), _told("_Py_SetImmortal")
    if defer is None:
        return 0
    operators = [node.operator for node in plan.nodes.values() if not isinstance(node.operator, Source | Sink)]
    things = list(shared_by([*operators, *(kind for node in plan.nodes.values() for kind in node.types)]))
    # First: to others that use it meanwhile, an object whose counting is deferred never seems to have no user left.
    new = sum(map(defer, things))
    if keep is not None:
        for maker in made_by(things):
            defer(maker)
            keep(maker)
    return new


@cache
def _told(name: str) -> Callable[[object], int] | None:
    """Return a function of the interpreter; None where it has a GIL, or nobody has looked what the function does."""
    # The second is none of its public ones. In 3.15 there is PyUnstable_SetImmortal, for objects that are new.
    if gil_enabled() or sys.version_info[:2] != (3, 14):
        return None
    found: Any = getattr(ctypes.pythonapi, name, None)
    if found is None:
        return None
    found.argtypes, found.restype = [ctypes.py_object], ctypes.c_int
    return cast("Callable[[object], int]", found)


def made_by(things: Iterable[object]) -> Iterator[object]:
    """Yield the classes among these, and what is looked up to make an object of one."""
    for thing in things:
        if issubclass(type(thing), type):  # not `isinstance`, which asks the thing itself
            assert isinstance(thing, type)
            yield thing
            metaclass: type = type(thing)
            for cls in (*thing.__mro__, *metaclass.__mro__):
                new = vars(cls).get("__new__")
                yield new
                if isinstance(new, staticmethod):
                    yield new.__func__


def shared_by(roots: Iterable[object]) -> Iterator[object]:
    """Yield what workers share that use these: functions, what they name and capture, classes and what these have."""
    waiting, seen = list(roots), dict[int, object]()
    while waiting and len(seen) < MOST_OBJECTS:
        thing = waiting.pop()
        if id(thing) not in seen and not issubclass(type(thing), ModuleType):
            seen[id(thing)] = thing  # kept, so that no other object gets its number meanwhile
            try:
                waiting += _leads_to(thing)
            except Exception:  # one that stands for another which is not there yet: a flow must not fail for this
                waiting.append(type(thing))
            if gc.is_tracked(thing):
                yield thing


def _leads_to(thing: object) -> Iterable[object]:
    match thing:
        case FunctionType():
            named = (thing.__globals__.get(name, vars(builtins).get(name)) for name in _names(thing.__code__))
            return *named, *(thing.__closure__ or ()), *(thing.__defaults__ or ())
        case type():
            return () if thing.__module__ == "builtins" else (*vars(thing).values(), *thing.__mro__[1:])
        case CellType() | partial():
            return gc.get_referents(thing)
        case MethodType():
            return thing.__func__, thing.__self__
        case staticmethod() | classmethod():
            return (thing.__func__,)
        case property():
            return (thing.fget,)
        case RowType():
            return (thing.row_class,)
        case _ if is_dataclass(thing):
            return (type(thing), *(getattr(thing, field.name, None) for field in fields(thing)))
    return (type(thing),)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up, with the code inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
