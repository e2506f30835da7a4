"""Co-routine operators: waits, ports, restarts, ends, and what is refused; then the library built on them."""

from __future__ import annotations

import asyncio
import datetime as dt
import pickle

import pytest

import penstock as ps
from penstock import library, read
from penstock.errors import FlowError, OperatorError
from penstock.flow import Flow, Stream, operate
from penstock.operators import coroutine
from penstock.operators.coroutine import Coroutine
from penstock.operators.library import feedback
from penstock.plan.plan import make_plan
from penstock.sequential import SequentialEngine

from ..running import feed, numbers, out, records, run, started


class Barrier(Coroutine):
    """The example of C-Stream's paper."""

    inputs, outputs = 2, 1

    async def process(self, ctx):
        while await ctx.wait_for_all({0: 1, 1: 1}):
            await ctx.emit(ctx.pop(0) + ctx.pop(1))


def two(left=(), right=(), **options) -> tuple[Stream, Stream]:
    flow = Flow("test")
    return flow.source("a", read.items(list(left)), **options), flow.source("b", read.items(list(right)), **options)


def sequence(text: str) -> list[tuple[str, str]]:
    """Read "a1 b2" as row "a1" of source a, then row "b2" of source b."""
    return [(word[0], word) for word in text.split()]


def operated(operator, text: str, *, end: bool = True, **options) -> list:
    """Run an operator over sources a and b, in the order of a text."""
    flow = operate(operator, *two(), name="op", **options).sink("out")
    return run(flow, sequence(text), end=end)["out"]


def one(process, rows, **options) -> list:
    """Run a function as the process of an operator with one port."""
    return out(operate(made(process), numbers(rows), name="op", **options))


def made(process) -> Coroutine:
    """Make an operator with one port of a function."""
    return type("Made", (Coroutine,), {"process": process})()


class Told(Coroutine):
    """Pair rows, and tell at the end of that which ports were closed and what is left in each."""

    inputs = 2

    async def process(self, ctx):
        while await ctx.wait_for_all({0: 1, 1: 1}):
            await ctx.emit((ctx.pop(0), ctx.pop(1)))
        await ctx.emit((ctx.closed(0), ctx.closed(1), ctx.len(0), ctx.len(1)))


def seen_at_each(tested, text: str) -> list[list]:
    """Run a flow, or an operator over sources a and b, on "a1 a!": a row, and an end; tell what comes out at each."""
    if isinstance(tested, Coroutine):
        made = operate(tested, *two(), name="op")
        tested = (made[0] if isinstance(made, tuple) else made).sink("out")
        for number, stream in enumerate(made[1:] if isinstance(made, tuple) else ()):
            stream.sink(f"out {number}")
    engine, found = started(tested), []
    for word in text.split():
        before = len(engine.results["out"])
        if word[1] == "!":
            engine.end(word[0])
        else:
            feed(engine, word[0], word)
        found.append(engine.results["out"][before:])
    return found


class TestWaits:
    def test_for_all_ports(self):
        assert operated(Barrier(), "a1 a2 b1 b2 b3 a3") == ["a1b1", "a2b2", "a3b3"]

    def test_for_any_port_follows_the_cursor_not_the_time_of_arrival(self):
        class First(Coroutine):
            inputs = 2

            async def process(self, ctx):
                while await ctx.wait_for_any({0: 1, 1: 2}):
                    waiting = (ctx.len(0), ctx.len(1))
                    await ctx.emit((waiting, ctx.pop(0) if ctx.len(0) else ctx.pop(1) + ctx.pop(1)))

        assert operated(First(), "b1 a1 b2 b3 a2") == [((1, 1), "a1"), ((0, 2), "b1b2"), ((1, 1), "a2")]

    def test_see_nothing_ahead_of_the_cursor(self):
        class Lengths(Coroutine):
            inputs = 2

            async def process(self, ctx):
                while await ctx.wait_for_all({0: 1}):
                    await ctx.emit((ctx.pop(0), ctx.len(1)))

        assert operated(Lengths(), "a1 b1 a2 b2 b3 a3") == [("a1", 0), ("a2", 1), ("a3", 3)]

    def test_several_of_one_port(self):
        async def process(self, ctx):
            while await ctx.wait_for_all({0: 3}):
                await ctx.emit([ctx.pop() for _ in range(3)])

        assert one(process, range(8)) == [[0, 1, 2], [3, 4, 5]]

    def test_emitted_rows_stand_where_the_satisfying_row_stood(self):
        a, b = two(["a1", "a2"], ["b1", "b2"])
        flow = operate(Barrier(), a, b).union(a, b).sink("out")
        # The operator was declared first, so its rows come before the copy of the row that satisfied it.
        assert run(flow, sequence("a1 a2 b1 b2"))["out"] == ["a1", "a2", "a1b1", "b1", "a2b2", "b2"]

    def test_emitted_rows_have_the_time_of_the_satisfying_row(self):
        class Couples(Coroutine):
            async def process(self, ctx):
                while await ctx.wait_for_all({0: 2}):
                    ctx.pop(), ctx.pop()
                    await ctx.emit(ctx.time)

        rows = [{"t": t} for t in (1, 4, 9, 12)]
        assert out(operate(Couples(), records(rows))) == [4, 12]
        windows = operate(Couples(), records(rows)).window(5).apply(lambda window, inside: (window.start, inside))
        assert out(windows) == [(0, [4]), (10, [12])]


class TestEnds:
    def test_waits_give_false(self):
        class Rest(Coroutine):
            inputs = 2

            async def process(self, ctx):
                while await ctx.wait_for_all({0: 1, 1: 1}):
                    assert not ctx.closed(0)
                    ctx.pop(0), ctx.pop(1)
                assert ctx.closed(0)
                assert ctx.closed(1)
                assert not await ctx.wait_for_any({0: 2, 1: 1})
                assert await ctx.wait_for_any({0: 1, 1: 1})
                while ctx.len(0):
                    await ctx.emit(ctx.pop(0))

        assert operated(Rest(), "a1 b1 a2") == ["a2"]

    @pytest.mark.parametrize(
        ("operator", "text", "expected"),
        [
            (library.Barrier(lambda *rows: "".join(rows)), "a1 b1 a2 a! b2 b3 b!", "a1b1 a2b2"),
            (library.Zip(), "a1 a! b1 b2 b!", [("a1", "b1")]),
            (library.Zip(longest=True, fill="-"), "a1 a! b1 b2 b3 b!", [("a1", "b1"), ("-", "b2"), ("-", "b3")]),
            (library.Zip(longest=True, fill="-"), "b! a1 a2 a!", [("a1", "-"), ("a2", "-")]),
            (library.Merge(lambda row: row[1]), "b2 b4 b! a1 a3 a5 a!", "a1 b2 a3 b4 a5"),
            (library.Merge(lambda row: row[1]), "a1 a2 b3 b4 a! b5 b!", "a1 a2 b3 b4 b5"),
            (library.Gate(lambda row: row == "b1", hold=True), "a1 b0 b! a2 a!", ""),
            (library.Gate(lambda row: row == "b1"), "a1 b1 b! a2 a!", "a2"),
            (library.Switch(2, lambda row: int(row[1])), "b0 b! a1 a2 a!", "a1 a2"),
            (library.Join(lambda row: row[1], lambda x, y: x + y), "a1 a2 a! b2 b1 b!", "a2b2 a1b1"),
        ],
    )
    def test_the_library_acts_on_a_port_that_closes_alone(self, operator, text, expected):
        found = [row for rows in seen_at_each(operator, text) for row in rows]
        assert found == (expected.split() if isinstance(expected, str) else expected)

    def test_a_merge_goes_on_as_soon_as_a_port_has_ended(self):
        """What comes out at each row and each end, not only in the end."""
        assert seen_at_each(library.Merge(lambda row: row[1]), "a1 a2 b! a3 a!") == [[], [], ["a1", "a2"], ["a3"], []]

    def test_a_zip_is_over_when_a_port_has_ended(self):
        assert seen_at_each(library.Zip(), "a1 b1 a! b2 b!") == [[], [("a1", "b1")], [], [], []]
        with_fill = library.Zip(longest=True, fill="-")
        assert seen_at_each(with_fill, "b1 b2 a! b3 b!") == [[], [], [("-", "b1"), ("-", "b2")], [("-", "b3")], []]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            # Port 1 can never have its row: the wait is over as soon as it has ended, and the operator with it.
            ("a1 b! a2 a!", [[], [(False, True, 1, 0)], [], []]),
            # It has its row: there is still hope for the other one, until that has ended too.
            ("b1 b! a!", [[], [], [(True, True, 0, 1)]]),
            ("b1 b! a1 a!", [[], [], [("a1", "b1"), (False, True, 0, 0)], []]),
            # Nothing came before the port has ended: the first run sees it.
            ("b! a1 a2 a!", [[], [(False, True, 1, 0)], [], []]),
            # Nothing ever came.
            ("b! a!", [[], []]),
        ],
    )
    def test_a_wait_gives_false_once_it_can_never_be_satisfied(self, text, expected):
        assert seen_at_each(Told(), text) == expected

    def test_waiting_for_any_goes_on_while_one_port_is_open(self):
        class Any(Coroutine):
            inputs = 2

            async def process(self, ctx):
                while await ctx.wait_for_any({0: 1, 1: 1}):
                    await ctx.emit(ctx.pop(0) if ctx.len(0) else ctx.pop(1))
                await ctx.emit("end")

        assert seen_at_each(Any(), "a1 b! a2 a!") == [["a1"], [], ["a2"], ["end"]]

    def test_a_port_closes_behind_all_sources_above_it(self):
        flow = Flow("test")
        a, b, c = (flow.source(name, read.items([])) for name in "abc")
        flow = operate(Told(), a.union(c.filter(lambda row: False)), b, name="op").sink("out")
        assert seen_at_each(flow, "b1 a! c! b!") == [[], [], [(True, False, 0, 1)], []]

    def test_a_port_closes_behind_what_its_end_brings_out(self):
        """The end of a source closes a window first; its row goes to the port, and only then does the port close."""
        flow = Flow("test")
        a, b = (flow.source(name, read.items([{"t": 1}]), time="t") for name in "ab")
        counts = a.window(10).count().map(lambda row: row.count)
        engine = started(operate(Told(), counts, b.map(lambda row: "b"), name="op").sink("out"))
        feed(engine, "b", {"t": 100})
        feed(engine, "a", {"t": 1})
        engine.end("a")
        assert engine.results["out"] == [(1, "b"), (True, False, 0, 0)]

    def test_a_region_closes_the_ports_inside(self):
        def body(first, second, back):
            told = operate(Told(), first, second)
            return told, operate(library.Gate(), told, back)

        flow = feedback(body, *two()).sink("out")
        assert seen_at_each(flow, "a1 b! a2 a!") == [[], [(False, True, 1, 0)], [], []]
        assert seen_at_each(flow, "b! a1 a!") == [[], [(False, True, 1, 0)], []]

    def test_the_time_is_the_latest_at_an_end_too(self):
        class Times(Coroutine):
            inputs = 2

            async def process(self, ctx):
                await ctx.wait_for_all({0: 1, 1: 1})
                await ctx.emit((ctx.closed(0), ctx.closed(1), ctx.time))

        flow = Flow("test")
        a, b = (flow.source(name, read.items([{"t": 0}]), time="t") for name in "ab")
        engine = started(operate(Times(), a, b).sink("out"))
        feed(engine, "a", {"t": 7}, {"t": 5})
        engine.end("b")
        assert engine.results["out"] == [(False, True, 7)]

    def test_an_error_at_an_end_names_the_port(self):
        class Fails(Coroutine):
            inputs = 2

            async def process(self, ctx):
                assert await ctx.wait_for_all({0: 1, 1: 1}), "too few"

        engine = started(operate(Fails(), *two(), name="op").sink("out"))
        feed(engine, "a", "a1")
        with pytest.raises(OperatorError, match="too few") as found:
            engine.end("b")
        assert found.value.operator == "op"
        assert "end of input port 1" in str(found.value)

    def test_a_stop_is_no_end(self):
        async def process(self, ctx):
            while await ctx.wait_for_all({0: 2}):
                await ctx.emit(ctx.pop())
            await ctx.emit("end")

        stream = numbers([1, 2, 3])
        assert run(operate(made(process), stream).sink("out"), end=False)["out"] == [1, 2]
        assert one(process, [1, 2, 3]) == [1, 2, "end"]

    def test_rows_of_the_end_have_the_latest_time(self):
        class Last(Coroutine):
            async def process(self, ctx):
                await ctx.wait_for_all({0: 100})
                await ctx.emit(ctx.time)

        assert out(operate(Last(), records([{"t": 7}, {"t": 3}], slack=9))) == [7]
        assert one(Last.process, [1]) == [0]

    def test_one_that_has_returned_takes_no_more_rows(self):
        async def process(self, ctx):
            await ctx.wait_for_all({0: 2})
            await ctx.emit(ctx.pop())

        assert one(process, [1, 2, 3, 4], max_pending=2) == [1]

    def test_nothing_is_kept_behind_the_end(self):
        engine = started(operate(Barrier(), *two(), name="op").sink("out"))
        feed(engine, "a", "a1")
        assert engine.state("op")
        engine.end("a")
        engine.end("b")
        assert engine.state("op") == {}

    def test_an_operator_that_got_no_row_does_not_run(self):
        async def process(self, ctx):
            await ctx.emit("ran")

        assert one(process, []) == []


class TestFrames:
    """Where nothing is saved, a co-routine is an ordinary function: it goes on after its wait."""

    def test_locals_last(self):
        async def process(self, ctx):
            count = 0
            while await ctx.wait_for_all({0: 1}):
                count += 1
                ctx.state["count"] = ctx.state.get("count", 0) + 1
                await ctx.emit((ctx.pop(), count, ctx.state["count"]))

        assert one(process, "xyz") == [("x", 1, 1), ("y", 2, 2), ("z", 3, 3)]

    def test_waits_may_be_anywhere(self):
        class Pair(Coroutine):
            inputs = 2

            async def take(self, ctx, port):
                return ctx.pop(port) if await ctx.wait_for_all({port: 1}) else None

            async def process(self, ctx):
                while (left := await self.take(ctx, 0)) is not None:
                    for _ in range(2):
                        right = await self.take(ctx, 1)
                        await ctx.emit((left, right))

        text = "a1 a2 b1 b2 b3 a3 b4"
        assert operated(Pair(), text) == [
            ("a1", "b1"), ("a1", "b2"), ("a2", "b3"), ("a2", "b4"), ("a3", None), ("a3", None),
        ]  # fmt: skip

    def test_code_before_the_loop_runs_once(self):
        async def process(self, ctx):
            ctx.state["starts"] = ctx.state.get("starts", 0) + 1
            while await ctx.wait_for_all({0: 2}):
                ctx.pop(), ctx.pop()
                await ctx.emit(ctx.state["starts"])

        assert one(process, range(6)) == [1, 1, 1]

    def test_a_finally_block_runs_once_at_the_end_or_at_a_stop(self):
        done = []

        async def process(self, ctx):
            try:
                while await ctx.wait_for_all({0: 2}):
                    ctx.pop(), ctx.pop()
            finally:
                done.append(self.name)

        for name, end in (("ended", True), ("stopped", False)):
            operator = made(process)
            operator.name = name
            engine = started(operate(operator, numbers([])).sink("out"))
            feed(engine, "in", 1, 2, 3)
            if end:
                engine.end("in")
            engine.close()
        assert done == ["ended", "stopped"]

    def test_what_fails_while_it_is_closed_is_said(self, caplog):
        async def process(self, ctx):
            try:
                await ctx.wait_for_all({0: 2})
            finally:
                ctx.pop()

        engine = started(operate(made(process), numbers([])).sink("out"))
        feed(engine, "in", 1)
        engine.close()
        assert "Made.process failed while it was closed" in caplog.text
        assert "used after process() was left at a wait" in caplog.text

    def test_one_inside_a_feedback_is_closed_too(self):
        done = []

        class Forward(Coroutine):
            inputs, control = 2, (1,)

            async def process(self, ctx):
                count = 0
                try:
                    while await ctx.wait_for_any({0: 1, 1: 1}):
                        count += 1
                        await ctx.emit((ctx.pop(0 if ctx.len(0) else 1), count))
                finally:
                    done.append(count)

        def body(stream, back):
            passed = operate(Forward(), stream, back)
            return passed, passed.filter(lambda row: False)

        engine = started(feedback(body, numbers([])).sink("out"))
        feed(engine, "in", "x", "y")
        assert engine.results["out"] == [("x", 1), ("y", 2)]
        engine.close()
        assert done == [2]


class TestRestarts:
    """Where state is saved, it begins again from its start at every wait: state and ports are what it has."""

    def test_code_before_the_first_wait_runs_again(self):
        async def process(self, ctx):
            ctx.state["starts"] = ctx.state.get("starts", 0) + 1
            while await ctx.wait_for_all({0: 2}):
                ctx.pop(), ctx.pop()
                await ctx.emit(ctx.state["starts"])

        # At the first row, and then whenever two are there.
        assert out(operate(made(process), numbers(range(6))), keeps_frames=False) == [2, 3, 4]

    def test_locals_do_not_last_and_state_does(self):
        async def process(self, ctx):
            count = 0
            while await ctx.wait_for_all({0: 1}):
                count += 1
                ctx.state["count"] = ctx.state.get("count", 0) + 1
                await ctx.emit((ctx.pop(), count, ctx.state["count"]))

        assert out(operate(made(process), numbers("xyz")), keeps_frames=False) == [
            ("x", 1, 1), ("y", 1, 2), ("z", 1, 3),
        ]  # fmt: skip

    def test_where_it_was_is_kept_in_state(self):
        async def process(self, ctx):
            while True:
                if "head" not in ctx.state:
                    if not await ctx.wait_for_all({0: 1}):
                        return
                    ctx.state["head"] = ctx.pop()
                if not await ctx.wait_for_all({0: ctx.state["head"]}):
                    return
                await ctx.emit([ctx.pop() for _ in range(ctx.state.pop("head"))])

        # Each packet tells its own length first.
        assert one(process, [2, 7, 8, 1, 9, 3, 4, 5, 6, 2, 0]) == [[7, 8], [9], [4, 5, 6]]

    def test_state_may_be_anything_that_pickles(self):
        async def process(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                ctx.state = (ctx.state or 0) + ctx.pop()
                await ctx.emit(ctx.state)

        assert one(process, [1, 2, 3]) == [1, 3, 6]

    @pytest.mark.parametrize(
        "operator",
        [
            Barrier(),
            library.Zip(longest=True),
            library.Merge(lambda row: row[1:]),
            library.Gate(lambda row: row != "b2", hold=True),
            library.Gate(lambda row: row != "b2"),
            library.Join(lambda row: row[1:], rows=2),
        ],
        ids=lambda operator: type(operator).__name__,
    )
    def test_saved_and_loaded_at_every_row(self, operator):
        rows = sequence("a1 a2 b1 b2 a2 b3 a4 b5 b5 a5 a6")
        flow = operate(operator, *two(), name="op").sink("out")
        expected = run(flow, rows)["out"]
        engine = started(flow)
        for source, row in rows:
            feed(engine, source, row)
            engine = restarted(engine)
        engine.end("a")
        engine.end("b")
        assert engine.results["out"] == expected
        assert expected

    def test_two_flows_may_share_an_operator(self):
        shared = Barrier()
        assert operated(shared, "a1 b1") == operated(shared, "a1 b1") == ["a1b1"]


def restarted(engine: SequentialEngine) -> SequentialEngine:
    """Return an engine that has what a saved one had."""
    fresh = SequentialEngine(engine.plan)
    fresh.results, fresh._marks = engine.results, engine._marks
    fresh._keyed = pickle.loads(pickle.dumps(engine._keyed))
    return fresh


class TestRefused:
    def fails(self, process, message, rows=(1, 2), **options):
        with pytest.raises(OperatorError, match=message) as caught:
            one(process, rows, **options)
        assert "operator 'op'" in str(caught.value)

    def test_too_many_rows_that_wait(self):
        message = r"operator 'op'.* port 1 holds 3 rows.*wait_for_all\(\{0: 1, 1: 1\}\).*larger max_pending="
        with pytest.raises(OperatorError, match=message):
            operated(Barrier(), "b1 b2 b3 a1", max_pending=2)

    def test_a_wait_for_more_rows_than_a_port_holds(self):
        async def process(self, ctx):
            await ctx.wait_for_all({0: 11})

        self.fails(process, r"needs 11 rows in port 0, and max_pending=10", max_pending=10)

    def test_a_foreign_awaitable(self):
        async def sleeps(self, ctx):
            await asyncio.sleep(0)

        async def sleeps_longer(self, ctx):
            await asyncio.sleep(1)

        self.fails(sleeps, r"awaits something that is not Penstock's.*await only\s+ctx.wait_for_all")
        self.fails(sleeps_longer, r"awaits something that is not Penstock's.*no running event loop")

    def test_a_wait_that_is_not_awaited(self):
        async def process(self, ctx):
            while ctx.wait_for_all({0: 1}):
                await ctx.emit(ctx.pop())

        self.fails(process, r"write await ctx.wait_for_all\(\{0: 1\}\)")

    def test_an_emit_that_is_not_awaited(self):
        async def process(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                ctx.emit(ctx.pop())

        async def returns(self, ctx):
            ctx.emit(1)

        self.fails(process, r"write await ctx.emit\(row\)")
        self.fails(returns, r"write await ctx.emit\(row\)")

    def test_a_pop_or_peek_of_what_is_not_there(self):
        async def pops(self, ctx):
            ctx.pop()
            ctx.pop()

        async def peeks(self, ctx):
            ctx.peek(0, 1)

        self.fails(pops, r"pop\(0\) finds no row; wait for it")
        self.fails(peeks, r"peek\(0, 1\) finds 1 rows; wait .*\{0: 2\}")

    def test_a_port_that_is_not_there(self):
        async def pops(self, ctx):
            ctx.pop(1)

        async def waits(self, ctx):
            await ctx.wait_for_any({0: 1, -1: 1})

        async def emits(self, ctx):
            await ctx.emit(1, port=1)

        self.fails(pops, "no input port 1; the operator has 1")
        self.fails(waits, "no input port -1")
        self.fails(emits, r"port=1\): the operator has 1 output port")

    def test_a_wait_for_nothing(self):
        async def nothing(self, ctx):
            await ctx.wait_for_all({})

        async def none(self, ctx):
            await ctx.wait_for_any({0: 0})

        self.fails(nothing, "at least one port")
        self.fails(none, "at least one row")

    def test_a_loop_that_never_pops(self, monkeypatch):
        monkeypatch.setattr(coroutine, "PATIENCE", 50)

        async def peeks(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                ctx.peek()

        async def does_not_leave(self, ctx):
            while True:
                await ctx.wait_for_all({0: 9})

        self.fails(peeks, "50 times with no row popped")
        self.fails(does_not_leave, "leave the loop when a wait gives False")

    def test_a_context_that_is_used_after_the_wait(self):
        async def process(self, ctx):
            try:
                await ctx.wait_for_all({0: 2})
            finally:
                ctx.pop()

        with pytest.raises(OperatorError, match=r"used after .* wait, for example in a finally block"):
            out(operate(made(process), numbers([1, 2])), keeps_frames=False)

    def test_what_the_operator_raises_names_its_line(self):
        async def process(self, ctx):
            raise ValueError("bad")

        self.fails(process, r"test_coroutine.py:\d+: ValueError: bad; row: 1")

    def test_before_the_run(self):
        a, b = two()

        class Plain(Coroutine):
            def process(self, ctx):
                pass

        class Nothing(Coroutine):
            async def process(self, ctx):
                pass

            outputs = 0

        for operator, streams, message in [
            (Barrier(), (a,), "'Barrier': Barrier has 2 input streams, and is given 1"),
            (Barrier(), (), "needs the streams that it reads"),
            (Barrier(), (a, b.key_by(len)), "each without key_by"),
            (Plain(), (a,), "'Plain': Plain.process is no co-routine; write async def"),
            (Nothing(), (a,), "at least one output port"),
            (object(), (a,), "derive its class from penstock.Coroutine"),
            (Barrier(), (a, numbers([1])), "different flows"),
        ]:
            with pytest.raises(FlowError, match=message):
                operate(operator, *streams)
        with pytest.raises(FlowError, match="max_pending=0"):
            operate(Barrier(), a, b, max_pending=0)
        with pytest.raises(FlowError, match="1 output ports and is given 2 schemas"):
            operate(Barrier(), a, b, schema=[str, int])


class TestFlows:
    def test_several_outputs_are_several_streams(self):
        class Sides(Coroutine):
            inputs, outputs = 2, 2

            async def process(self, ctx):
                while await ctx.wait_for_any({0: 1, 1: 1}):
                    port = 0 if ctx.len(0) else 1
                    await ctx.emit({"v": ctx.pop(port)}, port=1 - port)

        left, right = operate(Sides(), *two(), schema=[{"v": str}, None])
        assert left.type.names == ["v"]
        assert right.type is None
        left.map(lambda row: row.v).sink("left")
        flow = right.sink("right")
        assert run(flow, sequence("a1 b1 a2")) == {"left": ["b1"], "right": [{"v": "a1"}, {"v": "a2"}]}

    def test_names_follow_the_class(self):
        a, b = two()
        assert [operate(Barrier, a, b).node.name for _ in range(2)] == ["Barrier", "Barrier_2"]

    def test_time_is_known_where_all_streams_have_it(self):
        flow = Flow("test")
        timed = flow.source("a", read.items([{"t": 1}]), time="t")
        plain = flow.source("b", read.items([{"t": 1}]))
        assert operate(Barrier(), timed, timed).node.time == "integer"
        assert operate(Barrier(), timed, plain).node.time is None

    def test_the_kind_is_stateful(self):
        plan = make_plan(operate(Barrier(), *two(), name="op").sink("out"))
        assert plan.nodes["op"].operator.kind == "stateful"

    def test_the_front_door(self):
        assert ps.Coroutine is Coroutine
        assert ps.operate is operate
        assert ps.library.Zip is library.Zip


class TestLibrary:
    def test_barrier_puts_fields_side_by_side(self):
        a, b = two([{"k": 1, "v": 2}], [{"v": 3, "w": 4}])
        joined = operate(library.Barrier(), a, b, a)
        assert joined.type.names == ["k", "v", "v_1", "w", "k_2", "v_2"]
        assert out(joined) == [(1, 2, 3, 4, 1, 2)]

    def test_barrier_of_tuples_and_by_a_function(self):
        assert out(operate(library.Barrier(), *two([(1, 2)], [(3,)]))) == [(1, 2, 3)]
        assert out(operate(library.Barrier(max), *two([1, 5], [3, 2]))) == [3, 5]
        with pytest.raises(OperatorError, match="give it combine="):
            out(operate(library.Barrier(), *two([1], [2])))

    def test_zip(self):
        assert operated(library.Zip(), "a1 a2 b1") == [("a1", "b1")]
        assert operated(library.Zip(longest=True), "a1 a2 b1") == [("a1", "b1"), ("a2", None)]

    def test_merge_holds_rows_back(self):
        flow = operate(library.Merge("t"), *two([{"t": 1}], [{"t": 1}]), name="op").sink("out")
        engine = started(flow)
        feed(engine, "a", {"t": 1}, {"t": 4})
        assert engine.results["out"] == []
        feed(engine, "b", {"t": 2})
        assert engine.results["out"] == [(1,), (2,)]
        feed(engine, "b", {"t": 4})
        assert engine.results["out"] == [(1,), (2,), (4,)]
        for source in "ab":
            engine.end(source)
        assert engine.results["out"] == [(1,), (2,), (4,), (4,)]

    def test_gate_drops_or_holds(self):
        opens = "b1"
        text = "a1 b1 a2 b2 a3 a4 b1 a5 b2 a6"
        assert operated(library.Gate(opens.__eq__), text) == ["a2", "a5"]
        assert operated(library.Gate(opens.__eq__, is_open=True), text) == ["a1", "a2", "a5"]
        assert operated(library.Gate(opens.__eq__, hold=True), text) == ["a1", "a2", "a3", "a4", "a5"]

    def test_switch(self):
        outputs = operate(library.Switch(2, {"b0": 0, "b1": 1}.get), *two())
        for index, stream in enumerate(outputs):
            flow = stream.sink(f"out {index}")
        assert run(flow, sequence("a1 b1 a2 b0 a3 b9 a4")) == {"out 0": ["a1", "a3"], "out 1": ["a2"]}

    def test_switch_to_an_output_that_is_not_there(self):
        first, second = operate(library.Switch(), *two([1], [5]))
        with pytest.raises(OperatorError, match="a switch with 2 outputs cannot send rows to 5"):
            out(first.union(second))

    def test_throttle_by_event_time(self):
        rows = [{"t": t} for t in (0, 1, 2, 10, 9, 11, 25)]
        assert out(operate(library.Throttle(2, per=10), records(rows))) == [(0,), (1,), (10,), (9,), (25,)]
        noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
        times = [{"t": noon + dt.timedelta(seconds=s)} for s in (0, 0.5, 1)]
        assert len(out(operate(library.Throttle(per="1 s"), records(times)))) == 2

    def test_throttle_by_number(self):
        assert out(operate(library.Throttle(every=3), numbers(range(8)))) == [0, 3, 6]

    def test_throttle_that_cannot_be(self):
        for options in ({}, {"per": 1, "every": 1}, {"every": 0}, {"most": 0, "per": 1}, {"per": 0}):
            with pytest.raises(FlowError, match="throttle"):
                library.Throttle(**options)
        for stream in (numbers([1]), records([{"t": 1}])):
            with pytest.raises(FlowError, match=r"operator 'Throttle'.*time="):
                operate(library.Throttle(per="1 s"), stream)

    def test_join_among_the_latest_rows(self):
        by_number = library.Join(lambda row: row[1:], rows=2)
        assert operated(by_number, "a1 a2 b2 a2 b2 b1") == [("a2", "b2"), ("a2", "b2"), ("a2", "b2"), ("a2", "b2")]

    def test_join_by_fields_of_different_names(self):
        a, b = two([{"k": 1, "v": 5}], [{"key": 1, "w": 6}])
        joined = operate(library.Join(("k", "key"), lambda left, right: left.v + right.w), a, b)
        assert out(joined) == [11]
        with pytest.raises(FlowError, match="rows=0"):
            library.Join("k", rows=0)


def shutting(stream, back):
    """Pass rows until their sum is more than five."""
    passed = operate(library.Gate(is_open=True), stream, back)
    return passed, passed.scan(lambda total, n: (total + n, total + n <= 5), 0)


class TestFeedback:
    def test_is_seen_before_the_next_row(self):
        assert out(feedback(shutting, numbers([3, 2, 1, 4, 1]))) == [3, 2, 1]

    def test_rows_go_round_one_after_the_other(self):
        class Echo(Coroutine):
            inputs, outputs, control = 2, 2, (1,)

            async def process(self, ctx):
                while await ctx.wait_for_any({0: 1, 1: 1}):
                    row = ctx.pop(1) if ctx.len(1) else ctx.pop(0)
                    await ctx.emit(row)
                    for number in range(len(row)):
                        await ctx.emit(row[number + 1 :], port=1)

        # "ab" feeds back "b" and ""; "b" feeds back one "" more, which comes behind.
        echoed = feedback(lambda stream, back: tuple(operate(Echo(), stream, back)), numbers(["ab", "c"]))
        assert out(echoed) == ["ab", "b", "", "", "c", ""]

    def test_ends_when_nothing_goes_round_any_more(self):
        class Last(Coroutine):
            inputs, outputs, control = 2, 2, (1,)

            async def process(self, ctx):
                while await ctx.wait_for_any({0: 1, 1: 1}):
                    await ctx.emit(ctx.pop(0 if ctx.len(0) else 1))
                await ctx.emit("end")
                await ctx.emit("dropped", port=1)

        ends = feedback(lambda stream, back: tuple(operate(Last(), stream, back)), numbers(["a"]))
        assert out(ends) == ["a", "end"]

    def test_saved_and_loaded_at_every_row(self):
        flow = feedback(shutting, numbers([1]), name="op").sink("out")
        engine = started(flow)
        for row in (3, 2, 1, 4, 1):
            feed(engine, "in", row)
            engine = restarted(engine)
        assert engine.results["out"] == [3, 2, 1]

    def test_types_and_names_go_through(self):
        def body(stream, back):
            passed = operate(library.Gate(is_open=True), stream, back)
            return passed, passed.select("v"), passed.filter(lambda row: False)

        first, second = feedback(body, records([{"t": 1, "v": 2}]))
        assert (first.node.name, first.node.time) == ("body", "integer")
        assert (first.type.names, second.type.names) == (["t", "v"], ["v"])

    def test_rows_that_go_round_for_ever(self, monkeypatch):
        monkeypatch.setattr("penstock.operators.cycle.MOST_BACK", 20)

        class Again(Coroutine):
            inputs, control = 2, (1,)

            async def process(self, ctx):
                while await ctx.wait_for_any({0: 1, 1: 1}):
                    await ctx.emit(ctx.pop(1 if ctx.len(1) else 0))

        def body(stream, back):
            again = operate(Again(), stream, back)
            return again, again

        with pytest.raises(OperatorError, match=r"operator 'loop'.*20 rows were fed back for one row"):
            out(feedback(body, numbers([1]), name="loop"))

    def test_refused_before_the_run(self):
        stream = records([{"t": 1, "v": 2}])

        def to_data(stream, back):
            return operate(library.Gate(), back, stream), stream

        def to_no_port(stream, back):
            return back.scan(lambda n, r: (n, r), 0), operate(library.Gate(), stream, back)

        def windowed(stream, back):
            return operate(library.Gate(), stream, back).window(5).count(), stream

        def alone(stream, back):
            return operate(library.Gate(), stream, back)

        def outside(inner, back):
            return operate(library.Gate(), stream, stream), back

        for body, message in [
            (to_data, r"feedback 'to_data' goes to 'Gate', port 0, which is no control port"),
            (to_no_port, r"goes to .*, port 0, which is no control port"),
            (windowed, r"operator 'window' in feedback 'windowed' waits for event time"),
            (alone, r"returns the streams that leave it and, last, the one that is fed back"),
            (outside, r"different flows"),
        ]:
            with pytest.raises(FlowError, match=message):
                feedback(body, stream)
        with pytest.raises(FlowError, match="needs the streams"):
            feedback(shutting)
