"""Decisions on the page: numbered, at the time of day, with the statistics of their step."""

from __future__ import annotations

from penstock.clock import as_real
from penstock.dashboard.decisions import KEPT, DecisionBook, wall_time
from penstock.elastic.decisions import Decision, Pilot
from penstock.elastic.shard_balance import HotKey, ShardBalance, ShardKeys, ShardStatistics


def hot_shard() -> tuple[Decision, ...]:
    keys = (ShardKeys(0, (HotKey("ann@example.org", 0.9),)),)
    pilot, started = Pilot.begin("track/shards", ShardBalance())
    statistics = ShardStatistics((10.0, 0.1, 0.1, 0.1), (0, 1, 1, 0), 2, (), keys)
    return (started, *pilot.step(statistics)[2])


def test_each_decision_has_the_statistics_of_its_step():
    book = DecisionBook()
    for line in hot_shard():
        book.add(line, 5.0)
    found = book.after(0)
    assert [each["what"] for each in found] == ["start", "shard", "hot_shard"]
    assert [each["number"] for each in found] == [0, 1, 2]
    for number in (1, 2):
        assert book.get(number)["seen"]["loads"] == [10.0, 0.1, 0.1, 0.1]
    assert book.after(2) == found[2:]
    assert book.get(99) is None


def test_steps_that_changed_nothing_are_counted_only():
    book = DecisionBook()
    for step in range(3):
        book.add(Decision("c", step, "hold", statistics={}), 1.0)
    assert book.after(0) == []
    assert (book.total, book.held) == (0, 3)


def test_a_book_is_bounded():
    book = DecisionBook()
    for step in range(KEPT + 50):
        book.add(Decision("c", step, "tasks", "", 1, 2, "because", statistics={"rows": step}), 1.0)
    assert book.total == KEPT + 50
    assert book.get(0) is None
    assert book.after(0)[-1]["number"] == KEPT + 49


def test_times_of_engines_become_times_of_day():
    def at(time):
        return wall_time(Decision("c", 1, "tasks", time=time), lambda: 2_000_000_000.0, lambda: 500.0)

    assert at(490.0) == 2_000_000_000.0 - as_real(10)
    assert at(1_999_999_990.0) == 1_999_999_990.0
    assert at(None) == 2_000_000_000.0
