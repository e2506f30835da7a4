"""What the options of workloads may be: their limits are in their annotations, and are checked here for all."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_args, get_origin

from penstock.errors import FlowError

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Limits:
    """The numbers that an option may be."""

    least: float
    most: float = math.inf
    more: bool = False
    """Whether it must be more than the least."""

    def check(self, name: str, value: float) -> None:
        """Refuse a number outside; NaN and the infinite are outside of all."""
        enough = value > self.least if self.more else value >= self.least
        if not (enough and value <= self.most and value < math.inf):
            raise FlowError(f"{name}={value}; it must be {self}")

    def __str__(self) -> str:
        if self.most < math.inf:
            return f"{self.least:,} to {self.most:,}"
        return f"more than {self.least:,}" if self.more else f"{self.least:,} or more"


Count = Annotated[int, Limits(1)]
"""A number of things of which there must be one."""
Amount = Annotated[int, Limits(0)]
"""A number of things that may be none, or a size."""
Rate = Annotated[float, Limits(0)]
"""A rate, a cost or a weight."""
Scale = Annotated[float, Limits(0, more=True)]
"""A factor."""


@dataclass(frozen=True)
class Option:
    """One option of a workload, as its annotation describes it."""

    name: str
    default: Any
    kind: Any
    limits: Limits | None = None
    choices: tuple[Any, ...] = ()

    def check(self, value: Any) -> None:
        """Refuse a value that cannot be; None is for whoever calls the function."""
        if self.choices and value not in self.choices:
            raise FlowError(f"{self.name}={value!r}; there are {', '.join(self.choices)}")
        if self.limits is not None and value is not None:
            self.limits.check(self.name, value)


def options_of(maker: Callable[..., Any]) -> dict[str, Option]:
    """Return the options of the function that makes a flow."""
    found = inspect.signature(maker, eval_str=True).parameters
    return {name: _option(name, each.default, each.annotation) for name, each in found.items()}


def _option(name: str, default: Any, annotation: Any) -> Option:
    # Optional[X] and X | None are X: None cannot be written on a command line.
    (kind, *others) = [part for part in get_args(annotation) if part is not type(None)] or [annotation]
    if get_origin(annotation) is Literal:
        return Option(name, default, str, choices=(kind, *others))
    if get_origin(kind) is Annotated:
        return _option(name, default, kind)
    limits = next((other for other in others if isinstance(other, Limits)), None)
    return Option(name, default, kind, limits)


def check_all(options: Mapping[str, Option], values: Mapping[str, Any]) -> None:
    """Refuse values that cannot be."""
    for name, value in values.items():
        options[name].check(value)


def checked(make: Callable[P, R]) -> Callable[P, R]:
    """Check the options of each call of a function."""
    signature = inspect.signature(make)

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> R:
        check_all(options_of(make), signature.bind(*args, **kwargs).arguments)
        return make(*args, **kwargs)

    return made
