"""Calls of a service: attempts, time limits, rates, what is remembered, and how a stop ends waits."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import FlowError, OperatorError
from penstock.operators.calling import Calling, Remembered, Tally, TimedCalls, Turns
from penstock.operators.calls import Cache, Calls, make_calls
from penstock.operators.stateless import Map

from ..patience import PATIENCE

ENGINES = [ps.Sequential(), ps.Threads()]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def stream(rows: list[Any]) -> ps.Stream:
    return ps.Flow("calls").source("in", ps.read.items(rows))


def forever(event: threading.Event) -> Any:
    """Make a function that blocks until an event, at most as long as a test may take."""
    return lambda row: event.wait(PATIENCE) and row


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"timeout": 0}, 'timeout=0; give a time above 0, such as "2 s"'),
            ({"timeout": "soon"}, "timeout='soon' is no duration"),
            ({"retries": -1}, "retries=-1; give a whole number, 0 or more"),
            ({"retries": True}, "retries=True"),
            ({"backoff": 1}, "backoff=1 without retries="),
            ({"retries": 1, "backoff": (1, 2, 3)}, "give a time, or (first, longest)"),
            ({"retries": 1, "backoff": (2, 1)}, "the longest wait is shorter than the first"),
            ({"rate": 0}, "rate=0; give the calls per second"),
            ({"cache": 0}, "cache=0; give a whole number, 1 or more"),
            ({"cache": "all"}, "cache='all'; give a whole number"),
            ({"cache": Cache(1, ttl=0)}, "the ttl of cache=0"),
            ({"cache": Cache(1, by=(1,))}, "give names of fields"),  # type: ignore[arg-type]
            ({"timeout": 1, "waits": False}, "leave out waits=False"),
        ],
    )
    def test_name_the_operator_and_the_fix(self, options: Any, says: str) -> None:
        with pytest.raises(FlowError) as caught:
            stream([1]).map(str, name="ask", **options)
        assert "operator 'ask'" in str(caught.value)
        assert says in str(caught.value)

    def test_of_a_field_that_is_not_there(self) -> None:
        source = ps.Flow("calls").source("in", ps.read.items([], schema={"user": str}))
        with pytest.raises(FlowError, match=r"the cache names the field 'usr'.* did you mean 'user'"):
            source.map(str, cache=Cache(5, by="usr"))

    def test_of_an_option_that_is_not_there(self) -> None:
        with pytest.raises(TypeError, match="no option 'retry'; did you mean 'retries'"):
            stream([1]).map(str, retry=3)  # type: ignore[call-arg]

    def test_of_an_expression(self) -> None:
        import pyarrow.compute as pc

        source = ps.Flow("calls").source("in", ps.read.items([], schema={"n": int}))
        with pytest.raises(FlowError, match="an expression never waits; leave out retries="):
            source.filter(pc.field("n") > 1, retries=2)


def test_pauses_double_up_to_the_longest() -> None:
    calls = make_calls({"retries": 9, "backoff": ("100 ms", "1 s")}, None, "ask")
    assert calls is not None
    assert [calls.pause(n) for n in (1, 2, 3, 4, 5, 5000)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize("on", ENGINES)
@pytest.mark.parametrize("asynchronous", [False, True])
class TestAttempts:
    def build(self, asynchronous: bool, fails: int, asked: list[int], **options: Any) -> ps.Stream:
        lock = threading.Lock()

        def plain(row: int) -> int:
            with lock:
                asked.append(row)
                count = asked.count(row)
            if row == 3 and count <= fails:
                raise ConnectionError(f"attempt {count}")
            return row

        async def waiting(row: int) -> int:
            return plain(row)

        function = waiting if asynchronous else plain
        return stream([1, 2, 3, 4]).map(function, name="ask", backoff="1 ms", **options)

    def test_until_one_is_good(self, on: Any, asynchronous: bool) -> None:
        asked: list[int] = []
        run = ps.run(self.build(asynchronous, 2, asked, retries=2).sink("out"), on=on)
        assert run.results["out"] == [1, 2, 3, 4]
        assert sorted(asked) == [1, 2, 3, 3, 3, 4]

    def test_exhausted(self, on: Any, asynchronous: bool) -> None:
        asked: list[int] = []
        made = self.build(asynchronous, 9, asked, retries=2, on_error="dead_letter")
        made.errors.sink("errors")
        run = ps.run(made.sink("out"), on=on)
        assert run.results["out"] == [1, 2, 4]
        (letter,) = run.results["errors"]
        assert (letter.error, letter.row, letter.attempts) == ("ConnectionError: attempt 3", "3", 3)
        assert asked.count(3) == 3
        if isinstance(on, ps.Threads):
            found = run.stats.operators["ask"]
            assert (found.retries, found.timeouts, found.errors) == (2, 0, 1)

    def test_exhausted_stops_the_flow(self, on: Any, asynchronous: bool) -> None:
        with pytest.raises(OperatorError, match=r"'ask' failed at .*, the last of 3 attempts: ConnectionError: atte"):
            ps.run(self.build(asynchronous, 9, [], retries=2).sink("out"), on=on)


@pytest.mark.parametrize("on", ENGINES)
class TestTimeouts:
    def test_of_a_coroutine(self, on: Any) -> None:
        cancelled: list[int] = []

        async def hangs(row: int) -> None:
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                cancelled.append(row)
                raise

        made = stream([1, 2]).map(hangs, name="ask", timeout="1 ms", retries=1, backoff="1 ms", on_error="dead_letter")
        made.errors.sink("errors")
        run = ps.run(made.sink("out"), on=on)
        assert [(e.error, e.attempts) for e in run.results["errors"]] == [
            ("TimeoutError: no answer within 0.001 s", 2)
        ] * 2
        assert sorted(cancelled) == [1, 1, 2, 2]
        if isinstance(on, ps.Threads):
            found = run.stats.operators["ask"]
            assert (found.retries, found.timeouts, found.errors) == (2, 4, 2)

    def test_of_a_plain_function(self, on: Any) -> None:
        event = threading.Event()
        made = stream([1, 2]).map(forever(event), name="ask", timeout="1 ms", on_error="dead_letter")
        made.errors.sink("errors")
        try:
            run = ps.run(made.sink("out"), on=on)
        finally:
            event.set()
        assert [e.error for e in run.results["errors"]] == ["TimeoutError: no answer within 0.001 s"] * 2

    def test_are_told_from_those_of_the_function(self, on: Any) -> None:
        async def own(row: int) -> None:
            raise TimeoutError("mine")

        made = stream([1]).map(own, name="ask", timeout=PATIENCE, on_error="dead_letter")
        made.errors.sink("errors")
        run = ps.run(made.sink("out"), on=on)
        assert run.results["errors"][0].error == "TimeoutError: mine"
        if isinstance(on, ps.Threads):
            assert run.stats.operators["ask"].timeouts == 0

    def test_take_the_next_attempt(self, on: Any) -> None:
        event, asked = threading.Event(), threading.Semaphore(1)

        def once(row: int) -> int:
            if asked.acquire(blocking=False):
                event.wait(PATIENCE)
            return row

        try:
            # As many attempts as a slow machine needs to answer in time.
            run = ps.run(stream([7]).map(once, timeout=0.05, retries=1000, backoff="1 ms").sink("out"), on=on)
        finally:
            event.set()
        assert run.results["out"] == [7]


def test_calls_left_behind_are_bounded() -> None:
    event, begun, late = threading.Event(), [], []

    def blocks(row: int) -> int:
        begun.append(row)
        event.wait(PATIENCE)
        return row

    timed = TimedCalls(threading.Event(), most_left=2)
    for row in range(4):
        with pytest.raises(TimeoutError, match="within 0.001 s" + (": 2 earlier calls" if row > 1 else "")):
            timed.call(blocks, row, 0.001, lambda: late.append(1))
    assert len(late) == 4
    event.set()
    assert timed.call(lambda row: row, 5, PATIENCE, lambda: None) == 5
    assert set(begun) <= {0, 1}
    timed.close()


def test_a_stop_ends_waits() -> None:
    """Also those for an answer, and for the next attempt: nobody waits for them."""
    event, begun = threading.Event(), threading.Semaphore(0)

    def function(row: int) -> int:
        begun.release()
        if row == 1:
            raise ConnectionError
        event.wait(PATIENCE)
        return row

    def wait(row: int, calls: Calls) -> tuple[Calling, threading.Thread]:
        calling = Calling(Map(function, calls=calls, in_flight=1))
        return calling, threading.Thread(target=lambda: _quietly(calling.function(Tally()), row))

    pairs = [wait(1, Calls(retries=3, backoff=3600.0, longest_backoff=3600.0)), wait(2, Calls(timeout=3600.0))]
    for calling, thread in pairs:
        thread.start()
        assert begun.acquire(timeout=PATIENCE)
        calling.interrupt()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        calling.close()
    event.set()


def _quietly(function: Any, row: int) -> None:
    try:
        function(row)
    except BaseException:
        return


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_stop_makes_the_attempts_that_are_left_without_a_pause(asynchronous: bool) -> None:
    asked, begun = [], threading.Event()

    def never(row: int) -> int:
        asked.append(row)
        begun.set()
        raise ConnectionError

    async def never_async(row: int) -> int:
        return never(row)

    function = never_async if asynchronous else never
    made = stream([1]).map(function, name="ask", retries=2, backoff=("1 hour", "1 hour"), on_error="dead_letter")
    made.errors.sink("errors")
    run = ps.start(made.sink("out"), on=ps.Threads())
    assert begun.wait(PATIENCE)
    run.stop()
    assert run.await_end(PATIENCE)
    assert [letter.attempts for letter in run.results["errors"]] == [3]
    assert asked == [1, 1, 1]


class TestTurns:
    def test_are_evenly_spread(self) -> None:
        clock = Clock()
        turns = Turns(10.0, clock)
        waits = [turns.take() for _ in range(4)]
        assert waits == pytest.approx([0.0, 0.1, 0.2, 0.3])
        clock.now += 0.4
        assert turns.take() == 0.0
        clock.now += 50.0  # what nobody took is gone
        assert [turns.take(), turns.take()] == pytest.approx([0.0, 0.1])

    def test_are_shared_by_processes(self) -> None:
        clock = Clock()
        calling = Calling(Map(str, calls=Calls(rate=10.0)), clock=clock)
        calling.begin(4)
        assert calling._turns is not None
        assert [calling._turns.take() for _ in range(3)] == pytest.approx([0.0, 0.4, 0.8])


Values = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.floats(), st.text(max_size=2), st.tuples(st.integers(0, 1))
)


class TestRemembered:
    def test_the_least_recently_used_goes_first(self) -> None:
        cache = Remembered(Cache(2), Clock())
        a, b, c = (cache.key(row) or b"" for row in "abc")
        cache.put(a, 1)
        cache.put(b, 2)
        assert cache.get(a) == 1
        cache.put(c, 3)
        assert (cache.get(a), cache.get(c)) == (1, 3)
        assert not isinstance(cache.get(b), int)

    def test_results_hold_for_a_time(self) -> None:
        clock = Clock()
        cache = Remembered(Cache(2, ttl="10 s"), clock)
        cache.put(b"a", 1)
        clock.now += 9.9
        assert cache.get(b"a") == 1
        clock.now += 0.1
        assert cache.get(b"a") != 1

    @given(rows=st.lists(st.tuples(Values, Values), max_size=30), by=st.sampled_from([(), ("a",), ("b", "a")]))
    def test_results_are_those_of_the_function(self, rows: Any, by: Any) -> None:
        """Values that are equal and differ, such as 1 and True, are not taken for each other."""
        dicts = [dict(zip("ab", row, strict=True)) for row in rows]
        names = by or ("a", "b")

        def show(row: Any) -> str:
            return ", ".join(f"{type(row[name]).__name__} {row[name]!r}" for name in names)

        calling = Calling(Map(show, calls=Calls(cache=Cache(4, by=by))))
        function = calling.function(Tally())
        assert [function(row) for row in dicts] == [show(row) for row in dicts]

    def test_a_call_is_made_once_for_an_argument(self) -> None:
        asked: list[Any] = []

        def ask(row: Any) -> Any:
            asked.append(row)
            return row["user"].upper()

        rows = [{"user": "ab"[n % 2], "n": n} for n in range(10)]
        run = ps.run(stream(rows).map(ask, cache=Cache(5, by="user")).sink("out"), on=ps.Sequential())
        assert run.results["out"] == ["A", "B"] * 5
        assert len(asked) == 2

    def test_failures_are_not_remembered(self) -> None:
        asked: list[int] = []

        def ask(row: int) -> int:
            asked.append(row)
            raise ValueError

        ps.run(stream([1, 1]).map(ask, cache=5, on_error="skip").sink("out"), on=ps.Sequential())
        assert asked == [1, 1]

    def test_rows_that_cannot_be_told_apart_are_asked_for_each_time(self) -> None:
        function = Calling(Map(lambda f: f(), calls=Calls(cache=Cache(5)))).function(Tally())
        assert [function(row) for row in ((lambda: 1), (lambda: 2))] == [1, 2]
