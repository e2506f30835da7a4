"""What a flow says about the calls of a function: how long one may take, how often it is tried, how fast they come."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypedDict

from penstock.errors import FlowError, did_you_mean
from penstock.rows.timing import seconds

WallTime = str | float | dt.timedelta
"""A time on the clock: "500 ms", a timedelta, or seconds."""

FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 30.0
"""Seconds before the second attempt, where the user does not say, and before any other, at most."""


@dataclass(frozen=True)
class Cache:
    """Remember the results of calls: of the last `size` arguments, each for `ttl` (None: as long as there is room).

    The argument is the whole row, or the fields that `by` names. Each process remembers for itself.
    """

    size: int
    ttl: WallTime | None = None
    by: str | tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the names of the fields that the argument consists of; none for the whole row."""
        return tuple(self.by) if isinstance(self.by, (list, tuple)) else (self.by,)

    @property
    def seconds(self) -> float:
        """Return how long a result holds."""
        return math.inf if self.ttl is None else seconds(self.ttl, "ttl", "cache")


class CallOptions(TypedDict, total=False):
    """The options of `map`, `flat_map` and `filter` for functions that call somebody."""

    timeout: WallTime
    """How long one attempt may take."""
    retries: int
    """How often a call that raises, or takes too long, is made again."""
    backoff: WallTime | tuple[WallTime, WallTime]
    """The wait before the second attempt, or (that wait, the longest one); each is twice as long as the one before."""
    rate: float
    """Attempts a second, at most, over the whole operator."""
    cache: int | Cache
    """How many results to remember, or `ps.Cache(...)`."""
    setup: Callable[[], Any]
    """Makes what the function gets as its second argument, once in each worker."""
    setup_per: Literal["process", "thread"]
    """Whether threads share it."""


@dataclass(frozen=True)
class Calls:
    """How the calls of one operator are made; times in seconds."""

    timeout: float | None = None
    retries: int = 0
    backoff: float = FIRST_BACKOFF
    longest_backoff: float = LONGEST_BACKOFF
    rate: float | None = None
    cache: Cache | None = None
    _: KW_ONLY
    setup: Callable[[], Any] | None = None
    per_thread: bool = False

    @property
    def waits(self) -> bool:
        """Tell whether calls wait for something: an answer, the next attempt, their turn."""
        return self.timeout is not None or self.retries > 0 or self.rate is not None

    def pause(self, attempts: int) -> float:
        """Return the seconds to wait after so many attempts, before anybody shortens it."""
        doubled = min(attempts - 1, 64)  # beyond that it would be no number
        return min(self.longest_backoff, self.backoff * 2.0**doubled)


def make_calls(options: CallOptions, waits: bool | None, name: str) -> Calls | None:
    """Read the options of an operator; None where there are none. Refuses what cannot be."""
    unknown = [each for each in options if each not in CallOptions.__annotations__]
    if unknown:
        hint = did_you_mean(unknown[0], ["schema", "on_error", "waits", "in_flight", *CallOptions.__annotations__])
        raise TypeError(f"operator {name!r} has no option {unknown[0]!r}{hint}")
    given: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
    if not given:
        return None
    if "backoff" in given and "retries" not in given:
        raise FlowError(f"operator {name!r}: backoff={given['backoff']!r} without retries=; say how often to try again")
    first, longest = _backoff(given.get("backoff"), name)
    made = Calls(
        positive_seconds(given["timeout"], name, "timeout") if "timeout" in given else None,
        _count(given.get("retries", 0), 0, name, "retries"),
        first,
        longest,
        _rate(given["rate"], name) if "rate" in given else None,
        _cache(given["cache"], name) if "cache" in given else None,
        setup=given.get("setup"),
        per_thread=given.get("setup_per") == "thread",
    )
    _check_setup(made, given.get("setup_per"), name)
    if waits is False and made.waits:
        raise FlowError(
            f"operator {name!r}: timeout=, retries= and rate= are for functions that wait; leave out waits=False"
        )
    return made


def _check_setup(calls: Calls, per: Any, name: str) -> None:
    if per not in (None, "process", "thread"):
        raise FlowError(f'operator {name!r}: setup_per={per!r}; use "process" or "thread"')
    if per is not None and calls.setup is None:
        raise FlowError(f"operator {name!r}: setup_per={per!r} without setup=")
    if calls.setup is not None and not callable(calls.setup):
        raise FlowError(
            f"operator {name!r}: setup={calls.setup!r} is no function; give one without arguments that makes the "
            f"client, so that each worker makes its own"
        )
    if calls.per_thread and calls.timeout is not None:
        raise FlowError(
            f'operator {name!r}: setup_per="thread" and timeout= do not go together, because calls that are late leave '
            f"their threads; set the time limit in the client, or share one client"
        )


def positive_seconds(value: Any, name: str, option: str) -> float:
    found = seconds(value, option, name)
    if not 0 < found < math.inf:
        raise FlowError(f'operator {name!r}: {option}={value!r}; give a time above 0, such as "2 s"')
    return found


def _backoff(value: Any, name: str) -> tuple[float, float]:
    if value is None:
        return FIRST_BACKOFF, LONGEST_BACKOFF
    if not isinstance(value, tuple):
        first = positive_seconds(value, name, "backoff")
        return first, max(first, LONGEST_BACKOFF)
    if len(value) != 2:
        raise FlowError(f'operator {name!r}: backoff={value!r}; give a time, or (first, longest): ("100 ms", "10 s")')
    first, longest = (positive_seconds(each, name, "backoff") for each in value)
    if longest < first:
        raise FlowError(f"operator {name!r}: backoff={value!r}: the longest wait is shorter than the first")
    return first, longest


def _rate(value: Any, name: str) -> float:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
    if not good:
        raise FlowError(f"operator {name!r}: rate={value!r}; give the calls a second, a number above 0")
    return float(value)


def _count(value: Any, least: int, name: str, option: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise FlowError(f"operator {name!r}: {option}={value!r}; give a whole number, {least} or more")
    return value


def _cache(value: Any, name: str) -> Cache:
    found = value if isinstance(value, Cache) else Cache(value)
    _count(found.size, 1, name, "cache")
    if found.ttl is not None:
        positive_seconds(found.ttl, name, "the ttl of cache")
    if not all(isinstance(each, str) and each for each in found.fields):
        raise FlowError(f"operator {name!r}: cache=...by={found.by!r}; give names of fields, or leave it out")
    return found
