"""Sequences of rows: steps, repetitions, rows that must be absent."""

from __future__ import annotations

from typing import Any

from penstock.operators import aggregates as agg
from penstock.operators.pattern import Match, absent, step

from .cases import EVENTS, MESSY, ZEROS, Sources, case, events, inverse

MANY = events(40, seed=9, keys=2, disorder=3)


def small(row: Any) -> bool:
    return bool(row.v < 2)


def large(row: Any) -> bool:
    return bool(row.v > 4)


def shown(match: Match) -> tuple[Any, ...]:
    """Show a match by its rows."""
    return (match.key, match.start, match.end, [row.v for row in match.rows])


@case(EVENTS)
def pattern_of_two_steps(s: Sources) -> None:
    s(time="t").key_by("k").pattern(step("small", small), step("large", large), within=20).sink("out")


@case(MANY)
def pattern_with_repetition(s: Sources) -> None:
    steps = step("small", small, times=(2, 4)), step("large", large)
    s(time="t", slack=3).key_by("k").pattern(*steps, within=30, combine=shown).sink("out")


@case(MANY)
def pattern_that_overlaps(s: Sources) -> None:
    steps = step("small", small, times="+"), step("large", large, times=2)
    found = s(time="t", slack=3).key_by("k").pattern(*steps, within=25, combine=shown, overlap=True)
    found.sink("out")


@case(MANY)
def pattern_that_is_strict(s: Sources) -> None:
    steps = step("small", small, times="+"), step("rest", lambda row, match: row.v > match.last.v)
    s(time="t", slack=3).key_by("k").pattern(*steps, within=25, combine=shown, strict=True).sink("out")


@case(MESSY)
def pattern_without_keys_and_something_absent(s: Sources) -> None:
    steps = step("small", small), absent("zero", lambda row: row.k == 0), step("large", large)
    s(time="t", slack=2).pattern(*steps, within=12, combine=shown).sink("out")


@case(MANY)
def pattern_with_nothing_after_it(s: Sources) -> None:
    """What comes out when its time is over is in time for windows."""
    steps = step("small", small), absent("large", large)
    found = s(time="t", slack=3).key_by("k").pattern(*steps, within=7, overlap=True)
    windows = found.window(5).aggregate(n=agg.count(), ends=agg.collect("end"))
    windows.late.sink("late")
    windows.sink("windows")
    found.sink("out")


@case(MANY)
def pattern_with_nothing_after_it_once(s: Sources) -> None:
    steps = step("small", small), step("any", lambda row: True), absent("large", large)
    s(time="t", slack=1).key_by("k").pattern(*steps, within=9, combine=shown).sink("out")


@case(EVENTS)
def pattern_by_a_field(s: Sources) -> None:
    s().key_by("k").pattern(step("small", small, times=2), within=15, time="t").sink("out")


@case(ZEROS)
def pattern_that_fails_here_and_there(s: Sources) -> None:
    steps = step("large", lambda row: inverse(row) > 25), step("any", lambda row: True)
    found = s(time="t").key_by("k").pattern(*steps, within=9, combine=shown, on_error="dead_letter")
    found.errors.map(lambda letter: letter.error).sink("errors")
    found.sink("out")
