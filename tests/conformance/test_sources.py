"""Every flow over every kind and number of sources gives what the sequential engine gives, however the input is cut."""

from __future__ import annotations

import dataclasses
import logging
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.sequence import InputSequence, order_of
from penstock.errors import PenstockError
from penstock.flow import Flow
from penstock.plan.plan import make_plan
from penstock.sequential import SequentialEngine
from penstock.testing.kit import assert_same

from .engines import sequential
from .epochs import inline, spark_engine, threads
from .flows import CASES
from .inline import Arriving
from .kinds import IN_PROCESS, ON_SPARK, WRITABLE, Kinds, PartFeed, SparkKinds
from .random_sources import DrawnFeed, Parted

ENGINES = {"inline": inline, "threads": threads}


def compare(run: Any, meant: Any) -> None:
    """Hold what comes out, or fails, to what should."""
    results = []
    for each in (run, meant):
        try:
            results.append(each())
        except PenstockError as error:
            results.append(f"{type(error).__name__}: {error}")
    found, expected = results
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected
    else:
        assert_same(expected, found)


MOST_EPOCHS, MOST_JOBS = 6, 3
"""Epochs in process and on Spark, about: more show nothing new, and each of them is a commit."""


class TestKinds:
    def check_in_process(self, name: str, directory: Path, chosen: Iterable[str]) -> None:
        case, kinds = CASES[name], Kinds(directory)
        draw, count = random.Random(name), sum(map(len, case.rows.values()))
        for kind in chosen:
            flow = case.flow(getattr(kinds, kind))
            engine = ENGINES[draw.choice(sorted(ENGINES))]
            rows = draw.choice([max(1, count // MOST_EPOCHS), 3 * max(1, count // MOST_EPOCHS), 1000])
            compare(
                lambda flow=flow, engine=engine, rows=rows: engine(flow, epoch_rows=rows),
                lambda: sequential(case.flow(ps.read.items), [case.rows]),
            )

    @pytest.mark.parametrize("name", WRITABLE)
    def test_some_kinds_in_process(self, name, tmp_path):
        """A kind that gives a position of the wrong width, or a row out of its place, shows here in seconds."""
        self.check_in_process(name, tmp_path, random.Random(f"{name} in process").sample(IN_PROCESS, 3))

    @pytest.mark.slow
    @pytest.mark.parametrize("name", WRITABLE)
    def test_every_kind_in_process(self, name, tmp_path):
        self.check_in_process(name, tmp_path, IN_PROCESS)

    def check_on_spark(self, name: str, kind: str, directory: Path, session: Any) -> None:
        from penstock.spark.job import SparkBackend

        case, kinds = CASES[name], SparkKinds(directory, session)
        count = sum(map(len, case.rows.values()))
        flow = case.flow(getattr(kinds, kind))
        if kind == "streaming_frame":
            check_stream(case, flow, session)
            return
        rows = sorted_rows(case) if kind == "batch_frame" else case.rows
        compare(
            lambda: spark_engine(flow, SparkBackend(session), epoch_rows=max(7, -(-count // MOST_JOBS))),
            lambda: sequential(case.flow(ps.read.items), [rows]),
        )

    @pytest.mark.spark
    @pytest.mark.parametrize("name", WRITABLE[::2])
    def test_one_kind_on_spark(self, name, tmp_path, spark):
        self.check_on_spark(name, random.Random(f"{name} on Spark").choice(ON_SPARK), tmp_path, spark)

    @pytest.mark.spark
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ON_SPARK)
    @pytest.mark.parametrize("name", WRITABLE)
    def test_every_kind_on_spark(self, name, kind, tmp_path, spark):
        self.check_on_spark(name, kind, tmp_path, spark)


def sorted_rows(case: Any) -> dict[str, list[Any]]:
    """Return the rows of each source as a batch DataFrame has them: `order_by` sorts it, and so none is late."""
    nodes = {node.name: node for node in make_plan(case.flow(ps.read.items)).sources}
    return {
        name: sorted(rows, key=lambda row, name=name: order_of(nodes[name], nodes[name].types[0].roundtrip(row)))
        if nodes[name].operator.order_by
        else rows
        for name, rows in case.rows.items()
    }


def check_stream(case: Any, flow: Flow, session: Any) -> None:
    """Run a flow over streaming DataFrames until all rows are in; they never end."""
    plan = make_plan(case.flow(Arriving))
    if plan.layout.order:
        pytest.skip("the order of streaming DataFrames among others is tested with them")
    count, epochs = sum(map(len, case.rows.values())), list[dict[str, int]]()
    """Rows of each source by epoch: whose batch came first is an input of the flow."""

    def stream() -> dict[str, list]:
        def after(stats: Any) -> None:
            epochs.append({node.name: stats.operators[node.name].rows_in for node in plan.sources})

        run = ps.start(flow, on=ps.Spark(session), on_epoch=after)
        while not run.await_end(0.02):
            if sum(sum(each.values()) for each in list(epochs)) >= count:
                run.stop()
        return dict(run.results)

    def meant() -> dict[str, list]:
        engine = SequentialEngine(plan)
        sequence = InputSequence(plan, engine)
        left = {name: list(rows) for name, rows in case.rows.items()}
        for epoch in [*epochs, {name: len(rows) for name, rows in left.items()}]:
            for node in plan.sources:
                some, left[node.name] = left[node.name][: epoch[node.name]], left[node.name][epoch[node.name] :]
                for row in some:
                    sequence.give(node.name, row if node.types[0] is None else node.types[0].roundtrip(row))
            sequence.run()
        return engine.results

    compare(stream, meant)


def write(directory: Path, rows: list[dict[str, Any]], size: int, group: int = 1000) -> str:
    directory.mkdir()
    for number, start in enumerate(range(0, len(rows), size)):
        path = directory / f"{number:04d}.parquet"
        pq.write_table(pa.Table.from_pylist(rows[start : start + size]), path, row_group_size=group)
        os.utime(path, (number + 1, number + 1))
    return str(directory)


def union_of(readers: dict[str, Any], **options: Any) -> Flow:
    flow = Flow("sources")
    first, *others = (flow.source(name, reader, **options) for name, reader in readers.items())
    first.union(*others).scan(lambda n, r: (n + 1, (n, r.name, r.n)), 0).sink("out")
    return flow


LENGTHS = {"a": 3000, "b": 700, "c": 1}


class TestSeveralSources:
    """Larger than an epoch, than a batch and than a file."""

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [{"name": name, "n": n} for n in range(LENGTHS[name])]

    def in_turn(self) -> list[tuple[int, str, int]]:
        """Work out by plain loops who is next."""
        rows = [(name, n) for n in range(max(LENGTHS.values())) for name in LENGTHS if n < LENGTHS[name]]
        return [(i, name, n) for i, (name, n) in enumerate(rows)]

    @pytest.mark.parametrize("engine", sorted(ENGINES))
    @pytest.mark.parametrize("rows", [64, 1000, 100_000])
    def test_take_turns(self, tmp_path, engine, rows):
        readers = {name: ps.read.parquet(write(tmp_path / name, self.rows(name), 450)) for name in LENGTHS}
        found = ENGINES[engine](union_of(readers), epoch_rows=rows)
        assert [tuple(row) for row in found["out"]] == self.in_turn()

    @pytest.mark.parametrize("engine", sorted(ENGINES))
    @pytest.mark.parametrize("rows", [50, 900])
    def test_text_files_take_turns_row_by_row(self, tmp_path, engine, rows):
        path = tmp_path / "text"
        path.mkdir()
        for number in range(4):
            lines = [f"b,{n}" for n in range(175 * number, 175 * number + 175)]
            (path / f"{number}.csv").write_text("\n".join(["name,n", *lines]))
            os.utime(path / f"{number}.csv", (number + 1, number + 1))
        readers = {
            "a": ps.read.items(self.rows("a")),
            "b": ps.read.csv(str(path), schema={"name": str, "n": int}),
            "c": ps.read.generate(
                lambda start, stop: pa.table({"name": ["c"], "n": [0]}), rows=1, schema={"name": str, "n": int}
            ),
        }
        found = ENGINES[engine](union_of(readers), epoch_rows=rows)
        assert [tuple(row) for row in found["out"]] == self.in_turn()

    @pytest.mark.parametrize("engine", [*sorted(ENGINES), "sequential"])
    @pytest.mark.parametrize("rows", [64, 5000])
    def test_come_by_order_whatever_each_has(self, tmp_path, engine, rows):
        draw = random.Random(1)
        given = {
            "a": sorted(draw.randrange(400) for _ in range(3000)),
            "b": sorted(draw.randrange(390, 900) for _ in range(700)),
            "c": [200],
        }
        readers = {
            name: ps.read.parquet(write(tmp_path / name, [{"name": name, "n": n} for n in some], 450))
            for name, some in given.items()
        }
        flow = union_of(readers, order_by="n")
        if engine == "sequential":
            found = ps.run(flow, on=ps.Sequential()).results
        else:
            found = ENGINES[engine](flow, epoch_rows=rows)
        merged = sorted((n, name) for name, some in given.items() for n in some)
        assert [tuple(row) for row in found["out"]] == [(i, name, n) for i, (n, name) in enumerate(merged)]

    @pytest.mark.spark
    @pytest.mark.parametrize("order", ["n", ()], ids=["by order", "in turn"])
    def test_on_spark(self, tmp_path, spark, order):
        readers = {name: ps.read.parquet(write(tmp_path / name, self.rows(name), 450)) for name in LENGTHS}
        run = ps.run(union_of(readers, order_by=order), on=ps.Spark(spark, epoch_rows=500))
        assert [tuple(row) for row in run.results["out"]] == self.in_turn()
        assert len(run.epochs) > 5


PARTS = (0, 1, 7)


def by_part(count: int, seconds: int) -> list[dict[int, list[dict[str, int]]]]:
    """Make epochs that hold some seconds of each part, one part after the other."""
    return [
        {part: [{"t": epoch * seconds + i, "k": part, "v": i} for i in range(seconds)] for part in PARTS}
        for epoch in range(count)
    ]


def windows_of_parts(**options: Any) -> Flow:
    flow = Flow("parts")
    schema = {"t": int, "k": int, "v": int}
    stream = flow.source("in", Arriving([], schema=schema), time="t", **options)
    windows = stream.window(10).aggregate(n=ps.agg.count(), s=ps.agg.sum("v"))
    windows.sink("windows")
    windows.late.sink("late")
    stream.key_by("k").window(5).count().sink("by part")
    return flow


def oracle(flow: Flow, epochs: list[dict[int, list[Any]]], idle: dict[int, tuple[int, ...]], parts=PARTS) -> Any:
    """Run epochs of parts on the reference engine; `idle` says which are idle from an epoch on."""
    plan = make_plan(flow)
    engine = SequentialEngine(plan)
    sequence = InputSequence(plan, engine)
    sequence.know("in", parts)
    engine.know("in", parts)
    declared = plan.sources[0].types[0]
    assert declared is not None
    for number, epoch in enumerate(epochs):
        for part, rows in epoch.items():
            for row in rows:
                sequence.give("in", declared.roundtrip(row), part)
        if number in idle:
            engine.idle("in", idle[number])
            sequence.idle("in", idle[number])
        sequence.run()
    sequence.end("in")
    sequence.run()
    return engine.results


class TestParts:
    @pytest.mark.parametrize("engine", sorted(ENGINES))
    def test_no_part_is_late_because_another_came_first(self, engine):
        epochs = by_part(4, 10)
        found = ENGINES[engine](windows_of_parts(), epoch_rows=100, feeds={"in": PartFeed(epochs, PARTS)})
        assert found["late"] == []
        assert [tuple(row)[2] for row in found["windows"]] == [30, 30, 30, 30]
        assert_same(oracle(windows_of_parts(), epochs, {}), found)

    @pytest.mark.parametrize("engine", sorted(ENGINES))
    def test_a_part_without_rows_holds_back_and_a_new_one_lowers_nothing(self, engine):
        epochs = by_part(3, 10)
        for epoch in epochs[:2]:
            epoch.pop(7)
        feed = PartFeed(epochs, PARTS)
        found = ENGINES[engine](windows_of_parts(), epoch_rows=100, feeds={"in": feed})
        assert_same(oracle(windows_of_parts(), epochs, {}), found)
        assert found["late"] == []

    @pytest.mark.parametrize("engine", sorted(ENGINES))
    def test_a_part_that_is_idle_holds_nobody_back_and_counts_again_when_it_speaks(self, engine):
        epochs = by_part(8, 10)
        for epoch in (*epochs[1:5], epochs[6]):
            epoch.pop(7)
        epochs[5][7] = [{"t": 12, "k": 7, "v": 1}, {"t": 55, "k": 7, "v": 2}]
        epochs[7][7] = [{"t": 57, "k": 7, "v": 3}]  # the others are at 79, and waited for it
        now = [0.0]

        class Timed(PartFeed):
            def poll(self, limit: int) -> Any:
                now[0] += 1.0
                return super().poll(limit)

        flow = windows_of_parts(idle_after=2.0)
        feeds = {"in": Timed(epochs, PARTS)}
        found = ENGINES[engine](flow, epoch_rows=100, feeds=feeds, now=lambda: now[0])
        # Heard of at second 1, so idle from second 3 on, which is the third epoch.
        assert_same(oracle(flow, epochs, {2: (7,)}), found)
        assert [row.t for row in found["late"]] == [12]

    @pytest.mark.parametrize("engine", sorted(ENGINES))
    def test_what_a_part_that_comes_later_has_below_is_late(self, engine):
        times = [{0: [*range(10)]}, {0: [15], 7: [5, 20]}, {0: [30], 7: [31]}]
        epochs = [
            {part: [{"t": t, "k": part, "v": t} for t in mine] for part, mine in asked.items()} for asked in times
        ]

        class Growing(DrawnFeed):
            """Tells of a part with its first row."""

            def parts(self) -> Any:
                return {part: each for part, each in self._parts.items() if each.come or part == 0}

            def _slice(self, number: int) -> Any:
                known = {part for asked in self._asked[: number + 1] for part in asked}
                return dataclasses.replace(super()._slice(number), parts=tuple(sorted(known)))

        flow = Flow("later")
        reader = Parted([], schema={"t": int, "k": int, "v": int}, asked=epochs)
        stream = flow.source("in", reader, order_by="t", on_late="divert")
        stream.map(lambda r: r.t).sink("out")
        stream.late.map(lambda r: r.t).sink("late")
        found = ENGINES[engine](flow, epoch_rows=100, feeds={"in": Growing(reader)})
        assert found == {"out": [*range(10), 15, 20, 30, 31], "late": [5]}

    def test_the_log_names_the_source_that_all_wait_for(self, caplog):
        schema = {"name": str, "n": int}

        class Silent(PartFeed):
            """Has nothing, for two polls, and then ends."""

            def poll(self, limit: int) -> Any:
                self._next += 1

            def exhausted(self) -> bool:
                return self._next > 2

        flow = union_of({"a": ps.read.items([{"name": "a", "n": 1}]), "b": Arriving([], schema=schema)}, order_by="n")
        plan = make_plan(flow)
        from penstock.kernels.intake import SourceMarks
        from penstock.kernels.taking import Taker

        feeds = {"a": plan.nodes["a"].operator.reader.feed("a", lambda: 0.0), "b": Silent([], (0,))}  # type: ignore[attr-defined]
        taker = Taker(plan, feeds, lambda: 0.0)
        marks = {"a": SourceMarks(), "b": SourceMarks()}
        with caplog.at_level(logging.INFO, "penstock"):
            taken = [taker.take(10, marks, ()) for _ in range(3)]
        assert [sorted(each.slices) for each in taken] == [[], [], ["a"]]
        assert "'b'" in caplog.text
        assert "idle_after" in caplog.text
        assert caplog.text.count("rows wait for") == 1
