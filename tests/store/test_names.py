"""Whose state is whose: names that do not depend on what else is in the flow, or a refusal that says how."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.plan.plan import make_plan
from penstock.store.identity import check_names

from ..spark.running import make_engine, make_rows, run_inline, write_files


def count(state: int, row: Any = None) -> tuple[int, int]:
    return state + 1, state


def last(_: Any, row: Any) -> Any:
    return row


def same(row: Any) -> Any:
    return row


class Tally:
    def __call__(self, state: int, row: Any) -> tuple[int, int]:
        return state + 1, state


Building = Callable[[ps.Stream], Any]


def build(*parts: Building) -> ps.Flow:
    flow = ps.Flow("names")
    rows = flow.source("rows", ps.read.items([{"k": 1, "t": 1, "v": 1.0}]), time="t")
    for number, part in enumerate(parts):
        part(rows).sink(f"out {number}")
    return flow


NAMED: dict[str, list[Building]] = {
    "a function": [lambda rows: rows.key_by("k").scan(count, 0)],
    "an object": [lambda rows: rows.key_by("k").scan(Tally(), 0)],
    "windows that are declared": [lambda rows: rows.key_by("k").window(6).aggregate(n=ps.agg.count())],
    "one of each kind": [
        lambda rows: rows.key_by("k").window(6).aggregate(n=ps.agg.count()),
        lambda rows: rows.key_by("k").aggregate(n=ps.agg.count()),
        lambda rows: rows.sort(),
    ],
    "a lambda with name=": [lambda rows: rows.key_by("k").scan(lambda s, r: (s, s), 0, name="mine")],
    "a lambda without memory": [lambda rows: rows.map(lambda row: row), lambda rows: rows.filter(lambda row: True)],
}
NAMELESS: dict[str, list[Building]] = {
    "scan of a lambda": [lambda rows: rows.key_by("k").scan(lambda s, r: (s, s), 0)],
    "scan of a partial": [lambda rows: rows.key_by("k").scan(partial(count), 0)],
    "reduce of a lambda": [lambda rows: rows.reduce(lambda a, b: b)],
    "window of a lambda": [lambda rows: rows.key_by("k").window(6).reduce(lambda a, b: b)],
    "join of a lambda": [lambda rows: rows.key_by("k").join(rows.key_by("k"), 6, lambda a, b: a)],
}
NUMBERED: dict[str, list[Building]] = {
    "one function twice": [lambda rows: rows.scan(count, 0), lambda rows: rows.key_by("k").scan(count, 0)],
    "two windows": [
        lambda rows: rows.key_by("k").window(6).count(),
        lambda rows: rows.window(6).count(),
    ],
    "a function that another operator has, too": [lambda rows: rows.map(count), lambda rows: rows.scan(count, 0)],
}


@pytest.mark.parametrize("parts", NAMED.values(), ids=list(NAMED))
def test_names_that_say_what_they_are_are_kept(parts):
    check_names(make_plan(build(*parts)))


@pytest.mark.parametrize("parts", NAMELESS.values(), ids=list(NAMELESS))
def test_a_function_without_a_name_needs_one(parts):
    with pytest.raises(ps.FlowError, match=r"'(scan|reduce|window|join)' keeps .* lambda or a partial.*name="):
        check_names(make_plan(build(*parts)))


@pytest.mark.parametrize("parts", NUMBERED.values(), ids=list(NUMBERED))
def test_a_number_is_no_name(parts):
    with pytest.raises(ps.FlowError, match=r"'(count|window)_2' keeps .*'(count|window)' is taken.*name="):
        check_names(make_plan(build(*parts)))


def test_it_is_refused_before_anything_runs_and_only_with_a_checkpoint(tmp_path):
    flow = build(*NAMELESS["scan of a lambda"])
    with pytest.raises(ps.FlowError, match=r"'scan' keeps its state in the checkpoint"):
        ps.start(flow, checkpoint=str(tmp_path / "ck"))
    assert not (tmp_path / "ck").exists()
    assert ps.run(flow, on=ps.Threads()).results["out 0"] == [0]


class TestAutomaticNamesGiveWay:
    def test_to_a_sink(self):
        flow = ps.Flow("giving way")
        rows = flow.source("rows", ps.read.items([{"v": v} for v in range(5)]))
        scanned = rows.scan(lambda total, row: (total + row.v, total + row.v), 0)
        mapped = scanned.map(lambda total: total * 2)
        scanned.sink("scan")
        mapped.sink("map")
        scanned.map(lambda total: -total).sink("last")
        assert {"scan", "scan_2", "map", "map_2", "last"} < set(flow.nodes)
        run = ps.run(flow, on=ps.Sequential())
        assert run.results == {"scan": [0, 1, 3, 6, 10], "map": [0, 2, 6, 12, 20], "last": [0, -1, -3, -6, -10]}

    def test_to_an_operator_and_streams_still_mean_the_one_they_came_from(self):
        flow = ps.Flow("giving way")
        rows = flow.source("rows", ps.read.items([1, 2, 3]))
        double, keyed = rows.map(lambda row: 2 * row), rows.map(lambda row: row).key_by(lambda row: row)
        triple = rows.map(lambda row: 3 * row, name="map")
        double.sink("double")
        triple.sink("triple")
        keyed.scan(count, 0).sink("count")
        results = ps.run(flow, on=ps.Sequential()).results
        assert results == {"double": [2, 4, 6], "triple": [3, 6, 9], "count": [0, 0, 0]}
        assert flow.nodes["double"].inputs[0].node == "map_3"
        assert flow.nodes["count"].inputs[0].node == "count_2"

    def test_but_not_those_that_users_gave(self):
        flow = ps.Flow("two")
        rows = flow.source("rows", ps.read.items([1]))
        rows.map(same, name="mine").sink("out")
        with pytest.raises(ps.FlowError, match="two operators named 'mine'"):
            rows.map(same, name="mine")


class TestPlaces:
    """A name alone does not say that it is the same operator."""

    @pytest.fixture
    def data(self, tmp_path: Path) -> Path:
        write_files(tmp_path / "data", make_rows(60), 10)
        return tmp_path / "data"

    def build(self, data: Path, place: Building) -> ps.Flow:
        flow = ps.Flow("places")
        rows = flow.source("rows", ps.read.parquet(str(data)), time="t")
        flow.source("other", ps.read.items([{"n": 1, "t": 1, "k": 1, "v": 1.0}]), time="t").sink("others")
        place(rows).sink("out")
        return flow

    def test_a_name_at_another_place_is_refused(self, data, tmp_path):
        def first(rows: ps.Stream) -> ps.Stream:
            return rows.key_by("k").scan(count, 0, name="counted")

        def second(rows: ps.Stream) -> ps.Stream:
            return rows.key_by("k").reduce(last, name="newest").key_by("k").scan(count, 0, name="counted")

        engine = make_engine(self.build(data, first), tmp_path / "ck", epoch_rows=20)
        engine._listener = lambda stats: engine.stop()
        engine.run()
        with pytest.raises(
            ps.CheckpointError, match=r"'counted' stood after 'rows' .* now stands after 'newest'.*put it back"
        ):
            run_inline(self.build(data, second), tmp_path / "ck")

        def between(rows: ps.Stream) -> ps.Stream:  # what has no memory may come and go
            return rows.filter(lambda row: True).map(same).key_by("k").scan(count, 0, name="counted")

        run_inline(self.build(data, between), tmp_path / "ck")
        assert sum(ps.state.values(str(tmp_path / "ck"), "counted").values()) == 60
