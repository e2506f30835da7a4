"""Back-pressure is shown at its cause, not on the victims above it."""

from __future__ import annotations

from penstock.dashboard.graph import Reached, pressure_in_epochs, pressure_in_queues

EDGES = [("in", "parse"), ("parse", "slow"), ("slow", "write"), ("parse", "side")]
CHAIN = Reached({"edges": [{"from": a, "to": b} for a, b in EDGES]})


def causes(found):
    return [each["operator"] for each in found["causes"]]


def test_the_last_full_queue_is_the_cause_and_those_above_are_held():
    queues = {"in": 0, "parse": 16, "slow": 15, "write": 1, "side": 0}
    found = pressure_in_queues(CHAIN, queues, 16, 1.0, {})
    assert causes(found) == ["slow"]
    assert found["held"] == {"in": "slow", "parse": "slow"}
    assert "15 of 16" in found["causes"][0]["why"]


def test_two_branches_may_each_have_a_cause():
    found = pressure_in_queues(CHAIN, {"parse": 16, "write": 16, "side": 16}, 16, 1.0, {})
    assert sorted(causes(found)) == ["side", "write"]


def test_of_operators_that_are_run_as_one_the_cause_is_the_one_that_takes_the_time():
    busy, one = {"parse": 0.1, "slow": 0.1, "write": 0.8, "side": 0.9}, {"slow": "slow", "write": "slow"}
    found = pressure_in_queues(CHAIN, {"parse": 16, "slow": 15, "write": 0}, 16, 1.0, busy, one)
    assert causes(found) == ["write"]
    assert found["held"] == {"in": "write", "parse": "write", "slow": "write"}


def test_nothing_is_said_while_queues_have_room():
    assert pressure_in_queues(CHAIN, {"parse": 5, "slow": 9}, 16, 0.5, {"slow": 1.0}) == {"causes": [], "held": {}}


def test_a_crowded_element_without_full_queues_is_held_back_by_its_busiest_operator():
    found = pressure_in_queues(CHAIN, {"parse": 3, "slow": 3}, 16, 0.95, {"parse": 0.1, "slow": 0.9})
    assert causes(found) == ["slow"]
    assert "90%" in found["causes"][0]["why"]


def test_epochs_are_behind_when_more_waits_than_one_takes():
    busy = {"parse": 0.2, "slow": 0.6}
    assert causes(pressure_in_epochs(CHAIN, 5000, 1000, busy)) == ["slow"]
    assert causes(pressure_in_epochs(CHAIN, 900, 1000, busy)) == []
    assert causes(pressure_in_epochs(CHAIN, None, 1000, busy)) == []
    assert "larger epochs" in pressure_in_epochs(CHAIN, 5000, 1000, busy, 0.8)["causes"][0]["why"]
