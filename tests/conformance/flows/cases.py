"""What a case is, and the rows that many of them share."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
from collections.abc import Callable
from typing import Any

from penstock import read
from penstock.flow import Flow, Stream

from ..engines import Epochs, cut
from ..inline import Arriving

Rows = dict[str, list[Any]]
Reader = Callable[[list[Any]], Any]
"""Makes a source of rows."""


class Sources:
    """The sources of a flow that is being built."""

    def __init__(self, name: str, rows: Rows, reader: Reader | None = None) -> None:
        self.flow, self.rows, self._reader = Flow(name), rows, reader

    def __call__(self, name: str = "in", **options: Any) -> Stream:
        """Add a source with the rows that the case has for it.

        Unless the test wants another kind, rows of several sources come in the epochs of the case: they go on.
        """
        arrives = len(self.rows) > 1 and "order_by" not in options
        reader = self._reader or (Arriving if arrives else read.items)
        return self.flow.source(name, reader(self.rows[name]), **options)


@dataclasses.dataclass(frozen=True)
class Case:
    """One flow, its input, and how that is cut."""

    name: str
    build: Callable[[Sources], Any]
    rows: Rows
    sizes: tuple[dict[str, int], ...]
    expects: dict[str, list[Any]] | None
    fails: bool

    def flow(self, reader: Reader | None = None) -> Flow:
        """Build the flow anew, over sources of some kind."""
        sources = Sources(self.name.replace("_", " "), self.rows, reader)
        self.build(sources)
        return sources.flow

    def epochs(self) -> Epochs:
        """Return the rows in the epochs of this case."""
        return cut(self.rows, self.sizes)


CASES: dict[str, Case] = {}


def case(
    rows: list[Any] | Rows,
    sizes: tuple[int, ...] | tuple[dict[str, int], ...] = (3, 4),
    *,
    expects: dict[str, list[Any]] | list[Any] | None = None,
    fails: bool = False,
) -> Callable[[Callable[[Sources], Any]], Callable[[Sources], Any]]:
    """Make a case of a function. One source is named "in", one sink "out"; sizes are those of the first epochs."""
    by_source = rows if isinstance(rows, dict) else {"in": rows}
    all_sizes = tuple(size if isinstance(size, dict) else dict.fromkeys(by_source, size) for size in sizes)
    wanted = {"out": expects} if isinstance(expects, list) else expects

    def register(build: Callable[[Sources], Any]) -> Callable[[Sources], Any]:
        name = build.__name__
        assert name not in CASES, name
        CASES[name] = Case(name, build, by_source, all_sizes, wanted, fails)
        return build

    return register


def events(count: int, *, seed: int = 0, keys: int = 4, disorder: int = 0, step: int = 3) -> list[dict[str, int]]:
    """Make rows (t, k, v): times rise by up to `step`, and are then put back by up to `disorder`."""
    draw = random.Random(seed)
    time, rows = 0, []
    for _ in range(count):
        time += draw.randint(0, step)
        rows.append({"t": time - draw.randint(0, disorder), "k": draw.randrange(keys), "v": draw.randint(-5, 9)})
    return rows


def two(count: int, **options: Any) -> Rows:
    """Make rows for the sources a and b."""
    return {"a": events(count, seed=1, **options), "b": events(count, seed=2, **options)}


EVENTS = events(24)
MESSY = events(30, seed=5, disorder=8)
UNEVEN = ({"a": 3, "b": 0}, {"a": 0, "b": 5}, {"a": 2, "b": 2}, {"a": 0, "b": 0}, {"a": 4, "b": 1})
ZEROS = [{**row, "v": row["v"] % 4} for row in EVENTS]

MOMENTS = [
    {"at": dt.datetime(2024, 3, 1, 12, minute, second, tzinfo=dt.UTC), "k": minute % 2}
    for minute, second in [(0, 5), (3, 0), (1, 30), (9, 59), (10, 0), (8, 0), (25, 1), (24, 59)]
]


def inverse(row: Any) -> float:
    """Fail where v is 0."""
    return 60 / row.v
