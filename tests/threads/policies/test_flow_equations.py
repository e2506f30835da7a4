"""Cumulative selectivity, on a chain as in Ordered and on graphs."""

from __future__ import annotations

import pytest

from penstock.threads.policies import solve_flow


def test_on_a_chain_it_is_the_product_of_the_selectivities_so_far() -> None:
    flow = solve_flow({"a": 0.5, "b": 4.0, "c": 0.25}, [("a", "b"), ("b", "c")])
    assert [flow[name].inflow for name in "abc"] == [1.0, 0.5, 2.0]
    assert [flow[name].outflow for name in "abc"] == [0.5, 2.0, 0.5]  # cs_1, cs_2, cs_3
    assert [flow[name].outflow_share for name in "abc"] == [0.5 / 3, 2.0 / 3, 0.5 / 3]
    assert [flow[name].order for name in "abc"] == [0, 1, 2]


def test_a_fan_out_sends_everything_both_ways_and_a_fan_in_adds_up() -> None:
    edges = [("in", "left"), ("in", "right"), ("left", "out"), ("right", "out")]
    flow = solve_flow({"out": 1.0, "left": 0.5, "right": 2.0, "in": 1.0}, edges)
    assert flow["left"].inflow == flow["right"].inflow == 1.0
    assert flow["out"].inflow == 2.5
    assert flow["in"].order == 0
    assert flow["out"].order == 3


def test_two_sources_share_the_input_by_their_rates() -> None:
    flow = solve_flow({"a": 1.0, "b": 1.0, "c": 1.0}, [("a", "c"), ("b", "c")], {"a": 30.0, "b": 10.0})
    assert (flow["a"].inflow, flow["b"].inflow, flow["c"].inflow) == (0.75, 0.25, 1.0)


def test_an_operator_that_has_emitted_nothing_does_not_dry_up_the_flow() -> None:
    flow = solve_flow({"filter": 0.0, "next": 1.0}, [("filter", "next")], floor=0.01)
    assert flow["next"].inflow == 0.01


def test_a_cycle_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"cycle.*'a'.*'b'|cycle.*'b'.*'a'"):
        solve_flow({"a": 1.0, "b": 1.0}, [("a", "b"), ("b", "a")])
