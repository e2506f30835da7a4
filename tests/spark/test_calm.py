"""Runs on Spark are calm: at a constant load hardly anything changes once they are settled, and more load is answered.

Played on a made-up machine (`steady`), whose epochs vary by 15 to 30 %; one in 500 takes ten times as long.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.elastic.decisions import from_json, replay, to_json
from penstock.elastic.shard_balance import imbalance
from penstock.rows.keys import SHARDS
from penstock.spark.pilot import UserLimits

from ..in_turn import few_of, one_of_each
from .steady import Costs, Steady

MINUTE, FIVE_MINUTES = 60.0, 300.0

HEAVY = Costs(per_row=6e-5)
LOADS: dict[str, dict[str, Any]] = {
    "one task will do": {"rate": 8_000},
    "nearly worth a second task": {"rate": 60_000},
    "worth a second task": {"rate": 120_000},
    "expensive rows": {"rate": 20_000, "costs": HEAVY},
    "four cores": {"rate": 40_000, "costs": HEAVY, "cores": 4},
    "a latency target": {"rate": 60_000, "limits": UserLimits(latency=2.0)},
}
TARGETS = [0.2, 0.5, 2.0]
"""The first cannot be met by any of the loads, the second by some."""


def steady(load: str, noise: float, seed: int, **other: Any) -> Steady:
    settings = {**LOADS[load], **other}
    rate = settings.pop("rate")
    return Steady(lambda at: rate, noise=noise, seed=seed, **settings)


def most_in_five_minutes(times: list[float]) -> int:
    """Return how many of these fall into five minutes, at the worst."""
    return max((sum(0 <= later - first < FIVE_MINUTES for later in times) for first in times), default=0)


@pytest.mark.parametrize(("load", "noise"), one_of_each(LOADS, [0.3, 0.15]))
def test_a_constant_load_changes_hardly_anything_once_settled(load, noise):
    """Before there was a cost to a change, ten minutes of these had between 20 and 4,000 of them."""
    run = steady(load, noise, seed=3).run(3 * MINUTE)
    assert len(run.changes()) <= 12
    assert most_in_five_minutes([at for at, _ in run.changes(since=MINUTE)]) <= 1
    assert replay(from_json(to_json(line)) for line in run.pilot.decisions).same


@pytest.mark.parametrize(("target", "load"), one_of_each(TARGETS, ["nearly worth a second task", "four cores"]))
def test_a_target_does_not_make_it_restless(load, target):
    """A tight one made epochs so small that the run fell behind for ever, and tasks and waits went up and down."""
    run = steady(load, 0.3, seed=1, limits=UserLimits(latency=target)).run(3 * MINUTE)
    assert most_in_five_minutes([at for at, _ in run.changes(since=MINUTE)]) <= 1
    assert run.waiting < 10 * LOADS[load]["rate"]  # less than ten seconds' rows, as after one that took long
    assert replay(from_json(to_json(line)) for line in run.pilot.decisions).same


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("noise", [0.15, 0.3])
@pytest.mark.parametrize("target", [None, *TARGETS])
@pytest.mark.parametrize("load", LOADS)
def test_half_an_hour_at_a_constant_load(load, target, noise, seed):
    given = {} if target is None else {"limits": UserLimits(latency=target)}
    run = steady(load, noise, seed, **given).run(30 * MINUTE)
    assert most_in_five_minutes([at for at, _ in run.changes(since=MINUTE)]) <= 1
    assert run.waiting < 10 * LOADS[load]["rate"]


@pytest.mark.parametrize("seed", few_of(range(3), 1))
def test_a_load_that_one_task_cannot_do_is_answered_at_once(seed):
    """From 3,000 to 300,000 rows a second of 5 us each, after the run is settled."""
    begins = 2 * MINUTE
    run = Steady(lambda at: 3_000 if at < begins else 300_000, noise=0.2, seed=seed).run(begins + 5)
    epochs = [tasks for at, tasks in run.tasks if at > begins]
    # The first epoch that begins after the load has risen has rows from before, and the next may be a short one.
    assert epochs[2] == 2
    assert 0 not in epochs[2:]


@pytest.mark.parametrize("seed", few_of(range(3), 1))
def test_a_doubled_load_is_answered_within_two_epochs_that_show_it(seed):
    """Of 60 us a row, 12,000 rows a second are 0.7 of what one task can do, and 24,000 are too many."""
    begins = 2 * MINUTE
    run = Steady(lambda at: 12_000 if at < begins else 24_000, costs=HEAVY, noise=0.2, hiccups=0, seed=seed, cores=4)
    run.run(begins + 20)
    after = [tasks for at, tasks in run.tasks if at > begins]
    assert min(after[3:]) >= 2
    assert run.waiting < 24_000  # less than a second's rows


def test_tasks_are_given_back_where_fewer_rows_come():
    """At a constant load they are not: what is expected of fewer tasks may be long ago."""
    falls = 2 * MINUTE
    run = Steady(lambda at: 24_000 if at < falls else 2_000, costs=HEAVY, noise=0.2, hiccups=0, seed=1, cores=4)
    run.run(falls)
    before = run.tasks[-1][1]
    assert before >= 2
    run.run(falls + 8 * MINUTE)
    assert run.tasks[-1][1] < before


def test_a_change_of_tasks_is_one_decision_with_its_table():
    run = steady("expensive rows", 0.2, seed=1).run(MINUTE)
    changes = [line for _, line in run.changes() if line.what == "tasks"]
    assert changes
    for line in changes:
        (table,) = line.tables
        assert (table.operator, len(table.tasks)) == ("counted", SHARDS)
        assert max(table.tasks) + 1 == line.after
        moved = [other.what for _, other in run.changes() if other.epoch == line.epoch]
        assert moved == ["tasks"]
        loads = tuple(run.weights)
        assert imbalance(loads, table.tasks, int(line.after or 0)) <= 1.1


def test_while_a_run_is_young_the_table_is_made_even():
    """603,000 and 397,000 rows an epoch are 1.2 of the mean, and stayed so for ever."""
    run = Steady(lambda at: 100_000, costs=Costs(per_row=1e-5), noise=0.1, hiccups=0, skew=1.1, seed=5).run(30)
    table = run.pilot.choose(run.limits, 10**6, run.cores, run.epoch + 1, at=run.at).tables["counted"]
    assert imbalance(tuple(run.weights), tuple(table), 2) <= 1.07


def test_so_it_is_where_epochs_are_short():
    """What the busier of two tasks has too much is 3 ms of 32 here: little, but in each epoch."""
    limits = UserLimits(tasks=2)
    run = Steady(lambda at: 400_000, costs=Costs(per_row=1e-6), noise=0.1, hiccups=0, skew=1.1, seed=6, limits=limits)
    table = run.run(30).pilot.choose(limits, 10**5, run.cores, run.epoch + 1, at=run.at).tables["counted"]
    assert imbalance(tuple(run.weights), tuple(table), 2) <= 1.05
    assert len(run.changes()) <= 2
