"""Check virtual time."""

from penstock.lab.sim.events import Events


def test_things_happen_in_order_of_time_then_of_scheduling() -> None:
    events, seen = Events(), []
    for delay, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (3.0, "d")):
        events.after(delay, lambda argument: seen.append((events.now, argument)), name)
    events.run(2.5)
    assert seen == [(1.0, "a"), (1.0, "b"), (2.0, "c")]
    assert events.now == 2.5
    events.run(3.0)
    assert seen[-1] == (3.0, "d")


def test_what_happens_may_schedule_more() -> None:
    events, seen = Events(), []
    events.every(0.5, lambda: seen.append(events.now))
    events.run(2.0)
    assert seen == [0.5, 1.0, 1.5, 2.0]
