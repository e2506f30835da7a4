"""Names that Penstock gives: by the function, or by what is declared. They give way to names that users give."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

from penstock.plan.graph import Naming

if TYPE_CHECKING:
    from penstock.flow.flow import Flow

_NAMELESS = ("functools", "operator", "builtins", "itertools")
"""Objects of these modules that can be called, such as partials, are not what a user would name an operator by."""


class AutomaticName(str):
    """A name that the user did not give, and how it came about."""

    naming: Naming


def automatic_name(function: Any, kind: str, taken: Container[str]) -> AutomaticName:
    """Return a free name for an operator: that of its function, or of its kind where it has none or no function."""
    base = None if function is None else own_name(function)
    return numbered(Naming(base or kind, function is None or base is not None), taken)


def free_name(flow: Flow, given: str | None, function: Any, kind: str) -> str:
    """Return the name that the user gave, or one that is free in the flow."""
    return automatic_name(function, kind, flow.nodes) if given is None else given


def numbered(naming: Naming, taken: Container[str]) -> AutomaticName:
    """Return the name, or the first with a number that is free."""
    name, number = naming.base, 1
    while name in taken:
        number += 1
        name = f"{naming.base}_{number}"
    made = AutomaticName(name)
    made.naming = naming
    return made


def own_name(function: Any) -> str | None:
    """Return the name of a function or class, or of the class of an object that can be called; None for a lambda."""
    name = getattr(function, "__name__", None)
    if name is None and type(function).__module__ not in _NAMELESS:
        name = type(function).__name__
    return name if isinstance(name, str) and name.isidentifier() else None
