"""Read options out of annotations: an option's annotation has its type, what it may be and what it does."""

import datetime as dt
import inspect
import math
import numbers
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, wraps
from types import FunctionType, MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from penstock.errors import FlowError, did_you_mean
from penstock.rows.timing import seconds

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Names = Mapping[str, Callable[[], Any]]
"""Names, and what makes what each stands for."""


@dataclass(frozen=True)
class Limits:
    """The numbers that an option may be."""

    least: float
    most: float = math.inf
    more: bool = False
    """Whether it must be more than the least."""
    what: ClassVar[str] = ""

    def check(self, name: str, value: Any) -> None:
        """Refuse a number outside; NaN and the infinite are outside of all."""
        number = self.number(name, value)
        enough = number > self.least if self.more else number >= self.least
        if not (enough and number <= self.most and number < math.inf):
            raise FlowError(f"{name}={value!r}; it must be {self.what}{self}")

    def number(self, name: str, value: Any) -> float:
        return float(value)

    def __str__(self) -> str:
        if self.most < math.inf:
            return f"{self.least:,} to {self.most:,}"
        return f"more than {self.least:,}" if self.more else f"{self.least:,} or more"


class Seconds(Limits):
    """The times that an option may be, in seconds."""

    what: ClassVar[str] = 'a time such as "500 ms", in seconds '

    def number(self, name: str, value: Any) -> float:
        return seconds(value, name)


Count = Annotated[int, Limits(1)]
"""A number of things of which there must be one."""
Amount = Annotated[int, Limits(0)]
"""A number of things that may be none, or a size."""
Rate = Annotated[float, Limits(0)]
"""A rate, a cost or a weight."""
Scale = Annotated[float, Limits(0, more=True)]
"""A factor."""
Time = Annotated[str | float | dt.timedelta, Seconds(0)]
"""A time on the clock: "500 ms", a timedelta, or seconds."""
Port = Annotated[int, Limits(0, 65_535)]


@dataclass(frozen=True)
class About:
    """What an option does."""

    help: str
    metavar: str = ""
    """What stands for its value where flags are listed; by default what its type says."""
    wanted: str = ""
    """What may be given beside numbers, times and names, for refusals."""
    names: Names = field(default_factory=dict)
    """What may be given by name."""
    flag: bool = True
    """Whether it can be given on the command line."""


@dataclass(frozen=True)
class Option:
    """One option, as its annotation describes it."""

    name: str
    default: Any
    kinds: tuple[Any, ...]
    words: tuple[str, ...]
    limits: Limits | None
    about: About
    _: KW_ONLY
    optional: bool

    @property
    def kind(self) -> Any:
        return self.kinds[0] if self.kinds else str

    @property
    def flag(self) -> str:
        """Its flag: one that turns off what is on by default."""
        return f"--{'no-' if self.default is True else ''}{self.name}".replace("_", "-")

    def check(self, value: Any) -> None:
        if isinstance(self.limits, Seconds) and value is not None:
            self.limits.check(self.name, value)
        elif isinstance(value, numbers.Real) and not isinstance(value, bool) and self._takes(value):
            if self.limits is not None:
                self.limits.check(self.name, value)
        elif isinstance(value, Mapping) and Mapping in self.kinds:
            for each in value.values():
                self.check(each if type(each) is int else str(each))
        elif not self._fits(value):
            only = self.words and not self.kinds
            raise FlowError(f"{self.name}={value!r}; {'there are' if only else 'give'} {self.wanted()}")

    def _takes(self, value: numbers.Real) -> bool:
        return float in self.kinds or (int in self.kinds and isinstance(value, numbers.Integral))

    def _fits(self, value: Any) -> bool:
        if value is None:
            return self.optional or self.default is None
        if isinstance(value, str):
            return value in self.words or value in self.about.names or (str in self.kinds and not self.about.names)
        if isinstance(value, bool):
            return bool in self.kinds
        return any(_is(value, kind) for kind in self.kinds if kind not in (bool, int, float, str))

    def wanted(self, names: Names = MappingProxyType({})) -> str:
        """Say what to give; on the command line there may be more names."""
        if self.words and not self.kinds:
            return ", ".join(self.words)
        known = [f'"{name}"' for name in (*self.words, *self.about.names, *names)]
        ways = [", ".join(known)] if known else []
        if isinstance(self.limits, Seconds):
            ways.append('a time such as "500 ms"')
        elif int in self.kinds or float in self.kinds:
            whole = "a whole number" if int in self.kinds else "a number"
            ways.insert(0, whole if self.limits is None else f"{whole}, {self.limits}")
        if Mapping in self.kinds:
            ways.append("numbers by operator, such as lookup=4,totals=2")
        if bool in self.kinds:
            ways.append("True or False")
        if str in self.kinds and not (self.about.names or self.limits):
            ways.append("text")
        return ", or ".join([*ways, *([self.about.wanted] if self.about.wanted and not names else [])])

    def metavar(self, names: Names = MappingProxyType({})) -> str:
        numbers = ["TIME"] if isinstance(self.limits, Seconds) else ["N"] if int in self.kinds else []
        by_name = ["NAME=N,..."] if Mapping in self.kinds else []
        return self.about.metavar or "|".join([*numbers, *self.words, *self.about.names, *names, *by_name])

    def parse(self, text: str, names: Names = MappingProxyType({})) -> Any:
        """Read a value from a command line; raise ValueError where that cannot be."""
        if text in names:
            return names[text]()  # what the papers compare with is handed in as an object
        if text in self.words or text in self.about.names:
            return text
        if Mapping in self.kinds and "=" in text:
            pairs = [part.rpartition("=") for part in text.split(",")]
            numbers_by_name = {name: _whole(number) for name, _, number in pairs}
            if len(numbers_by_name) < len(pairs) or "" in numbers_by_name:
                raise ValueError
            return numbers_by_name
        if bool in self.kinds and str not in self.kinds and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if int in self.kinds:
            return _whole(text)
        if isinstance(self.limits, Seconds):
            return float(text) if text.replace(".", "", 1).isdecimal() else text
        if float in self.kinds:
            return float(text)
        if str in self.kinds and not self.about.names:
            return text
        raise ValueError


def _whole(text: str) -> int:
    return int(text.replace("_", ""))


def _is(value: Any, kind: Any) -> bool:
    """Tell whether a value is of a kind; a kind that cannot be tested is taken on trust."""
    try:
        return isinstance(value, kind)
    except TypeError:
        return True


def options_of(maker: Callable[..., Any]) -> dict[str, Option]:
    """Return the options of a function, or the fields of a class."""
    parameters = inspect.signature(maker, eval_str=True).parameters
    return {name: _option(name, each.default, each.annotation) for name, each in parameters.items() if name != "self"}


def _option(name: str, default: Any, annotation: Any) -> Option:
    parts = list(_parts(annotation))
    marks = (str, Limits, About, NoneType)
    return Option(
        name,
        default,
        kinds=tuple(part for part in parts if not isinstance(part, marks)),
        words=tuple(part for part in parts if isinstance(part, str)),
        limits=next((part for part in parts if isinstance(part, Limits)), None),
        about=next((part for part in parts if isinstance(part, About)), About("")),
        optional=None in parts,
    )


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield what an annotation is made of: types, words, limits, None."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _parts(part)
    elif origin is Annotated:
        yield from _parts(get_args(annotation)[0])
        yield from get_args(annotation)[1:]
    elif origin is Literal:
        yield from get_args(annotation)
    else:
        yield None if annotation is NoneType else origin or annotation


def makers(module: Mapping[str, Any], kinds: str) -> list[str]:
    """Return the functions of a module whose annotation says that they return one of these, as in "Files|Items".

    It is what `dir()` shows of a module that users call by its name.
    """
    own = [
        name
        for name, value in module.items()
        if isinstance(value, FunctionType) and not name.startswith("_") and value.__module__ == module["__name__"]
    ]
    return sorted(
        name for name in own if re.match(rf"(?:{kinds})\b", str(module[name].__annotations__.get("return", "")))
    )


def checked(make: Callable[P, R]) -> Callable[P, R]:
    """Check the options of each call of a function."""
    known = cache(lambda: (inspect.signature(make), options_of(make)))

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> R:
        signature, options = known()
        for name in kwargs:
            if name not in options:
                what = make.__qualname__.removesuffix(".__init__")
                raise TypeError(f"{what} has no option {name!r}{did_you_mean(name, options)}")
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in options:
                options[name].check(value)
        return make(*args, **kwargs)

    return made


def checked_fields(cls: type[T]) -> type[T]:
    cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]
    return cls
