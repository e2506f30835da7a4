"""Lists in and out, scripted time, order."""

from __future__ import annotations

import datetime as dt

import pytest

import penstock as ps
from penstock.testing import Script, assert_in_order, run_list

from ..how import how


def windows():
    flow = ps.Flow("windows")
    payments = flow.source("payments", ps.read.items([], schema={"at": int, "user": str}), time="at", slack=2)
    payments.key_by("user").window(10).count().sink("counts")
    return flow


@pytest.mark.parametrize("engine", ["sequential", "threads"])
def test_a_flow_on_a_list(engine):
    out = run_list(
        windows(), [{"at": 1, "user": "a"}, {"at": 3, "user": "b"}, {"at": 4, "user": "a"}], on=how(engine)["on"]
    )
    assert [tuple(row) for row in out] == [("a", 0, 10, 2), ("b", 0, 10, 1)]


def test_a_stage_on_lists():
    assert run_list(lambda s: s.map(lambda n: n * 2), [1, 2]) == [2, 4]
    assert run_list(lambda s: s.split(lambda n: n > 1), [1, 2]) == {"out0": [2], "out1": [1]}
    assert run_list(lambda a, b: a.union(b), {"a": [1], "b": [2]}) == [1, 2]


def test_rows_must_be_those_of_the_sources():
    flow = windows()
    with pytest.raises(ps.FlowError, match="the flow has the sources payments"):
        run_list(flow, {"calls": []})
    flow.source("calls", [1]).sink("out")
    with pytest.raises(ps.FlowError, match="give the rows of each, by name"):
        run_list(flow, [])


def test_a_script_says_what_each_moment_brings():
    script = Script(windows())
    assert script.send({"at": 1, "user": "a"}, {"at": 11, "user": "a"}) == []  # the slack keeps the window open
    assert [tuple(row) for row in script.time(10)] == [("a", 0, 10, 1)]
    assert list(script.state("window")) == ["a"]
    assert [tuple(row) for row in script.end()] == [("a", 10, 20, 1)]


def test_a_script_has_a_time_of_day():
    source = ps.Flow("arrivals").source("in", ps.read.items([{"k": 1}]), time=ps.arrival)
    script = Script(source.window("1 s").count().sink("out"))
    assert script.send({"k": 1}) == script.wait(0.75) == script.send({"k": 2}) == []
    assert [row.count for row in script.wait(0.25)] == [2]
    script.send({"k": 3})
    assert [row.count for row in script.time(dt.datetime(1970, 1, 1, 0, 0, 9, tzinfo=dt.UTC))] == [1]


def test_a_script_has_a_clock_for_sources_with_a_rate():
    flow = ps.Flow("rated")
    flow.source("ticks", ps.read.rate(10)).map(lambda row: row.value).sink("out")
    script = Script(flow)
    assert script.wait(0.25) == [0, 1]
    assert script.wait(0.25) == [2, 3, 4]
    with pytest.raises(ValueError, match="does not go back"):
        script.wait(-1)


def test_a_script_wants_to_know_which_source():
    flow = windows()
    flow.source("calls", [1]).sink("calls out")
    script = Script(flow)
    with pytest.raises(ps.FlowError, match="payments, calls: name one"):
        script.send(1)
    with pytest.raises(ps.FlowError, match="has no event time"):
        script.time(1, source="calls")
    assert script.send(1, source="calls") == {"counts": [], "calls out": [1]}


def test_order_by_field_function_and_key():
    rows = [{"at": 1, "k": "a"}, {"at": 3, "k": "b"}, {"at": 2, "k": "a"}]
    assert_in_order([1, 2, 2])
    assert_in_order(rows, "at", key="k")
    assert_in_order(rows, lambda row: 0)
    with pytest.raises(AssertionError, match="row 2 goes back behind row 1: 2 comes after 3"):
        assert_in_order(rows, "at")
    with pytest.raises(AssertionError, match="of key 'a' goes back"):
        assert_in_order([*rows, {"at": 0, "k": "a"}], "at", key="k")
    with pytest.raises(AssertionError, match="repeats"):
        assert_in_order([1, 1], strict=True)
