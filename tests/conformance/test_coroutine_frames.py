"""Driver loops drawn at random: frames that live on mean what Python means, and what is proven to restart does.

A drawn `process` is run by a driver of a few lines, by the sequential engine, and in threads: cut anywhere, by any
number of workers, put aside wherever it can be. Where the proof says that it may begin again at its waits, it is also
begun again at each of them, saved and read in between.
"""

from __future__ import annotations

import itertools
import linecache
import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import OperatorError
from penstock.operators import coroutine
from penstock.operators.restarts import doubt
from penstock.plan.plan import make_plan
from penstock.sequential import SequentialEngine
from penstock.testing.torture import Trial
from penstock.threads.settings import Settings

FEW_WAITS = 60
names = st.sampled_from(["a", "b"])
ports = st.sampled_from([0, 1])
counts = st.integers(1, 2)
_files = itertools.count()


@st.composite
def expressions(draw: Any) -> str:
    kind = draw(st.sampled_from(["name", "number", "length", "state", "attribute", "closed", "time"]))
    if kind == "name":
        return str(draw(names))
    if kind == "length":
        return f"ctx.len({draw(ports)})"
    if kind == "closed":
        return f"ctx.closed({draw(ports)})"
    return {"number": str(draw(st.integers(0, 3))), "state": "ctx.state.get('s', 0)", "time": "ctx.time"}.get(
        kind, "self.step"
    )


@st.composite
def waits(draw: Any) -> str:
    counted = draw(
        st.dictionaries(ports, st.one_of(counts.map(str), st.just("1 + ctx.state.get('s', 0) % 2")), min_size=1)
    )
    inside = ", ".join(f"{port}: {count}" for port, count in counted.items())
    return f"await ctx.wait_for_{draw(st.sampled_from(['all', 'any']))}({{{inside}}})"


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


@st.composite
def statements(draw: Any, depth: int) -> list[str]:
    kind = draw(
        st.sampled_from(
            ["pop", "pop", "emit", "bind", "add", "state", "wait", "if", "for", "loop", "continue", "attribute"]
            if depth
            else ["pop", "pop", "emit", "bind", "add", "state", "wait"]
        )
    )
    name, port, value = draw(names), draw(ports), draw(expressions())
    if kind == "pop":
        return [f"if ctx.len({port}):", f"    {draw(st.sampled_from([name, 'row']))} = ctx.pop({port}).v"]
    if kind == "emit":
        return [f"await ctx.emit(({draw(st.integers(0, 9))}, {value}, {draw(expressions())}))"]
    if kind == "bind":
        return [f"{name} = {value}"]
    if kind == "add":
        return [f"{name} += {value}"]
    if kind == "state":
        return [f"ctx.state['s'] = {value}"]
    if kind == "wait":
        way = draw(st.sampled_from(["stop", "bind", "ignore"]))
        wait = draw(waits())
        return {"stop": [f"if not {wait}:", "    return"], "bind": [f"{name} = {wait}"], "ignore": [wait]}[way]
    if kind == "attribute":
        return ["self.step += 1"] if draw(st.booleans()) else [f"{name} = self.step"]
    inside = draw(blocks(depth - 1))
    if kind == "if":
        return [f"if {value}:", *indented(inside), "else:", *indented(draw(blocks(depth - 1)))]
    if kind == "for":
        return ["for _ in range(2):", *indented(inside)]
    if kind == "loop":
        return [
            f"while {draw(waits())}:",
            *indented(inside),
            f"    if ctx.len({port}):",
            f"        ctx.pop({port})",
            "    else:",
            "        break",
        ]
    return ["if ctx.state.get('s', 0) > 2:", "    ctx.state['s'] = 0"]


@st.composite
def blocks(draw: Any, depth: int) -> list[str]:
    return [line for part in draw(st.lists(statements(depth), min_size=1, max_size=3)) for line in part]


@st.composite
def programs(draw: Any) -> str:
    """Draw the source of a process()."""
    before = draw(st.sampled_from([["a = b = 0"], ["a = 0"], [], ["ctx.state.setdefault('s', 1)"], ["b = 2"]]))
    begin = draw(
        st.sampled_from([[f"while {draw(waits())}:"], ["while True:", f"    if not {draw(waits())}:", "        break"]])
    )
    loop = [*begin, *indented(draw(blocks(2)))]
    last = draw(st.sampled_from([[], ["await ctx.emit(('end', ctx.state.get('s')))"], ["await ctx.emit(('end', a))"]]))
    return "\n".join(["async def process(self, ctx):", *indented([*before, *loop, *last])]) + "\n"


def operator_of(source: str) -> ps.Coroutine:
    """Make an operator of the source of its process(), which can be read again."""
    name = f"<drawn {next(_files)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space: dict[str, Any] = {}
    exec(compile(source, name, "exec"), space)
    return type("Drawn", (ps.Coroutine,), {"inputs": 2, "process": space["process"], "step": 1})()  # type: ignore[no-any-return]


class Plain:
    """The context of a driver of a few lines: what a wait means."""

    def __init__(self) -> None:
        self.state: Any = {}
        self.ports: list[list[Any]] = [[], []]
        self.shut: set[int] = set()
        self.out: list[Any] = []
        self.time = 0
        self.spins = 0

    def pop(self, port: int) -> Any:
        self.spins = 0
        return self.ports[port].pop(0)

    def len(self, port: int) -> int:
        return len(self.ports[port])

    def closed(self, port: int) -> bool:
        return port in self.shut

    async def emit(self, row: Any) -> None:
        self.out.append(row)

    def wait_for_all(self, counts: dict[int, int]) -> _Until:
        return _Until(self, all, any, counts)

    def wait_for_any(self, counts: dict[int, int]) -> _Until:
        return _Until(self, any, all, counts)


class _Until:
    def __init__(self, ctx: Plain, there: Any, never: Any, counts: dict[int, int]) -> None:
        self.ctx, self.there, self.never, self.counts = ctx, there, never, counts

    def __await__(self) -> Any:
        while True:
            enough = {port: self.ctx.len(port) >= count for port, count in self.counts.items()}
            self.ctx.spins += 1
            if self.ctx.spins > FEW_WAITS:
                raise TimeoutError
            if self.there(enough.values()):
                return True
            if self.never(port in self.ctx.shut for port, there in enough.items() if not there):
                return False
            yield
            self.ctx.spins = 0


def plainly(operator: ps.Coroutine, rows: list[tuple[int, int]]) -> tuple[list[Any], str | None]:
    """Drive a process() as simply as can be: row by row, then the ends of both ports."""
    ctx: Any = Plain()
    routine = None
    waiting = True

    kept = 0

    def go() -> bool:
        nonlocal kept
        kept = len(ctx.out)  # what is emitted for a row that fails does not come out
        try:
            routine.send(None)  # type: ignore[union-attr]
        except StopIteration:
            return False
        return True

    try:
        for number, (port, value) in enumerate(rows):
            ctx.ports[port].append(_Row(number, value))
            if routine is None:
                routine = operator.process(ctx)
            waiting = waiting and go()
        for port in (0, 1):
            ctx.shut.add(port)
            waiting = waiting and routine is not None and go()
    except TimeoutError:
        assume(False)
    except Exception as error:
        return ctx.out[:kept], type(error).__name__
    finally:
        if routine is not None:
            routine.close()
    return ctx.out, None


class _Row:
    def __init__(self, o: int, v: int) -> None:
        self.o, self.v = o, v


def flow_of(operator: ps.Coroutine, rows: list[tuple[int, int]]) -> ps.Flow:
    flow = ps.Flow("drawn")
    placed = [(port, {"o": number, "v": value}) for number, (port, value) in enumerate(rows)]
    streams = [
        flow.source(name, [row for at, row in placed if at == port], schema={"o": int, "v": int}, order_by="o")
        for port, name in enumerate("ab")
    ]
    return ps.operate(operator, *streams, name="op").sink("out")


def sequentially(
    operator: ps.Coroutine, rows: list[tuple[int, int]], *, frames: bool = True
) -> tuple[list[Any], str | None]:
    plan = make_plan(flow_of(operator, rows))
    engine = SequentialEngine(plan)
    engine.keeps_frames = frames
    declared = plan.nodes["a"].types[0]
    assert declared is not None
    try:
        for number, (port, value) in enumerate(rows):
            engine.row("ab"[port], declared.roundtrip({"o": number, "v": value}))
            if not frames:
                engine._keyed = pickle.loads(pickle.dumps(engine._keyed))
        for name in "ab":
            engine.end(name)
            if not frames:
                engine._keyed = pickle.loads(pickle.dumps(engine._keyed))
    except OperatorError as error:
        if "times with no row popped" in str(error):
            assume(False)
        return engine.results["out"], error.error.split(":")[0]
    finally:
        engine.close()
    return engine.results["out"], None


def in_threads(
    operator: ps.Coroutine, rows: list[tuple[int, int]], cuts: list[int], how: Settings
) -> tuple[list[Any], str | None]:
    plan = make_plan(flow_of(operator, rows))
    trial = Trial(plan, how)
    sequence = [("ab"[port], {"o": number, "v": value}) for number, (port, value) in enumerate(rows)]
    try:
        batches, start = [], 0
        for stop in [*sorted({cut for cut in cuts if cut < len(rows)}), len(rows)]:
            batches += trial.parts(sequence[start:stop])
            start = stop
        trial.run([*batches, trial.ends("a"), trial.ends("b")])
    except OperatorError as error:
        return trial.results["out"], error.error.split(":")[0]
    finally:
        trial.close()
    return trial.results["out"], None


SETTINGS = [
    Settings(model="manual", capacity=1),
    Settings(workers=3, capacity=1, quantum=0.0),
    Settings(model="dedicated", capacity=2),
    Settings(model="bound", workers=2, quantum=0.0),
]
drawn_rows = st.lists(st.tuples(ports, st.integers(0, 3)), max_size=10)


@pytest.fixture(autouse=True)
def few_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coroutine, "PATIENCE", FEW_WAITS)


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(source=programs(), rows=drawn_rows, cuts=st.lists(st.integers(1, 9), max_size=4), how=st.sampled_from(SETTINGS))
def test_a_frame_lives_on(source: str, rows: list[tuple[int, int]], cuts: list[int], how: Settings) -> None:
    meant = plainly(operator_of(source), rows)
    assert sequentially(operator_of(source), rows) == meant
    found, error = in_threads(operator_of(source), rows, cuts, how)
    assert error == meant[1]
    assert found == meant[0] if error is None else found == meant[0][: len(found)]


@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(source=programs(), rows=drawn_rows)
def test_what_is_proven_to_restart_does(source: str, rows: list[tuple[int, int]]) -> None:
    proven = doubt(operator_of(source)) is None
    event(f"proven: {proven}")
    if proven:
        assert sequentially(operator_of(source), rows, frames=False) == sequentially(operator_of(source), rows)
