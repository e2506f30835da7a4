"""Find patterns: check what was asked for, and make the logic that does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import FlowError
from penstock.flow import checks
from penstock.flow.building import remembering
from penstock.flow.lifetimes import lifetime
from penstock.flow.naming import free_name
from penstock.operators.base import OnError
from penstock.operators.pattern import Absent, Match, Pattern, Place, Step
from penstock.operators.stateless import refuse_async
from penstock.rows.timing import Duration, TimeKind, kind_of

if TYPE_CHECKING:
    from penstock.flow.stream import Stream


def pattern(
    stream: Stream,
    steps: tuple[Step | Absent, ...],
    within: Duration,
    combine: Callable[[Match], Any] | None,
    *,
    time: str | None,
    strict: bool,
    overlap: bool,
    schema: Any,
    name: str | None,
    on_error: OnError,
) -> Stream:
    """Find sequences of rows."""
    name = free_name(stream.flow, name, combine, "pattern")
    places = _places(steps, name)
    kind = _kind(stream, time, name)
    if time is not None and places[-1].barred:
        raise FlowError(
            f"operator {name!r}: the end of the time in which rows must be absent is known by event time alone; leave "
            f"out time=, and give time= to every source above it, or end the pattern with a step"
        )
    returns = None
    if combine is not None:
        returns = checks.returns(combine, schema, name, takes=("rows",))
        refuse_async(combine, name, "combine= of a pattern")
    elif schema is not None:
        raise FlowError(f"operator {name!r}: schema= is for what combine= returns; give both, or leave it out")
    key = stream.key
    if combine is None:
        checks.distinct((*(key.names if key else ()), "start", "end", "rows"), name, "the pattern")
    span = lifetime(within, kind, name, "within").ttl
    logic = Pattern(places, span, combine, returns, key, kind, time=time, strict=strict, overlap=overlap)
    return remembering(stream, name, logic, key, on_error)


def _kind(stream: Stream, time: str | None, name: str) -> TimeKind:
    """Return what the times are that a pattern compares."""
    if time is None:
        checks.has_time(stream, name, "a pattern without time=")
        assert stream.time is not None
        return stream.time
    known = checks.known_type(stream.type, name, "time=")
    found = checks.field(known, time, name, "time")
    kind = None if found is None else kind_of(found.type)
    if found is None or kind is None:
        raise FlowError(
            f"operator {name!r}: time={time!r} is of type {known.schema.field(time).type}; it must be a timestamp, a "
            f"date or an integer, so convert it first"
        )
    return kind


def _places(steps: tuple[Step | Absent, ...], name: str) -> tuple[Place, ...]:
    places: list[Place] = []
    for each in steps:
        if not isinstance(each, (Step, Absent)):
            raise FlowError(
                f'operator {name!r}: {each!r} is no step; give ps.step("name", predicate) or ps.absent("name", '
                f"predicate), one after the other"
            )
        checks.is_callable(each.predicate, name, f"a predicate for {each.name!r}, which is a function of the row")
        refuse_async(each.predicate, name, f"the predicate of {each.name!r}")
        if isinstance(each, Step):
            places.append(Place(each.name, each.predicate, *_times(each, name)))
        elif not places:
            raise FlowError(
                f"operator {name!r}: {each.name!r} is absent before the first step, and nobody could tell since when; "
                f"begin with ps.step(...)"
            )
        else:
            last = places.pop()
            places.append(Place(last.name, last.predicate, last.low, last.high, (*last.barred, each.predicate)))
    if not places:
        raise FlowError(f'operator {name!r}: a pattern needs a step; give ps.step("name", predicate)')
    names = [each.name for each in steps]
    wrong = [each for each in names if not isinstance(each, str) or not each]
    if wrong:
        raise FlowError(f"operator {name!r}: a step's name must be text, not {wrong[0]!r}")
    twice = [each for index, each in enumerate(names) if each in names[:index]]
    if twice:
        raise FlowError(f"operator {name!r}: two steps are named {twice[0]!r}; rename one")
    return tuple(places)


def _times(step: Step, name: str) -> tuple[int, int | None]:
    """Read how many rows a step takes: at least, and at most."""
    times = (1, None) if step.times == "+" else step.times
    low, high = times if isinstance(times, tuple) and len(times) == 2 else (times, times)
    good = all(isinstance(each, int) and not isinstance(each, bool) for each in (low, low if high is None else high))
    if not good or low < 1 or (high is not None and high < low):  # type: ignore[operator]
        raise FlowError(
            f"operator {name!r}: times={step.times!r} of the step {step.name!r}; give a whole number of rows, 1 or "
            f'more, (least, most) with None for any number, or "+" for one or more'
        )
    return low, high  # type: ignore[return-value]
