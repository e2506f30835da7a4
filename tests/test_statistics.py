"""What happened is counted since the start: a period is the difference of two descriptions."""

from __future__ import annotations

from dataclasses import replace

from penstock.statistics import FlowStats, OperatorStats, ReplicaStats, WorkerStats

WORK = OperatorStats(
    10,
    100,
    50,
    4.0,
    3.0,
    0.5,
    below_taken=0.25,
    errors=2,
    name="work",
    came=120,
    full=(1.0,),
    shards={0: (60, 2.0), 1: (40, 1.0)},
    replicas=(ReplicaStats("work#0", 10, 100, 4.0, 1, 0.5),),
    queued=(2,),
    rows_queued=20,
    keys=7,
)
BEFORE = FlowStats(
    5.0,
    5.0,
    100,
    {"out": 50},
    10,
    8,
    epochs=1,
    operators={"work": WORK},
    workers=(WorkerStats(0, "busy", "work", 0.5, 4.0),),
    waited=1.0,
    computed=3.0,
)
LATER = replace(
    WORK,
    batches=15,
    rows_in=160,
    rows_out=70,
    wall=6.0,
    cpu=4.5,
    below_full=0.75,
    below_taken=0.5,
    errors=3,
    came=170,
    full=(1.5,),
    shards={0: (70, 2.5), 1: (40, 1.0), 2: (10, 0.5)},
    replicas=(ReplicaStats("work#0", 14, 150, 5.5, 0, 0.75), ReplicaStats("work#1", 1, 10, 0.5, 3, 0.0)),
    queued=(1,),
    rows_queued=10,
    keys=9,
)
NOW = FlowStats(
    9.0,
    9.0,
    150,
    {"out": 70, "other": 5},
    15,
    14,
    epochs=3,
    operators={"work": LATER, "new": OperatorStats(1, 10, 10, 0.5, name="new")},
    workers=(WorkerStats(0, "idle", None, 0.0, 6.0), WorkerStats(1, "busy", "work", 0.25, 1.0)),
    waited=1.5,
    computed=5.0,
)


def test_a_period_is_the_difference_of_two():
    done = NOW.since(BEFORE)
    assert (done.at, done.seconds, done.rows_in, done.batches_in, done.batches_out) == (9.0, 4.0, 50, 5, 6)
    assert (done.epochs, done.rows_out, done.waited, done.computed) == (2, {"out": 20, "other": 5}, 0.5, 2.0)
    assert [each.busy_seconds for each in done.workers] == [2.0, 1.0]
    assert done.worked == 2.5
    assert done.rate == 70 / 4.0


def test_a_period_counts_what_was_done_in_it_and_stands_as_at_its_end():
    done = NOW.since(BEFORE).operators["work"]
    assert (done.batches, done.rows_in, done.rows_out, done.wall, done.cpu, done.errors) == (5, 60, 20, 2.0, 1.5, 1)
    assert done.blocked == {"full": 0.25, "lock": 0.25, "wait": 0.5}
    assert (done.came, done.full) == (50, (0.5,))
    assert done.shards == {0: (10, 0.5), 1: (0, 0.0), 2: (10, 0.5)}
    first, second = done.replicas
    assert (first.batches, first.rows, first.seconds, first.full, first.queued) == (4, 50, 1.5, 0.25, 0)
    assert second == LATER.replicas[1]
    assert (done.queued, done.rows_queued, done.keys) == ((1,), 10, 9)


def test_an_operator_that_was_not_there_or_has_come_again_did_all_it_counts():
    assert NOW.since(BEFORE).operators["new"] == NOW.operators["new"]
    again = replace(WORK, batches=1, rows_in=3)
    assert again.since(WORK) is again


def test_time_that_is_shared_out_anew_was_not_given_back():
    assert replace(WORK, wall=3.0, cpu=1.0).since(WORK).wall == 0.0
    assert replace(WORK, wall=3.0, cpu=1.0).since(WORK).cpu == 0.0


def test_two_periods_are_as_long_as_both_together():
    between = replace(BEFORE, at=6.0, rows_in=120)
    parts = between.since(BEFORE), NOW.since(between)
    whole = NOW.since(BEFORE)
    assert sum(part.rows_in for part in parts) == whole.rows_in
    assert sum(part.seconds for part in parts) == whole.seconds
    assert sum(part.operators["work"].wall for part in parts) == whole.operators["work"].wall


def test_a_period_and_what_was_before_it_add_up():
    whole = BEFORE.plus(NOW.since(BEFORE))
    assert replace(whole, operators={}, workers=()) == replace(NOW, operators={}, workers=())
    found = whole.operators["work"]
    assert replace(found, replicas=()) == replace(LATER, replicas=())
    assert whole.operators["new"] == NOW.operators["new"]


def test_they_are_shown_in_a_few_lines():
    """On Spark a keyed operator has 256 shards, of which each was shown, twice."""
    keyed = OperatorStats(1, 5, 5, 0.123456, name="count", shards=dict.fromkeys(range(256), (1, 0.1)), table=(0,) * 256)
    shown = repr(replace(NOW, operators={"count": keyed})).splitlines()
    assert len(shown) == 2
    assert shown[0].startswith("FlowStats(at=9.0, seconds=9.0, rows_in=")
    operator = "OperatorStats(batches=1, rows_in=5, rows_out=5, wall=0.1235, name='count', "
    assert shown[1] == f"  {operator}shards=<256 of them>, table=<256 of them>)"


def test_epochs_add_up_to_a_run():
    first = FlowStats(1.0, 0.5, 100, {"out": 10}, epochs=1, split={"read": 0.5}, attempts=2, epoch=7, tasks=2)
    second = FlowStats(3.0, 0.25, 50, {"other": 5}, epochs=1, split={"user": 0.25}, attempts=1, epoch=8, tasks=4)
    work = OperatorStats(1, 100, 50, name="work", shards={0: (60, 2.0)}, waits=(1, 1.0, 2.0, 0.5), state_bytes=9)
    first = replace(first, operators={"work": work, "gone": OperatorStats(1, 5, name="gone")})
    work = OperatorStats(1, 50, 25, name="work", shards={1: (40, 1.0)}, waits=(2, 1.0, 2.0, 0.5), state_bytes=4)
    whole = FlowStats().plus(first).plus(replace(second, operators={"work": work}))
    assert (whole.at, whole.seconds, whole.rows_in, whole.epochs, whole.attempts) == (3.0, 0.75, 150, 2, 3)
    assert (whole.rows_out, whole.split) == ({"out": 10, "other": 5}, {"read": 0.5, "user": 0.25})
    assert (whole.epoch, whole.tasks, whole.state_bytes) == (8, 4, 4)
    found = whole.operators["work"]
    assert (found.rows_in, found.shards, found.waits) == (150, {0: (60, 2.0), 1: (40, 1.0)}, (3, 2.0, 4.0, 1.0))
    assert whole.operators["gone"].rows_in == 5
