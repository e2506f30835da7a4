"""One situation of the threads engine in which each policy decides as its paper says, and no other one does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock as ps
from penstock.threads.policies import POLICIES, LongestQueue, Policy, QueueSizeThrottling, RandomChoice, by_name
from tests.threads.policies.driving import Clock, Stage, on_stage

COSTS = {"p": 1e-6, "q": 1e-6, "l": 1e-6, "m": 1e-6, "v": 1e-6, "c": 1e-6, "e": 1e-4, "r": 8e-5, "x": 1e-6}
SIZES = [40, *[10] * 5, *[100] * 3, 10, 10]
"""The first batch is larger, so that who has run it alone has not run least; the last are larger than the room for what
comes of them. Two more are read and not in the flow yet."""


def policy(name: str) -> Policy:
    """Make a policy; QST with a capacity that fits the few rows of the situation."""
    return QueueSizeThrottling(capacity=400.0) if name == "qst" else by_name(name)


@pytest.fixture(scope="module")
def situation() -> Iterator[Stage]:
    """Make a flow with nine branches, and run them until each is the best of one policy."""
    clock = Clock(tick=1e-7)
    flow = ps.Flow("situation")
    rows = list(range(sum(SIZES)))
    source = flow.source("in", ps.read.items(rows, schema=int))
    for name, cost in COSTS.items():
        stream = source.map(clock.work(cost), name=name)
        if name == "x":
            stream.map(clock.work(1e-6), name="y").sink("z")
        else:
            stream.sink(f"{name}_out")
    # With a thread of its own, which makes two: an element with one worker takes fewer batches in.
    source.threaded().sink("own")
    stage = Stage(flow, rows, SIZES, clock, workers=1, capacity=8)
    stage.submit()
    stage.submit()
    with on_stage(stage):

        def bring_in(count: int) -> None:
            for _ in range(count):
                stage.run("in")
                stage.submit()  # its place is free

        def run(name: str, count: int) -> None:
            stage.run(*[name] * count)

        bring_in(3)
        run("c", 2)
        run("c_out", 2)
        clock.now += 10.0  # a new window begins
        run("l", 2)  # the least recently run, from here on
        run("l_out", 2)
        run("m", 1)  # has the oldest rows, as v has, and ran before it
        run("m_out", 1)
        run("v", 1)  # has the oldest batch, as m has, and is later in the flow
        run("v_out", 1)
        bring_in(3)
        run("x", 4)
        run("y", 4)
        run("z", 3)  # the last in the flow, with one batch waiting
        run("p", 6)  # the first in the flow, but its outputs have piled up
        run("p_out", 2)
        run("q", 2)  # the first in the flow whose outputs have not
        run("q_out", 2)
        run("e", 6)  # will take longest for what waits, but has little room below
        run("e_out", 2)
        run("r", 6)  # will be able to run longest
        run("r_out", 6)
        run("c", 1)  # has done least in this window
        run("c_out", 1)
        bring_in(3)
        yield stage


EXPECTED = {
    "least-recent": "l",
    "longest-queue": "in",
    "min-latency": "m",
    "max-running-time": "r",
    "qst": "q",
    "lp": "z",
    "et": "e",
    "ct": "c",
    "virtual-time": "v",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_it_decides_as_its_paper_says_and_no_other_does(situation: Stage, name: str) -> None:
    situation.look()
    assert situation.now is not None
    ready, moment = situation.now
    choices = {each: ready[policy(each).choose(ready, moment)].name for each in POLICIES if each != "random"}
    assert choices[name] == EXPECTED[name]
    assert [each for each, chosen in choices.items() if chosen == EXPECTED[name]] == [name]


def test_random_takes_any_of_them(situation: Stage) -> None:
    situation.look()
    assert situation.now is not None
    ready, moment = situation.now
    assert {ready[RandomChoice().choose(ready, moment)].name for _ in range(2_000)} == {view.name for view in ready}


def test_without_a_ready_source_the_longest_queue_is_one_with_the_most_rows(situation: Stage) -> None:
    situation.look()
    assert situation.now is not None
    ready, moment = situation.now
    inner = [view for view in ready if not view.is_source]
    longest = inner[LongestQueue().choose(inner, moment)]
    assert longest.name in ("m", "v")
    assert longest.rows_waiting == max(view.rows_waiting for view in inner) == sum(SIZES[1:9])
