"""What is proven of a co-routine before it may begin again at its waits, and what is refused, line and variable."""

from __future__ import annotations

import itertools
import math
from collections import deque

import pytest

import penstock as ps
from penstock import library
from penstock.errors import FlowError
from penstock.operators.coroutine import Coroutine
from penstock.operators.library import feedback
from penstock.operators.restarts import doubt
from penstock.plan.plan import make_plan

from ..how import how

LIMITS = {"a": 1}
SEEN: list[int] = []


def helper(row):
    return row


def of(process, **attributes) -> str:
    """Return why a function may not begin again as the process of an operator; empty where it may."""
    found = doubt(type("Made", (Coroutine,), {"process": process, **attributes})())
    return "" if found is None else str(found)


class Counting(Coroutine):
    """Change itself in a method."""

    def __init__(self):
        self.seen = 0

    def count(self):
        self.seen += 1

    async def process(self, ctx):
        while await ctx.wait_for_all({0: 1}):
            self.count()
            await ctx.emit(ctx.pop())


class TestProven:
    def test_all_that_the_library_has_but_for_what_is_declared(self):
        for operator in (
            library.Barrier(), library.Barrier(max), library.Gate(), library.Gate(hold=True), library.Switch(),
            library.Throttle(every=2), library.Throttle(per=3), library.Join("k"), library.Join(("a", helper)),
        ):  # fmt: skip
            assert doubt(operator) is None
        assert library.Zip.restartable
        assert library.Merge.restartable

    def test_one_loop_that_begins_with_its_wait(self):
        async def process(self, ctx):
            """Say what it does."""
            most, names = self.most * 2, [1, 2]
            need: dict[int, int] = dict.fromkeys(range(ctx.inputs), 1)
            while await ctx.wait_for_all(need):
                row = ctx.pop()
                total = 0
                for number in names:
                    total += number * LIMITS["a"]
                if row > most:
                    continue
                if row in LIMITS:
                    ctx.state["last"] = [helper(each) for each in (row, total)]
                with_state = ctx.state
                with_state["n"] = with_state.get("n", 0) + math.floor(row)
                await ctx.emit((row, total, max(names, key=lambda each: each * total)))
            await ctx.emit(ctx.state.get("n"))

        assert of(process, most=2) == ""

    def test_a_wait_that_the_state_chooses(self):
        async def process(self, ctx):
            while True:
                length = ctx.state.get("length", 1)
                if "length" in ctx.state:
                    more = await ctx.wait_for_all({0: length})
                else:
                    more = await ctx.wait_for_any({0: 1})
                if not more:
                    return
                ctx.state["length"] = ctx.pop()

        assert of(process) == ""

    def test_something_in_the_state_under_a_name(self):
        async def process(self, ctx):
            queue = ctx.state.setdefault("queue", deque())
            while await ctx.wait_for_all({0: 1}):
                queue.append(ctx.pop())

        async def started(self, ctx):
            if "n" not in ctx.state:
                ctx.state["n"] = 0
            while await ctx.wait_for_all({0: 1}):
                ctx.state["n"] += ctx.pop()

        assert of(process) == of(started) == ""

    def test_no_loop_at_all(self):
        async def process(self, ctx):
            if await ctx.wait_for_all({0: 2}):
                await ctx.emit(ctx.pop() + ctx.pop())

        assert of(process) == ""


def line_of(process, number: int) -> int:
    return process.__code__.co_firstlineno + number


class TestRefused:
    def test_a_local_across_two_waits(self):
        async def process(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                left = ctx.pop(0)
                if not await ctx.wait_for_all({1: 1}):
                    break
                await ctx.emit((left, ctx.pop(1)))

        line = line_of(process, 0)
        assert (
            f"the local variable 'left', bound on line {line + 2}, is read on line {line + 5} after the wait on line "
            f"{line + 3}" in of(process)
        )

    def test_a_local_that_counts(self):
        async def process(self, ctx):
            count = 0
            while await ctx.wait_for_all({0: 1}):
                ctx.pop()
                count += 1
                await ctx.emit(count)

        found = of(process)
        assert f"test_restarts.py:{line_of(process, 4)}: the local variable 'count'" in found
        assert f"bound on line {line_of(process, 1)}" in found
        assert "keep it in ctx.state" in found

    def test_a_local_of_the_round_before(self):
        async def process(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                if ctx.state.get("n"):
                    await ctx.emit(last)  # noqa: F821
                last = ctx.pop()  # noqa: F841
                ctx.state["n"] = 1

        async def sometimes(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                row = ctx.pop()
                if row > 2:
                    large = row
                await ctx.emit(large)

        async def behind(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                row = ctx.pop()
            await ctx.emit(row)

        assert "'last'" in of(process)
        assert "'large'" in of(sometimes)
        assert "'row'" in of(behind)

    def test_an_object_that_is_changed_in_place(self):
        async def local(self, ctx):
            seen = set()
            while await ctx.wait_for_all({0: 1}):
                seen.add(ctx.pop())

        async def counter(self, ctx):
            numbers = itertools.count()
            while await ctx.wait_for_all({0: 1}):
                await ctx.emit((next(numbers), ctx.pop()))

        async def alias(self, ctx):
            mine = self.table
            while await ctx.wait_for_all({0: 1}):
                mine[ctx.pop()] = 1

        async def of_self(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                self.table.update({ctx.pop(): 1})

        async def of_the_module(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                SEEN.append(ctx.pop())

        async def of_a_function(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                helper.rows.append(ctx.pop())

        assert "'seen'" in of(local)
        assert "'numbers'" in of(counter)
        assert "self.table" in of(alias, table={})
        assert "self.table" in of(of_self, table={})
        assert "SEEN" in of(of_the_module)
        helper.rows = []
        assert "helper.rows" in of(of_a_function)

    def test_self_or_a_global_that_is_changed(self):
        async def attribute(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                self.count = ctx.pop()

        async def item(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                LIMITS["a"] = ctx.pop()

        async def everywhere(self, ctx):
            global SEEN
            while await ctx.wait_for_all({0: 1}):
                SEEN = [ctx.pop()]

        async def given_away(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                helper(self)

        async def by_name(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                globals()["LIMITS"] = ctx.pop()

        assert "self.count is changed" in of(attribute)
        assert "LIMITS is changed in place" in of(item)
        assert "SEEN" in of(everywhere)
        assert "self is given away" in of(given_away)
        assert "globals()" in of(by_name)
        assert "self.count(): self.seen is changed" in str(doubt(Counting()))

    def test_waits_that_do_not_begin_the_loop(self):
        async def nested(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                for _ in range(ctx.pop()):
                    await ctx.wait_for_all({0: 1})

        async def twice(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                await ctx.wait_for_all({1: 1})
                ctx.pop(0), ctx.pop(1)

        async def behind(self, ctx):
            while await ctx.wait_for_all({0: 1}):
                ctx.pop()
            await ctx.wait_for_all({1: 1})

        async def emits_first(self, ctx):
            while True:
                await ctx.emit("again")
                if not await ctx.wait_for_all({0: 1}):
                    return

        async def looks_first(self, ctx):
            while True:
                port = 0 if ctx.len(0) else 1
                if not await ctx.wait_for_all({port: 1}):
                    return

        async def guarded(self, ctx):
            while True:
                try:
                    await ctx.wait_for_all({0: 1})
                finally:
                    ctx.pop()

        for process, number in ((nested, 3), (twice, 2), (behind, 3), (emits_first, 3), (looks_first, 3), (guarded, 3)):
            assert f"test_restarts.py:{line_of(process, number)}:" in of(process), process.__name__

    def test_what_is_done_before_the_loop(self):
        async def changes(self, ctx):
            ctx.state["starts"] = ctx.state.get("starts", 0) + 1
            while await ctx.wait_for_all({0: 1}):
                ctx.pop()

        async def looks(self, ctx):
            first = ctx.peek()
            while await ctx.wait_for_all({0: 1}):
                await ctx.emit(ctx.pop() - first)

        async def gone(self, ctx):
            ctx.state.setdefault("n", 0)
            while await ctx.wait_for_all({0: 1}):
                ctx.state.pop("n", None)
                ctx.pop()

        async def two_names(self, ctx):
            queue = ctx.state.setdefault("queue", [])
            while await ctx.wait_for_all({0: 1}):
                ctx.state["queue"] = []
                queue.append(ctx.pop())

        for process in (changes, looks, gone, two_names):
            assert "test_restarts.py" in of(process), process.__name__

    def test_what_cannot_be_read(self):
        space: dict = {}
        exec("async def process(self, ctx):\n    await ctx.wait_for_all({0: 1})\n", space)
        assert "source cannot be read" in of(space["process"])

    def test_other_awaitables(self):
        async def process(self, ctx):
            await helper(ctx)

        assert "awaits something else" in of(process)


class Pair(Coroutine):
    """C-Stream's way to write it."""

    inputs = 2

    async def process(self, ctx):
        while await ctx.wait_for_all({0: 1}):
            left = ctx.pop(0)
            if not await ctx.wait_for_all({1: 1}):
                break
            await ctx.emit((left, ctx.pop(1)))


class TestBeforeTheRun:
    def flow(self, operator, **options):
        flow = ps.Flow("test")
        a, b = flow.source("a", [1, 2]), flow.source("b", [3, 4])
        return ps.operate(operator, a, b, name="op", **options).sink("out")

    def test_nothing_runs_on_spark(self):
        with pytest.raises(
            FlowError, match=r"'op': Pair.process\(\).*Spark.*'left'.*ctx.state.*Threads.*restartable=True"
        ):
            ps.start(self.flow(Pair()))

    def test_it_runs_where_frames_live_on(self):
        for engine in ("sequential", "threads"):
            assert ps.run(self.flow(Pair()), **how(engine)).results["out"] == [(1, 3), (2, 4)]

    def test_who_knows_better_says_so(self):
        plan = make_plan(self.flow(Pair(), restartable=True))
        plan.check_restarts("somebody saves it")
        declared = type("Declared", (Pair,), {"restartable": False})
        with pytest.raises(FlowError, match="'op': Declared"):
            make_plan(self.flow(declared())).check_restarts("somebody saves it")

    def test_inside_a_feedback_too(self):
        def body(a, b, back):
            pairs = ps.operate(Pair(), a, b, name="inside")
            return pairs, ps.operate(library.Gate(), pairs, back)

        flow = ps.Flow("test")
        made = feedback(body, flow.source("a", [1]), flow.source("b", [2])).sink("out")
        with pytest.raises(FlowError, match="'inside': Pair"):
            make_plan(made).check_restarts("somebody saves it")
