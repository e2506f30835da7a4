"""Every engine gives the output sequence of the sequential engine, for named flows, random flows and any cut."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings

from penstock import read
from penstock.testing.kit import assert_same
from penstock.threads.policies import POLICIES

from ..in_turn import one_of_each
from .checking import check, check_case, cuts, drawn_cuts, drawn_engines, outcome
from .engines import ENGINES, REFERENCE, Engine, one_by_one, whole
from .flows import CASES
from .kinds import WRITABLE, Wide
from .strategies import Drawn, drawn_flows


def engines() -> list:
    """List the engines as parameters, each with its marks."""
    return [
        pytest.param(engine, id=engine.name, marks=[getattr(pytest.mark, m) for m in engine.marks])
        for engine in ENGINES
    ]


SINGLE = [name for name, case in CASES.items() if len(case.rows) == 1 and "order" not in name and not case.fails]
"""Cases of one source whose order does not depend on the epochs."""


WIDE = [engine for engine in ENGINES if engine.name in ("inline-3", "threads-dynamic-3")]
SEVERAL = [name for name, case in CASES.items() if len(case.rows) > 1]
"""Cases of several sources."""


def with_engines(names: Iterable[str], runs: Callable[[str, Engine], bool]) -> list:
    """List cases with engines; those that are not drawn are slow."""
    listed = []
    for name in names:
        drawn = drawn_engines(name)
        for engine in filter(partial(runs, name), ENGINES):
            slow = [] if engine in drawn else ["slow"]
            marks = [getattr(pytest.mark, mark) for mark in (*engine.marks, *slow)]
            listed.append(pytest.param(name, engine, id=f"{name}-{engine.name}", marks=marks))
    return listed


def ends_alone(name: str, engine: Engine) -> bool:
    """Tell whether ends matter to an engine: not to policies, which choose; on Spark, to flows whose ports close."""
    closing = any(word in name for word in ("coroutine", "feedback", "library"))
    return engine.name.removeprefix("threads-") not in POLICIES and (closing or "spark" not in engine.marks)


def named(name: str, engine: Engine) -> bool:
    """Tell whether an engine runs a case: on Spark, those that `test_sources.py` does not run over other sources."""
    return "spark" not in engine.marks or name not in WRITABLE


def test_every_engine_and_every_cut_is_drawn():
    drawn = {name: drawn_engines(name) for name in CASES}
    for name, engines in drawn.items():
        cutting = [engine.name.split("-")[0] for engine in engines if len(list(drawn_cuts(engine, name))) == 3]
        assert cutting == ["inline", "threads"]
    assert {engine.name for engines in drawn.values() for engine in engines} == {engine.name for engine in ENGINES}


class TestNamedFlows:
    @pytest.mark.parametrize(("name", "engine"), with_engines(CASES, named))
    def test_as_the_sequential_engine(self, name, engine):
        check_case(engine, name, drawn_cuts(engine, name))

    @pytest.mark.slow
    @pytest.mark.parametrize("alone", [False, True])
    @pytest.mark.parametrize("engine", [e for e in ENGINES if e.every_cut], ids=lambda engine: engine.name)
    @pytest.mark.parametrize("name", CASES)
    def test_with_every_cut(self, name, engine, alone):
        check_case(engine, name, cuts(CASES[name]), alone=alone)

    @pytest.mark.parametrize(("name", "engine"), one_of_each(CASES, WIDE))
    def test_with_wide_positions(self, name, engine):
        """Every operator knows how long the positions of its rows are, whatever the sources."""
        check(engine, CASES[name].flow(Wide), CASES[name].epochs())

    @pytest.mark.parametrize(("name", "engine"), one_of_each(SEVERAL, WIDE))
    def test_sources_that_take_turns(self, name, engine):
        """Sources that have all their rows take turns, and their ends have their turn, too, however all is cut."""
        case = CASES[name]
        flow, label = case.flow(read.items), random.Random(name).choice(["own", "whole", "one by one"])
        check(engine, flow, cuts(case)[label])

    @pytest.mark.parametrize(("name", "engine"), with_engines(SEVERAL, ends_alone))
    def test_where_each_source_ends_alone(self, name, engine):
        """A source that has ended holds nobody back, and the ports behind it close, at its place in the input."""
        check_case(engine, name, drawn_cuts(engine, name), alone=True)

    @pytest.mark.parametrize("name", CASES)
    def test_what_the_reference_gives(self, name):
        """It fails where the case says so and nowhere else, gives something, and what was worked out by hand."""
        case = CASES[name]
        found = outcome(REFERENCE, case.flow(), case.epochs())
        assert isinstance(found, str) == case.fails, found
        if not case.fails and case.rows != {"in": []}:
            assert any(found.values()), "a flow from which nothing comes out would hold nobody to anything"
        if case.expects is not None:
            assert found == case.expects
        if name in SINGLE:
            for epochs in (whole(case.rows), one_by_one(case.rows)):
                assert_same(found, REFERENCE.run(case.flow(), epochs))


MORE = int(os.environ.get("PENSTOCK_EXAMPLES", "1"))
"""Draw as many times more random flows: for a night, or after a change of the engine."""


class TestRandomFlows:
    def hold(self, engine: Engine, examples: int, **options: Any) -> None:
        """Draw flows and hold an engine to the reference."""

        phases = [phase for phase in Phase if phase != Phase.shrink or engine.shrinks]

        @settings(max_examples=examples * MORE, suppress_health_check=list(HealthCheck), phases=phases)
        @given(drawn_flows(**options))
        def run(drawn: Drawn) -> None:
            note(drawn.show())
            check(engine, drawn.flow(), drawn.epochs)

        run()

    @pytest.mark.parametrize("engine", engines())
    def test_as_the_sequential_engine(self, engine):
        self.hold(engine, engine.examples)

    @pytest.mark.parametrize("engine", engines())
    def test_fails_as_the_sequential_engine(self, engine):
        """The error is the one that a run row by row meets first, whatever else fails in the same epoch."""
        self.hold(engine, engine.examples // 3, fails=True)

    @given(drawn_flows(sources=1))
    @settings(max_examples=50, suppress_health_check=list(HealthCheck))
    def test_one_source_gives_the_same_however_it_is_cut(self, drawn):
        expected = REFERENCE.run(drawn.flow(), drawn.epochs)
        for epochs in (whole(drawn.rows), one_by_one(drawn.rows)):
            assert_same(expected, REFERENCE.run(drawn.flow(), epochs))
