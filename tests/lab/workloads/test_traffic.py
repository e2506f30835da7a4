"""The traffic queries against NumPy over the recorded trace, on every engine; and the simulators themselves."""

from __future__ import annotations

import importlib.util
import itertools
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import penstock as ps
from penstock.errors import FlowError, PenstockError
from penstock.lab.workloads.catalogue import make_workload
from penstock.lab.workloads.traffic import car_following, queries, sumo, trace
from penstock.lab.workloads.traffic.trace import END, LANES, SCHEMA, TICK_MS, VEHICLE
from penstock.plan.plan import make_plan
from penstock.threads.element import Element
from penstock.threads.models.bound import Bound
from penstock.threads.settings import Settings

from ...how import how
from ...patience import PATIENCE

ENGINES = ["sequential", "threads", pytest.param("spark", marks=pytest.mark.spark)]
NO_SUMO = pytest.mark.skipif(
    importlib.util.find_spec("sumo") is None,
    reason="SUMO IS NOT INSTALLED, its tests did not run: pip install 'penstock[traffic]'",
)
SIMULATORS = {"model": car_following.frames, "sumo": sumo.frames}


def oracle(table: pa.Table, k: int = 10, ticks: range | None = None) -> dict[str, list[tuple]]:
    """Ask the three questions of the whole trace, tick by tick."""
    rows = {name: table[name].to_numpy() for name in VEHICLE}
    answers: dict[str, list[tuple]] = {"agents": [], "average": [], "top": []}
    for time in np.unique(rows["time"][rows["id"] != END]).tolist():
        if ticks is not None and time // TICK_MS not in ticks:
            continue
        now = np.flatnonzero((rows["time"] == time) & (rows["id"] != END))
        counts = np.bincount(rows["lane"][now] // LANES)
        roads = np.flatnonzero(counts)
        answers["agents"].append((time, roads.tolist(), counts[roads].tolist()))
        answers["average"].append((time, len(now), float(np.mean(rows["speed"][now]))))
        best = now[np.lexsort((rows["id"][now], -rows["speed"][now]))][:k]
        answers["top"].append((time, rows["id"][best].tolist(), rows["speed"][best].tolist()))
    return answers


def answers(run: ps.Run, number: int = 0) -> dict[str, list[tuple]]:
    return {kind: [tuple(row) for row in run.results[f"{kind}-{number}"]] for kind in queries.QUERIES}


class TestQueries:
    @pytest.mark.parametrize("engine", ENGINES)
    def test_they_answer_as_numpy_does(self, engine, request):
        table = trace.record(car_following.frames(60, 12, "rush-hour", seed=3))
        reader = ps.read.generate(Piece(table), schema=SCHEMA, rows=len(table))
        options = {
            "sequential": {},
            "threads": {"threads": 3, "batch_rows": 17},
            "spark": {"spark": engine == "spark" and request.getfixturevalue("spark"), "epoch_rows": 300},
        }
        run = ps.run(queries.build(reader, replicas=2), **how(engine, **options[engine]))
        expected = oracle(table)
        assert answers(run, 0) == answers(run, 1) == expected
        assert len(expected["top"]) == 12

    def test_the_count_per_road_does_not_depend_on_the_number_of_vehicles(self):
        """It reads one row per tick, which the simulator has counted; the other two read every vehicle's."""
        ticks, vehicles = 5, 40
        table = trace.record(car_following.frames(vehicles, ticks, "constant", seed=3))
        reader = ps.read.generate(Piece(table), schema=SCHEMA, rows=len(table))
        run = ps.run(queries.build(reader), on=ps.Threads(workers=1))
        rows = {operator.name: operator.rows_in for operator in run.stats.operators.values()}
        assert rows["agents-0.roads"] == rows["agents-0.ticks"] == ticks
        assert rows["average-0.speeds"] == rows["top-0.ranked"] == ticks * vehicles

    @NO_SUMO
    def test_they_answer_over_sumo(self):
        table = trace.record(sumo.frames(40, 15, seed=2))
        reader = ps.read.generate(Piece(table), schema=SCHEMA, rows=len(table))
        run = ps.run(queries.build(reader), on=ps.Threads(workers=2, batch_rows=23))
        assert answers(run) == oracle(table)

    def test_equally_fast_vehicles_are_ranked_by_number(self):
        n = 30
        frame = trace.Frame(0, np.arange(n)[::-1], *[np.zeros(n)] * 2, np.full(n, 5.0), np.zeros(n), np.zeros(n, int))
        table = frame.table()
        reader = ps.read.generate(Piece(table), schema=SCHEMA, rows=len(table))
        run = ps.run(queries.build(reader), on=ps.Threads(workers=1, batch_rows=7))
        assert run.results["top-0"] == [(0, list(range(10)), [5.0] * 10)]

    def test_300_operators_are_bound_as_in_the_paper(self):
        """Six for each of the 50 replicas of three queries; beside them, the two that part the trace for all."""
        flow = queries.build(ps.read.items([], schema=SCHEMA), replicas=50)
        element = Element(make_plan(flow), lambda header, chunks: None, Settings(model="bound", workers=2))
        assert isinstance(element.model, Bound)
        bound = set(element.model.bindings())
        assert len([name for name in bound if "." in name]) == 300
        assert {name for name in bound if "." not in name} == {"vehicles", "ended"}

    def test_they_come_and_go_while_it_runs(self):
        """A query that is added sees the ticks from then on, one that is cancelled none behind; others see all."""
        ticks = 60
        frames = list(car_following.frames(25, ticks, seed=5))
        table = trace.record(frames, multiple=26)
        gate = Gated(table)
        flow = ps.Flow("traffic")
        asked = queries.trace_of(flow, ps.read.generate(gate, schema=SCHEMA, rows=len(table)))
        for kind in queries.QUERIES:
            queries.add_query(asked, kind, 0)
        run = ps.start(flow, on=ps.Threads(workers=2, batch_rows=26))
        with gate:
            for kind in queries.QUERIES:
                queries.add_query(asked, kind, 1)
            began = {kind: run.add_query(f"{kind}-1") for kind in queries.QUERIES}
            ended = {kind: run.cancel_query(f"{kind}-1") for kind in ("agents", "top")}
            gone = run.cancel_query("average-0")
            assert run.queries == ["agents-0", "average-1", "top-0"]
            gate.open_all()
            assert run.await_end(PATIENCE)
        whole = oracle(table)
        found = answers(run)
        assert found["agents"] == whole["agents"]
        assert found["top"] == whole["top"]
        # A batch is a tick here, and ends with the row that ends it: a query sees whole ticks.
        assert found["average"] == oracle(table, ticks=range(gone))["average"]
        late = answers(run, 1)
        for kind in queries.QUERIES:
            assert late[kind] == oracle(table, ticks=range(began[kind], ended.get(kind, ticks)))[kind]


class Piece:
    """A recorded trace as a source."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __call__(self, start: int, stop: int) -> pa.Table:
        return self._table.slice(start, stop - start)


class Gated(Piece):
    """A recorded trace whose batches come one by one, as fast as a second thread lets them."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__(table)
        self._steps, self._done = threading.Semaphore(0), threading.Event()

    def __call__(self, start: int, stop: int) -> pa.Table:
        self._steps.acquire()
        return super().__call__(start, stop)

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._open)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.open_all()
        self._thread.join()

    def open_all(self) -> None:
        self._done.set()
        self._steps.release(10_000)

    def _open(self) -> None:
        while not self._done.wait(0.02):
            self._steps.release()


class TestSimulators:
    @pytest.mark.parametrize("name", ["model", pytest.param("sumo", marks=NO_SUMO)])
    def test_vehicles_move_as_they_say(self, name):
        """Places change by speed times the time between ticks, unless the vehicle went round a corner."""
        made = list(SIMULATORS[name](30, 50, "constant", 7))
        assert [frame.time for frame in made] == [tick * TICK_MS for tick in range(50)]
        checked = 0
        for before, after in itertools.pairwise(made):
            _, i, j = np.intersect1d(before.id, after.id, return_indices=True)
            straight = np.flatnonzero(before.lane[i] == after.lane[j])
            i, j = i[straight], j[straight]
            moved = np.hypot(after.x[j] - before.x[i], after.y[j] - before.y[i])
            # SUMO draws a road up to its junctions, a little shorter than it is.
            assert moved == pytest.approx(after.speed[j] * TICK_MS / 1000, rel=0.1, abs=0.02)
            checked += len(straight)
        assert checked > 30 * 40

    @pytest.mark.parametrize("name", ["model", pytest.param("sumo", marks=NO_SUMO)])
    def test_a_seed_gives_one_trace(self, name):
        first, again, other = (trace.record(SIMULATORS[name](20, 10, "constant", seed)) for seed in (1, 1, 2))
        assert first.equals(again)
        assert not first.equals(other)

    @pytest.mark.parametrize("name", ["model", pytest.param("sumo", marks=NO_SUMO)])
    def test_rush_hour(self, name):
        counts = [len(frame.id) for frame in SIMULATORS[name](60, 40, "rush-hour", 1)]
        assert counts[0] < 30 < max(counts) <= 60

    def test_the_model_keeps_vehicles_on_the_road_and_apart(self):
        model = car_following.CarFollowing(3_000, seed=2)
        for _ in range(200):
            model.step(0.2, 3_000)
        frame = model.frame(0, 3_000)
        assert frame.speed.min() >= 0
        assert 3 < frame.speed.mean() < 17
        order = np.lexsort((model._place, model._lane))
        same = model._lane[order][1:] == model._lane[order][:-1]
        gaps = np.diff(model._place[order])[same]
        assert len(gaps) > 1_000
        # Two that enter a lane from two roads at once may touch; behind one another they do not.
        assert (gaps < car_following.LENGTH).mean() < 0.02
        assert model._place.min() >= 0
        assert model._place.max() < car_following.ROAD

    def test_three_hundred_thousand_vehicles_at_once(self):
        (frame,) = car_following.frames(300_000, 1)
        assert len(frame.table()) == 300_001

    def test_what_cannot_be_is_refused(self):
        with pytest.raises(FlowError, match="at least one vehicle"):
            car_following.CarFollowing(0)
        with pytest.raises(FlowError, match="there are constant and rush-hour"):
            list(car_following.frames(1, 1, "noon"))
        with pytest.raises(FlowError, match="there are model, sumo"):
            make_workload("traffic", {"simulator": "cars", "data": "/nowhere/at/all"})

    @NO_SUMO
    def test_sumo_says_why_it_failed(self):
        with pytest.raises(PenstockError, match=r"SUMO's netgenerate failed with 1: .*[Ee]rror"):
            sumo.call("netgenerate", "--no-such-option")


def test_by_its_name(tmp_path: Path):
    options = {"vehicles": "30", "ticks": "8", "data": str(tmp_path / "trace"), "out": str(tmp_path / "out")}
    ps.run(make_workload("traffic", options), on=ps.Threads(workers=2))
    table = ds.dataset(tmp_path / "trace").to_table()
    found = ds.dataset(tmp_path / "out" / "average-0").to_table().to_pylist()
    assert [tuple(row.values()) for row in found] == oracle(table)["average"]


def test_static_binding_has_the_heavy_operators_on_few_of_many_workers():
    """As the paper's has: six operators a query triple over 24 workers meet on four of them."""
    flow = queries.build(ps.read.generate(lambda start, stop: None, schema=SCHEMA, rows=1), replicas=50)
    element = Element(make_plan(flow), lambda header, chunks: None, Settings(model="bound", workers=24))
    bound = element.model.bindings()
    assert len({owner for name, owner in bound.items() if name.endswith(".ranked")}) == 4
    hosts = {name: station.host.name for name, station in element.stations.items() if station.host is not None}
    assert hosts == {f"{kind}-{n}": f"{kind}-{n}.ticks" for kind in queries.QUERIES for n in range(50)}
