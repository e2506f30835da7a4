"""Forms of rows."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any, NamedTuple, TypedDict

import pyarrow.compute as pc

from penstock.operators import aggregates as agg
from penstock.operators.windows import Count

from .cases import EVENTS, Sources, case


class Thing:
    """An object that no schema describes."""

    def __init__(self, name: str, inside: Any) -> None:
        self.name, self.inside = name, inside

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass
class Reading:
    """A dataclass row."""

    t: int
    place: str
    value: float | None = None


class Step(NamedTuple):
    """A named tuple row."""

    place: str
    count: int


class Note(TypedDict):
    """A dict row."""

    place: str
    text: str


def read_event(row: Any) -> Reading:
    """Make a dataclass of a record."""
    return Reading(row.t, "NESW"[row.k], None if row.v < 0 else row.v)


def count_places(count: int, row: Reading) -> tuple[int, Step]:
    """Number the readings of a place."""
    return count + 1, Step(row.place, count + 1)


def annotate(step: Step) -> list[Note]:
    """Write a note or two."""
    return [{"place": step.place, "text": f"{i} of {step.count}"} for i in range(step.count % 3)]


@case(EVENTS)
def dataclass_named_tuple_and_typed_dict(s: Sources) -> None:
    readings = s(time="t").map(read_event)
    readings.sink("readings")
    steps = readings.key_by("place").scan(count_places, 0)
    steps.sink("steps")
    notes = steps.flat_map(annotate)
    notes.sink("notes")
    notes.key_by("place").aggregate(n=agg.count(), last=agg.last("text")).sink("counts")


@case([Reading(3, "N", 1.5), Reading(1, "S"), Reading(9, "N", 2.5)], (1, 1))
def a_source_of_dataclasses(s: Sources) -> None:
    s(time="t", slack=5).key_by("place").window(5).sum("value").sink("out")


@case([Step("N", 1), Step("S", 2), Step("N", 3)], (2,))
def a_source_of_named_tuples(s: Sources) -> None:
    stream = s()
    stream.key_by("place").reduce(lambda a, b: a._replace(count=a.count + b.count)).sink("out")
    stream.sink("raw")


@case(EVENTS)
def undeclared_objects_cross_a_shuffle(s: Sources) -> None:
    things = s(time="t").map(lambda r: Thing(f"n{r.k}", {"v": r.v, "deep": [r.t, (1, {2})]}))
    kept = things.key_by("name").scan(lambda last, x: (x, Thing(x.name, (last and last.inside, x.inside))))
    kept.sink("out")
    things.window(6).apply(lambda w, rows: [x.inside["v"] for x in rows]).sink("windows out")


@case([1, "two", 3.0, None, (4, "five"), {"six": 7}, [8], {9}], (3, 2))
def rows_of_mixed_types(s: Sources) -> None:
    s().scan(lambda n, row: (n + 1, (n, row)), 0).sink("out")


@case(
    [
        {
            "b": bool(i % 2),
            "f": i / 4,
            "s": "é" * i,
            "y": bytes([i]),
            "l": list(range(i)),
            "d": {"x": i},
            "at": dt.datetime(2024, 1, 1, i),
            "on": dt.date(2024, 1, 1 + i),
            "none": None,
        }
        for i in range(5)
    ],
    (2,),
)
def records_of_every_type(s: Sources) -> None:
    stream = s()
    stream.sink("raw")
    stream.scan(lambda last, r: (r.l, (last, r.d, r.at))).sink("scan out")
    stream.key_by("b").reduce(lambda a, _: a).sink("reduce out")


@case(EVENTS)
def declared_types_apply_before_state_and_sinks(s: Sources) -> None:
    """An integer in a float field becomes a float there, for all engines alike."""
    stream = s().key_by("k").scan(lambda n, r: (n + 1, {"x": n, "k": r.k}), 0, schema={"x": float, "k": int})
    stream.sink("direct")
    stream.key_by("k").scan(lambda n, r: (n, repr(r.x)), 0).sink("keyed")


@case(EVENTS)
def declared_types_do_not_apply_elsewhere(s: Sources) -> None:
    """Between operators without memory, and behind state, rows are what the function returned."""
    stream = s(time="t")
    scanned = stream.key_by("k").scan(lambda n, r: (n + 1, {"x": n}), 0, schema={"x": float})
    scanned.map(lambda r: repr(r.x)).sink("scanned")
    windows = stream.window(Count(2)).apply(lambda w, rows: {"x": w.start}, schema={"x": float})
    windows.map(lambda r: repr(r.x)).sink("windows out")
    mapped = stream.map(lambda r: {"x": r.v}, schema={"x": float})
    mapped.filter(pc.field("x") > 2).map(lambda r: repr(r.x)).sink("mapped")
    mapped.select("x").map(lambda r: repr(r.x)).sink("selected")
