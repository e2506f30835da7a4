"""A function that raises `StopIteration` fails as with any other error, with its line and row, on every engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps

from ..how import how
from ..spark.running import run_inline

N = {"n": int}


def stops(row: Any) -> int:
    if row.n == 3:
        raise StopIteration("no more")
    return int(row.n)


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "map": lambda rows: rows.map(lambda row: {"n": stops(row)}, schema=N),
    "map, undeclared": lambda rows: rows.map(stops),
    "filter": lambda rows: rows.filter(lambda row: stops(row) >= 0),
    "flat_map": lambda rows: rows.flat_map(lambda row: [{"n": stops(row)}], schema=N),
    "split": lambda rows: rows.split(lambda row: stops(row) < 2)[0],
    "scan": lambda rows: rows.key_by("n").scan(lambda n, row: (n, {"n": stops(row)}), 0, schema=N, name="s"),
    "key": lambda rows: rows.key_by(stops).scan(lambda n, row: (n + 1, {"n": n}), 0, schema=N, name="s"),
    "aggregate": lambda rows: rows.key_by("n").aggregate(s=ps.agg.sum(stops), name="s"),
    "where": lambda rows: rows.key_by("n").aggregate(s=ps.agg.count(where=stops), name="s"),
}


def message(operator: str, engine: str, place: Any) -> str:
    flow = ps.Flow("stops")
    rows = flow.source("rows", ps.read.items([{"n": n} for n in range(6)], schema=N))
    OPERATORS[operator](rows).sink("out", ps.write.memory())
    with pytest.raises(ps.OperatorError) as error:
        run_inline(flow, place / "ck") if engine == "inline" else ps.run(flow, **how(engine))
    return str(error.value)


@pytest.mark.parametrize("engine", ["threads", "inline"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_it_is_an_error_like_any_other(tmp_path, operator, engine):
    found = message(operator, engine, tmp_path)
    assert "StopIteration: no more; row: Row(n=3)" in found
    assert found == message(operator, "sequential", tmp_path)


@pytest.mark.parametrize("engine", ["sequential", "threads", "inline"])
def test_one_that_only_stops_once_fails_too(tmp_path, engine):
    """What it raised is gone by the time that it is asked for, and must not be taken for the end of the rows."""
    calls = []

    def once(row: Any) -> dict[str, int]:
        calls.append(row.n)
        if row.n == 3 and calls.count(3) == 1:
            raise StopIteration
        return {"n": row.n}

    OPERATORS["once"] = lambda rows: rows.map(once, schema=N)
    assert "StopIteration" in message("once", engine, tmp_path)
