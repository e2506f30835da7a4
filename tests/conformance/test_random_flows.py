"""Random flows, the whole way: any sources, operators, settings, stops and crashes give the sequence that is meant.

`make test` draws the same 50 each time; `make chaos` draws 2,000 others each day, 200 of them on Spark. A failure is
made smaller, and says what to set to have it again.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings

from .random_flows import Life, Whole, drawn_wholes
from .random_runs import check
from .random_sources import Origin
from .strategies import Step

SEED = "PENSTOCK_SEED"
FIRST = int(os.environ.get(SEED) or random.SystemRandom().randrange(1 << 32))
"""Where the draws of this run begin."""


def hold(count: int, first: int, block: int = 0, *, session: Any = None, **options: Any) -> None:
    """Draw so many flows, from a seed, and hold each to what is meant."""
    phases = [Phase.generate, Phase.shrink]

    @seed(first + block)
    @settings(max_examples=count, deadline=None, database=None, phases=phases, suppress_health_check=list(HealthCheck))
    @given(drawn_wholes(**options))
    def run(drawn: Whole) -> None:
        note(drawn.show())
        check(drawn, session)

    try:
        run()
    except BaseException as error:
        error.add_note(f"drawn from {SEED}={first}; set it to have the same test draw the same flows")
        raise


def test_fifty() -> None:
    hold(50, 1)


def parts(engine: str, ordered: bool, *given: dict[int, list[int]]) -> Whole:
    """Make a flow with windows over one source of several parts, which gives rows of these times."""
    rows = tuple((t, 0, 1) for asked in given for times in asked.values() for t in times)
    counts = tuple(tuple((part, len(times)) for part, times in asked.items()) for asked in given)
    origin = Origin("parts", 0, rows, parts=counts)
    settings = (("batch_rows", 2), ("threads", 2)) if engine == "threads" else ()
    return Whole((origin,), ordered, True, (WINDOWS,), engine, (Life(1, 3),), settings)


WINDOWS = Step("windowed", (-1,), 0, 0, False)
SESSIONS = Whole(  # rows of a part that is ahead of the source's watermark
    (Origin("parts", 0, (*[(0, 0, 0)] * 2, *[(3, 1, 0)] * 2, *[(0, 0, 0)] * 3, (4, 0, 0), *[(0, 0, 0)] * 3, (1, 0, 0)),
            parts=(((0, 1),), ((0, 1),), ((0, 1), (1, 2), (7, 3)), ((0, 1), (1, 2)), ((0, 1),))),),
    False, True, (Step("windowed", (-1,), 0, 2, False),), "inline", (Life(2, 3),),
)  # fmt: skip
MANY_FILES = Whole(
    (Origin("items", 0, ((0, 0, 0),)), Origin("json", 0, tuple((0, 0, v) for v in range(30)))),
    True, True, (Step("united", (1, 3), 0, 0, False),), "threads", (Life(1, 3),), (("batch_rows", 2), ("threads", 2)),
)  # fmt: skip
ROW_GROUPS = Whole(
    (Origin("items", 0, ((0, 0, 0),)), Origin("parquet", 0, tuple((t, 0, 0) for t in range(5)), 5)),
    True, True, (Step("united", (1, 3), 0, 0, False),), "inline", (Life(1, 1),),
)  # fmt: skip
FOUND = {
    "one row that stays, and some of a row group": ROW_GROUPS,
    "parts wait for another of the same source on Spark": parts("inline", True, {0: [0], 1: [0, 0], 7: [0, 0, 0]}),
    "a part that comes last": parts("inline", True, {0: [0, 3], 1: [0, 5]}, {7: [1, 1, 9]}, {0: [4, 9], 1: [8, 20]}),
    "rows that wait while the next files are read": MANY_FILES,
    "parts wait for another of the same source": parts("threads", True, {0: [0], 1: [0, 0], 7: [0, 0, 0]}),
    "sessions over parts": SESSIONS,
    "a part that gives nothing at first": parts("sequential", False, {0: [0]}, {0: [0]}, {0: [2], 1: [0, 0]}),
}
"""Flows that were found, made as small as they can be."""


@pytest.mark.parametrize("name", FOUND)
def test_found_before(name: str) -> None:
    check(FOUND[name])


@pytest.mark.slow
@pytest.mark.parametrize("block", range(9))
def test_many(block: int) -> None:
    hold(200, FIRST, block)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("block", range(4))
def test_many_on_spark(block: int, spark: Any) -> None:
    hold(50, FIRST, 100 + block, session=spark, engines=("spark",))
