"""Hold an engine to the reference: on a flow, or on a case with all of its cuts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from random import Random
from typing import Any

from penstock.errors import PenstockError
from penstock.flow import Flow
from penstock.testing.kit import assert_same
from penstock.threads.policies import POLICIES

from .engines import ENGINES, REFERENCE, Engine, Epochs, at_most, one_by_one, whole
from .flows import CASES, Case

CHOOSING = ["threads-locked", *(f"threads-{name}" for name in POLICIES)]
"""Engines that differ in what they run next, or in what they wait for, and in nothing that they compute."""


def cuts(case: Case) -> dict[str, Epochs]:
    """Return the ways to cut a case's input: its own, one epoch, and one row at a time."""
    return {"own": case.epochs(), "whole": whole(case.rows), "one by one": one_by_one(case.rows)}


def outcome(engine: Engine, flow: Flow, epochs: Epochs, **options: Any) -> dict[str, list] | str:
    """Return what comes out at every sink, or what the flow fails with."""
    try:
        return engine.run(flow, epochs, **options)
    except PenstockError as error:
        return f"{type(error).__name__}: {error}"


def check(engine: Engine, flow: Flow, epochs: Epochs, **options: Any) -> None:
    """Hold an engine to the reference."""
    compare(outcome(REFERENCE, flow, epochs, **options), outcome(engine, flow, epochs, **options))


def compare(expected: dict[str, list] | str, found: dict[str, list] | str) -> None:
    """Hold what came out, or failed, to what should."""
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
    else:
        assert_same(expected, found)


@cache  # the same for twenty engines
def meant(name: str, label: str, most_epochs: int | None, alone: bool) -> dict[str, list] | str:
    """Return what comes out of a case, by the reference."""
    case = CASES[name]
    return outcome(REFERENCE, case.flow(), at_most(cuts(case)[label], most_epochs), alone=alone)


def drawn_engines(name: str) -> list[Engine]:
    """Return those that run a case by `make test`; `make chaos` has them all.

    Each cut of each case is run by one engine of Spark's kind and by one with threads. Of the others with threads, two
    that differ in who does what run its own cut, and one that differs only in what it chooses. Spark itself, which has
    the code of the first kind, runs every second case.
    """
    draw = Random(name)
    all_cuts = [each for each in ENGINES if each.every_cut]
    kinds = [[each for each in all_cuts if each.name.startswith(kind)] for kind in ("inline", "threads")]
    choosing = [each for each in ENGINES if each.name in CHOOSING]
    sharing = [each for each in ENGINES if not each.marks and each not in all_cuts and each not in choosing]
    spark = [each for each in ENGINES if each.marks and list(CASES).index(name) % 2]
    return [*map(draw.choice, kinds), *draw.sample(sharing, 2), draw.choice(choosing), *spark]


def drawn_cuts(engine: Engine, name: str) -> Iterable[str]:
    """Return the cuts of a case for an engine: all, if it has been drawn for that, or else its own."""
    return cuts(CASES[name]) if engine.every_cut and engine in drawn_engines(name) else ["own"]


def check_case(engine: Engine, name: str, labels: Iterable[str], alone: bool = False) -> None:
    """Hold an engine to the reference on a case, with some of its cuts."""
    case = CASES[name]
    for label, epochs in cuts(case).items():
        if label in labels:
            found = outcome(engine, case.flow(), at_most(epochs, engine.most_epochs), alone=alone)
            compare(meant(name, label, engine.most_epochs, alone), found)
