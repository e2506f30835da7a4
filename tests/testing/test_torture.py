"""The hostile harness: what is right passes, and each planted bug is found."""

from __future__ import annotations

import random
import threading
from typing import Any

import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.testing import torture
from penstock.testing.torture import Trial, cuts
from penstock.threads import ports

ROWS = [{"at": at, "user": f"u{at % 2}", "amount": float(at)} for at in (1, 2, 4, 7, 11)]
SEEN: list[object] = []


def total(state, row):
    state += row.amount
    return state, {"user": row.user, "total": state}


def scanned(stream):
    return stream.key_by("user").scan(total, 0.0, schema={"user": str, "total": float})


class Pairs(ps.Coroutine):
    """Give rows out two by two."""

    async def process(self, ctx):
        while await ctx.wait_for_all({0: 2}):
            await ctx.emit((ctx.pop()["at"], ctx.pop()["at"]))
        while ctx.len():
            await ctx.emit((ctx.pop()["at"], None))


class Silence(ps.Process):
    def on_row(self, row, context):
        if context.state is not None:
            context.cancel_timer(context.state)
        context.state = context.time + 3
        context.set_timer(context.state)

    def on_timer(self, time, context):
        context.emit((context.key, time))
        context.state = None


@pytest.mark.parametrize(
    "stage",
    [
        scanned,
        lambda s: s.filter(pc.field("amount") > 1).flat_map(lambda row: [row.user] * 2),
        lambda s: s.key_by("user").window(4).aggregate(n=ps.agg.count()),
        lambda s: s.key_by("user").process(Silence),
        lambda s: ps.operate(Pairs, s),
        lambda s: s.map(lambda row: row.amount).union(s.map(lambda row: row.user)),
        lambda s: s.split(lambda row: row.amount > 3),
        lambda s: s.lookup({"a": 1}, on="user"),
        lambda s: s.key_by("user").pattern(ps.step("two", lambda row: True, times=2), within=9),
    ],
    ids=["scan", "stateless", "window", "process", "co-routine", "fan-in", "split", "lookup", "pattern"],
)
def test_what_is_right_passes(stage):
    assert torture(stage, ROWS, time="at", most=16)


def test_rows_arrive_at_one_moment():
    source = ps.Flow("arrivals").source("in", ps.read.items(ROWS), time=ps.arrival)
    out = torture(source.key_by("user").window("1 s").count().sink("out"), ROWS, most=8)
    assert sum(row.count for row in out) == len(ROWS)


def test_rows_of_two_streams_come_in_their_order():
    rows = {"left": [{"at": 1}, {"at": 4}], "right": [{"at": 2}, {"at": 3}]}
    out = torture(lambda left, right: left.union(right), rows, order_by="at")
    assert [row.at for row in out] == [1, 2, 3, 4]


def test_a_flow_is_tested_with_rows_of_its_own_and_writes_nothing(tmp_path):
    flow = ps.Flow("real")
    payments = flow.source("payments", ps.read.json(str(tmp_path / "none"), schema={"user": str, "amount": float}))
    scanned(payments).sink("totals", ps.write.parquet(str(tmp_path / "out")))
    assert [tuple(row) for row in torture(flow, [{"user": "a", "amount": 1.0}] * 2)] == [("a", 1.0), ("a", 2.0)]
    assert list(tmp_path.iterdir()) == []


def test_state_outside_of_the_state_is_found():
    def counted():
        seen = []

        def count(state, row):
            seen.append(row)
            return state, len(seen)

        return count

    with pytest.raises(AssertionError, match=r"state saved and read again after row \d"):
        torture(lambda s: s.scan(counted(), 0), ROWS)


class Attribute(ps.Coroutine):
    """Remembers in an attribute what belongs in ctx.state."""

    def __init__(self):
        self.sum = 0.0

    async def process(self, ctx):
        while await ctx.wait_for_all({0: 1}):
            self.sum += ctx.pop().amount
            await ctx.emit(self.sum)


def test_an_attribute_of_a_co_routine_is_found():
    with pytest.raises(AssertionError, match="state saved and read again"):
        torture(lambda s: ps.operate(Attribute(), s), ROWS)


class Local(ps.Coroutine):
    """Remembers in a local variable, which lives on where nothing is saved."""

    async def process(self, ctx):
        total = 0.0
        while await ctx.wait_for_all({0: 1}):
            total += ctx.pop().amount
            await ctx.emit(total)


def test_a_co_routine_is_begun_again_at_each_wait_unless_it_never_is():
    with pytest.raises(AssertionError, match="state saved and read again"):
        torture(lambda s: ps.operate(Local(), s, restartable=True), ROWS)
    assert torture(lambda s: ps.operate(Local(), s), ROWS, restarts=False)


def remember_globally(row):
    SEEN.append(row)
    return len(SEEN)


def test_what_is_kept_in_a_module_is_found():
    SEEN.clear()
    with pytest.raises(AssertionError, match="something else comes out"):
        torture(lambda s: s.map(remember_globally), ROWS)


def test_a_replay_alone_finds_what_no_restart_does():
    """Forgotten whenever the flow begins, and so never seen by a cut or a restart."""

    class Forgetful:
        """Pickles as if it had seen nothing; within a process it remembers."""

        def __init__(self):
            self.seen = {}

        def __call__(self, row):
            again = row.at in self.seen
            self.seen[row.at] = True
            return again

        def __reduce__(self):
            return Forgetful, ()

    with pytest.raises(AssertionError, match="thrown away and processed again"):
        torture(lambda s: s.map(Forgetful()), ROWS)


def test_a_function_of_the_batch_is_found():
    def share(batch):
        amounts = batch.column("amount")
        return batch.set_column(2, "amount", pc.divide(amounts, pc.sum(amounts)))

    with pytest.raises(AssertionError, match="the input cut in batches of"):
        torture(lambda s: s.map_batches(share), ROWS)


def test_a_batch_that_is_put_in_another_order_is_found():
    def backwards(batch):
        return batch.take(list(range(batch.num_rows))[::-1])

    with pytest.raises(AssertionError, match="the input cut in batches of"):
        torture(lambda s: s.map_batches(backwards), ROWS)


def test_rows_given_out_in_any_order_are_found():
    def scattered(row):
        return random.sample(range(20), 20)

    with pytest.raises(AssertionError, match="something else comes out"):
        torture(lambda s: s.flat_map(scattered), ROWS)


def test_an_engine_that_loses_what_a_full_port_refused_is_found(monkeypatch):
    push = ports.PortScheduler.push
    monkeypatch.setattr(ports.PortScheduler, "push", lambda *given: push(*given) or True)
    monkeypatch.setattr(Trial, "run", _without_waiting(Trial.run))
    with pytest.raises(AssertionError, match="something else comes out"):
        torture(scanned, ROWS)


def _without_waiting(run):
    """A batch that was lost is never published, and nobody should wait for it."""

    def wrapped(self, batches, **options):
        self._element.drain = lambda: None
        run(self, batches, **options)

    return wrapped


def test_an_engine_that_breaks_the_order_of_keys_is_found(monkeypatch):
    from penstock.threads.partitioned_station import PartitionedStation

    merged = PartitionedStation._merged

    def shuffled(self, results):
        made = merged(self, results)
        return {port: chunk.select(chunk.positions[0].argsort()[::-1]) for port, chunk in made.items()}

    # Two keys in one batch: parts come together in the wrong order.
    monkeypatch.setattr(PartitionedStation, "_merged", shuffled)
    rows = [{"user": f"u{n}", "amount": 1.0} for n in range(6)]
    with pytest.raises(AssertionError, match="4 workers at once"):
        torture(lambda s: scanned(s.flat_map(lambda row: [row] * 2, schema={"user": str, "amount": float})), rows)


def test_ports_do_refuse():
    from penstock.plan.plan import make_plan
    from penstock.testing.kit import flow_under_test

    def twice(stream: Any) -> Any:
        return scanned(stream).key_by("user").scan(lambda n, row: (n + 1, row), 0, name="again")

    trial = Trial(make_plan(flow_under_test(twice, ROWS, {})))
    trial.run(trial.parts([("in", row) for row in ROWS]))
    trial.close()
    assert trial.primitives.refused >= 2  # a queue each; the sink is run with its operator
    assert len(trial.results["out"]) == len(ROWS)


def test_state_that_cannot_be_saved_is_named():
    def locked(state, row):
        return threading.Lock(), row

    with pytest.raises(AssertionError, match="operator 'locked': its state cannot be saved"):
        torture(lambda s: s.scan(locked, None), ROWS)


class Shy:
    """Loses its count when it is saved."""

    def __init__(self, n=0):
        self.n = n

    def __reduce__(self):
        return Shy, ()


def test_state_that_changes_when_it_is_pickled_is_found():
    with pytest.raises(AssertionError, match="state saved and read again"):
        torture(lambda s: s.scan(lambda state, row: (Shy(state.n + 1), state.n), Shy), ROWS)


def test_a_flow_that_fails_must_fail_in_the_same_way():
    def careful(row):
        if row.at == 7:
            raise ValueError("seven")
        return row.at

    with pytest.raises(ps.OperatorError, match="seven"):
        torture(lambda s: s.map(careful), ROWS)


def test_cuts_are_all_of_them_or_as_many_as_asked_for():
    assert sorted(cuts(3, 4, random.Random(0))) == [(1, 1, 1), (1, 2), (2, 1), (3,)]
    some = list(cuts(40, 10, random.Random(0)))
    assert len(some) == 10
    assert some[:2] == [(40,), (1,) * 40]
    assert all(sum(sizes) == 40 for sizes in some)


def test_bad_arguments_are_explained():
    with pytest.raises(ps.FlowError, match="options are for stages"):
        torture(ps.Flow("f").source("in", [1]).sink("out"), [1], time="at")
    with pytest.raises(ps.FlowError, match="give a flow, or a function"):
        torture("map", [1])
    with pytest.raises(ps.FlowError, match="the stage returned None"):
        torture(lambda s: None, [1])
    with pytest.raises(ValueError, match="most=1"):
        torture(scanned, ROWS, most=1)
