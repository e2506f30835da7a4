"""Outputs of keyed functions come out alike in every form, also where they are the state itself."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Coroutine, Process, agg, operate, read, sliding
from penstock.errors import PenstockError
from penstock.flow import Flow
from penstock.rows.records import RowType, make_record
from penstock.testing.kit import assert_same

from .checking import check
from .engines import REFERENCE, Engine, Threads, cut, whole
from .inline import Inline

ENGINES = [
    Engine("threads", Threads(50, model="manual")),
    Engine("partitions", Threads(7, workers=2, partitions=3)),
    Engine("inline", Inline(tasks=2, seed=3)),
]
INPUT = {"k": int, "i": int, "f": float}
OUTPUT = {"k": int, "n": int, "total": float, "text": str}


class Typed(TypedDict):
    k: int
    n: int
    total: float
    text: str


class Named(NamedTuple):
    k: int
    n: int
    total: float
    text: str


@dataclass
class Data:
    k: int
    n: int
    total: float
    text: str


@dataclass(frozen=True, slots=True)
class Frozen:
    k: int
    n: int
    total: float
    text: str


Turned = namedtuple("Turned", ["text", "total", "n", "k"])
NAMES = tuple(OUTPUT)
FORMS: dict[str, Callable[..., Any]] = {
    "dict": lambda *v: dict(zip(NAMES, v, strict=True)),
    "turned dict": lambda *v: dict(reversed(list(zip(NAMES, v, strict=True)))),
    "tuple": lambda *v: v,
    "record": lambda *v: make_record(NAMES, v),
    "named": Named,
    "turned": lambda *v: Turned(*reversed(v)),
    "data": Data,
    "frozen": Frozen,
    "short": lambda *v: v[:3],
    "other key": lambda *v: dict(zip(("k", "n", "total", "texts"), v, strict=True)),
    "more keys": lambda *v: {**dict(zip(NAMES, v, strict=True)), "more": 1},
    "no row": lambda *v: v[0],
    "other class": lambda *v: Turned(*v)._replace(k="a") if v[1] % 2 else v,
}
GOOD = ["dict", "turned dict", "tuple", "record", "named", "turned", "data", "frozen"]
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROWS = st.lists(
    st.builds(lambda k, i, f: {"k": k, "i": i, "f": f}, st.integers(0, 2), st.integers(0, 9), st.floats(-9, 9)),
    min_size=1,
    max_size=25,
)


def run_all(flow: Flow, rows: list[Any], size: int = 9) -> None:
    epochs = cut({"in": rows}, [{"in": size}] * (len(rows) // size))
    for engine in ENGINES:
        check(engine, flow, epochs)


def keyed(rows: list[Any]) -> Any:
    return Flow("forms").source("in", read.items(rows, schema=INPUT)).key_by("k")


def made(forms: list[str], state: tuple[int, float], row: Any) -> Any:
    return FORMS[forms[row.i % len(forms)]](row.k, state[0] + 1, state[1] + row.f, "é" * (row.i % 3))


class TestForms:
    @quick
    @given(ROWS, st.lists(st.sampled_from(list(FORMS)), min_size=1, max_size=3), st.sampled_from(["fail", "skip"]))
    def test_scan_gives_what_the_sequential_engine_gives(self, rows: Any, forms: list[str], on_error: str) -> None:
        def step(state: tuple[int, float], row: Any) -> Any:
            return (state[0] + 1, state[1] + row.f), made(forms, state, row)

        stream = keyed(rows).scan(step, (0, 0.0), schema=OUTPUT, on_error=on_error)
        stream.sink("out")
        stream.map(repr).sink("seen")
        run_all(stream.flow, rows)

    @quick
    @given(ROWS, st.lists(st.sampled_from(list(FORMS)), min_size=1, max_size=3), st.sampled_from(["fail", "skip"]))
    def test_flat_scan_does(self, rows: Any, forms: list[str], on_error: str) -> None:
        def step(state: tuple[int, float], row: Any) -> Any:
            return (state[0] + 1, state[1] + row.f), [made(forms, state, row)] * (row.i % 3)

        stream = keyed(rows).flat_scan(step, (0, 0.0), schema=OUTPUT, on_error=on_error)
        stream.sink("out")
        run_all(stream.flow, rows)


ALIASED = [{"k": i % 2, "i": i, "f": 0.5} for i in range(40)]


def as_dict(state: dict[str, Any], row: Any) -> Any:
    state.update(k=row.k, n=state["n"] + 1, total=state["total"] + row.f, text="")
    return state, state


def as_typed(state: dict[str, Any], row: Any) -> tuple[dict[str, Any], Typed]:
    return as_dict(state, row)  # type: ignore[no-any-return]


def as_data(state: Data, row: Any) -> Any:
    state.k, state.n, state.total = row.k, state.n + 1, state.total + row.f
    return state, state


def as_annotated(state: Data, row: Any) -> tuple[Data, Data]:
    return as_data(state, row)  # type: ignore[no-any-return]


def as_list(state: list[int], row: Any) -> Any:
    state.append(row.i)
    return state, {"k": row.k, "items": state}


class Read(NamedTuple):
    k: int
    items: bytes


def as_bytes(state: bytearray, row: Any) -> Any:
    state.append(row.i)
    return state, (row.k, state)


def as_named_bytes(state: bytearray, row: Any) -> tuple[bytearray, Read]:
    state.append(row.i)
    return state, Read(row.k, state)


class TestOutputsThatAreTheState:
    """A function may change its state in place: what it has returned before stays as it was."""

    @pytest.mark.parametrize(
        ("step", "begin", "schema"),
        [
            (as_dict, lambda: {"n": 0, "total": 0.0}, OUTPUT),
            (as_typed, lambda: {"n": 0, "total": 0.0}, None),
            (as_data, lambda: Data(0, 0, 0.0, ""), OUTPUT),
            (as_annotated, lambda: Data(0, 0, 0.0, ""), None),
            (as_list, list, {"k": int, "items": list[int]}),
            (as_bytes, bytearray, {"k": int, "items": bytes}),
            (as_named_bytes, bytearray, None),
        ],
    )
    def test_scan(self, step: Any, begin: Any, schema: Any) -> None:
        stream = keyed(ALIASED).scan(step, begin, **({} if schema is None else {"schema": schema}))
        stream.sink("out")
        run_all(stream.flow, ALIASED)
        rows = REFERENCE.run(stream.flow, whole({"in": ALIASED}))["out"]
        if step in (as_bytes, as_named_bytes):
            assert [len(row.items) for row in rows] == [i // 2 + 1 for i in range(40)]
        elif step is not as_list:
            counts = [row["n"] if isinstance(row, dict) else row.n for row in rows]
            assert counts == [i // 2 + 1 for i in range(40)]

    @pytest.mark.parametrize(
        ("function", "begin", "schema"),
        [
            (as_dict, lambda: {"n": 0, "total": 0.0}, OUTPUT),
            (as_bytes, bytearray, {"k": int, "items": bytes}),
            (as_named_bytes, bytearray, Read),
        ],
    )
    def test_flat_scan(self, function: Any, begin: Any, schema: Any) -> None:
        def step(state: Any, row: Any) -> Any:
            state, output = function(state, row)
            return state, [output]

        stream = keyed(ALIASED).flat_scan(step, begin, schema=schema)
        stream.sink("out")
        run_all(stream.flow, ALIASED)

    def test_reduce(self) -> None:
        def step(held: Typed, row: Typed) -> Typed:
            held["n"] += 1
            held["total"] += row["total"]
            return held

        events = Flow("forms").source("in", read.items(ALIASED, schema=INPUT))
        first = events.map(lambda row: FORMS["dict"](row.k, 1, row.f, ""), schema=Typed)
        stream = first.key_by("k").reduce(step)
        stream.sink("out")
        run_all(stream.flow, ALIASED)


class Counting(Process):
    def on_row(self, row: Any, context: Any) -> None:
        context.state = context.state or {"n": 0}
        context.state["n"] += 1
        context.emit(context.state)


class Looping(Coroutine):
    async def process(self, ctx: Any) -> None:
        state = ctx.state.setdefault("held", {"n": 0})
        while await ctx.wait_for_all({0: 1}):
            ctx.pop(0)
            state["n"] += 1
            await ctx.emit(state)


def counted(state: dict[str, int], row: Any) -> Any:
    state["n"] = state.get("n", 0) + 1
    return state


def folded(stream: Any) -> Any:
    return stream.aggregate(at=agg.fold(dict, counted)).map(lambda row: row.at)


OWN_STATE: dict[str, Callable[[Any], Any]] = {
    "scan": lambda stream: stream.scan(lambda state, row: (counted(state, row), state), dict),
    "inside": lambda stream: stream.scan(lambda s, row: (counted(s, row), (row.i, s)), dict).map(lambda row: row[1]),
    "flat_scan": lambda stream: stream.flat_scan(lambda state, row: (counted(state, row), [state]), dict),
    "reduce": lambda stream: stream.map(lambda row: {"n": 1}).reduce(counted),
    "process": lambda stream: stream.process(Counting),
    "coroutine": lambda stream: operate(Looping(), stream),
    "fold": folded,
}


class TestUndeclaredOutputsThatAreTheState:
    """So it is where nothing says what rows are: each is as it was when it was given away, however rows are cut."""

    @pytest.mark.parametrize("name", OWN_STATE)
    def test_stay_as_they_were(self, name: str) -> None:
        stream = OWN_STATE[name](Flow("forms").source("in", read.items(ALIASED, schema=INPUT)))
        stream.sink("out")
        for engine in (REFERENCE, *ENGINES):
            rows = engine.run(stream.flow, whole({"in": ALIASED}))["out"]
            assert rows == [{"n": n + 1} for n in range(40)], engine.name

    @pytest.mark.parametrize("window", [sliding(8, 4), None])
    def test_the_row_that_a_reduce_begins_with_is_not_changed(self, window: Any) -> None:
        rows = Flow("forms").source("in", read.items(ALIASED, schema=INPUT), time="i").map(lambda row: {"n": row.i})
        into = rows if window is None else rows.window(window)
        into.reduce(counted, name="changed").map(lambda row: 0).sink("out")
        rows.sink("rows")
        for engine in (REFERENCE, *ENGINES):
            found = engine.run(rows.flow, whole({"in": ALIASED}))["rows"]
            assert found == [{"n": i} for i in range(40)], engine.name

    @pytest.mark.parametrize("windowed", [False, True])
    def test_a_reduce_of_records_may_return_a_dict_of_their_fields(self, windowed: bool) -> None:
        texts = [{"i": i, "k": "k", "text": "text"} for i in range(4)]
        stream = Flow("forms").source("in", read.items(texts, schema={"i": int, "k": str, "text": str}), time="i")
        into = stream.window(100) if windowed else stream
        into.reduce(lambda one, row: {"i": row.i, "k": row.k, "text": one.text + "!"}, name="longer").sink("out")
        meant = [(i, "k", "text" + "!" * i) for i in range(4)]
        for engine in (REFERENCE, *ENGINES):
            found = engine.run(stream.flow, whole({"in": texts}))["out"]
            assert found == (meant[-1:] if windowed else meant), engine.name


VALUES = st.tuples(st.integers(-5, 5) | st.none(), st.integers(-5, 5), st.floats(-1, 1), st.sampled_from(["", "é"]))


class TestColumns:
    """Columns of many rows are those of the rows one by one, and so are the errors."""

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(list(FORMS)), VALUES), min_size=1, max_size=12))
    def test_columns_of_any_forms(self, drawn: list[tuple[str, Any]]) -> None:
        from penstock.rows.row_types import row_type

        declared = row_type(OUTPUT, "test")
        assert declared is not None
        rows = [FORMS[form](*values) for form, values in drawn]
        try:
            expected = [declared.decode(declared.encode([row]))[0] for row in rows]
        except PenstockError as error:
            with pytest.raises(type(error)):
                declared.encode(rows)
        else:
            assert_same({"": expected}, {"": declared.decode(declared.encode(rows))})
            assert_same({"": expected}, {"": [declared.normalize(row) for row in rows]})

    def test_classes_are_told_apart(self) -> None:
        from penstock.rows.row_types import row_type

        declared: RowType | None = row_type(OUTPUT, "test")
        assert declared is not None
        assert declared.is_values(Named)
        assert not declared.is_values(Turned)
        assert declared.reader(Data) is not None
        assert declared.reader(Turned) is None
