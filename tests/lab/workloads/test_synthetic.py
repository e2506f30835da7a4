"""The synthetic flows against answers computed in another way, on every engine."""

from __future__ import annotations

import pickle
import threading
import time
import zlib
from collections import Counter

import numpy as np
import pytest

import penstock as ps
from penstock.errors import FlowError
from penstock.lab.workloads.catalogue import WORKLOADS, make_workload
from penstock.lab.workloads.synthetic import SHAPES, busy, graph, make_work
from penstock.lab.workloads.synthetic.calculator import PARTS, calculator
from penstock.lab.workloads.synthetic.draws import ZipfKeys, copies, normals, uniform, uniforms
from penstock.lab.workloads.synthetic.matrix import PRIME, matrix, square

from ...how import how

ROWS = 240
ENGINES = ["sequential", "threads", pytest.param("spark", marks=pytest.mark.spark)]


def run(flow: ps.Flow, engine: str, request: pytest.FixtureRequest, **options: object) -> ps.Run:
    if engine == "spark":
        options |= {"spark": request.getfixturevalue("spark"), "epoch_rows": 100}
    if engine == "threads":
        options = {"threads": 3, "batch_rows": 7, **options}
    return ps.run(flow, **how(engine, **options))


class TestGraph:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_all_rows_come_out_in_order(self, shape, request):
        made = run(graph(shape, width=3, depth=3, cost_us=0, rows=ROWS), "threads", request)
        assert [row.serial for row in made.results["out"]] == list(range(ROWS))

    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize("shape", ["chain", "tree"])
    def test_selectivity(self, shape, engine, request):
        """A row goes through three operators, which in a tree are those of its digits; each passes it on or not."""
        made = run(graph(shape, width=2, depth=3, cost_us=0, selectivity=0.7, rows=ROWS, seed=5), engine, request)
        expected = []
        for serial in range(ROWS):
            path = (1, 2, 3) if shape == "chain" else (1, 2 + serial % 2, 4 + 2 * (serial % 2) + serial // 2 % 2)
            times = 1
            for operator in path:
                times *= copies(serial, 0.7, 5 + operator)
            expected += [serial] * times
        assert [row.serial for row in made.results["out"]] == expected
        assert 0 < len(expected) < ROWS / 2

    def test_selectivity_above_one(self, request):
        made = run(graph("chain", depth=2, cost_us=0, selectivity=2.0, rows=10), "threads", request)
        assert [row.serial for row in made.results["out"]] == [serial for serial in range(10) for _ in range(4)]

    @pytest.mark.parametrize(
        ("shape", "parts"),
        [
            ("pipeline", [1, 1, 1]),
            ("data-parallel", [3, 3, 3]),
            ("mixed", [3] * 9),
            ("tree", [1] + [3] * 3 + [9] * 9),
            ("reverse-tree", [9] * 9 + [3] * 3 + [1]),
        ],
    )
    def test_each_operator_gets_its_part_of_the_rows(self, shape, parts, request):
        made = run(graph(shape, width=3, depth=3, cost_us=0, rows=270), "threads", request)
        found = {o.name: o.rows_in for o in made.stats.operators.values() if o.name.startswith("busy_")}
        assert [found[name] for name in sorted(found, key=lambda n: int(n[5:]))] == [270 // part for part in parts]

    @pytest.mark.parametrize("kind", ["numpy", "python", "waiting", "blocking"])
    def test_all_kinds_of_work(self, kind, request):
        made = run(graph("mixed", width=2, depth=2, cost_us=50, kind=kind, rows=40), "threads", request)
        assert [row.serial for row in made.results["out"]] == list(range(40))

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"shape": "ring"}, "shape='ring'; there are pipeline"),
            ({"width": 0}, "width=0; it must be 1 or more"),
            ({"selectivity": -1}, "selectivity=-1; it must be 0 or more"),
            ({"kind": "java"}, "kind='java'; there are numpy"),
            ({"cost_us": -1}, "cost_us=-1; it must be 0 or more"),
        ],
    )
    def test_what_cannot_be_is_refused(self, options, problem):
        with pytest.raises(FlowError, match=problem):
            graph(**options)


class TestWork:
    def test_how_much_work_is_found_by_the_clock(self, monkeypatch):
        monkeypatch.setattr(busy, "_clocked", lambda work: 10.0)
        assert busy.Loop(20)._turns == 2_000  # a thousand turns are seen to take 10 us
        assert busy.Loop(2_000)._turns == 200_000
        found = {weight: busy.Kernel(weight) for weight in (5, 20, 2_000)}
        assert {weight: kernel._calls for weight, kernel in found.items()} == {5: 1, 20: 2, 2_000: 200}
        assert [len(found[weight]._values) for weight in (5, 20)] == [busy.Kernel.LARGEST // 2, busy.Kernel.LARGEST]

    def test_the_clock_counts_the_time_of_one_call(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(busy.time, "perf_counter", lambda: now[0])
        assert busy._clocked(lambda: now.__setitem__(0, now[0] + 3e-6)) == pytest.approx(3.0)

    def test_blocking_work_sleeps(self):
        work = make_work("blocking", 2_000)
        began = time.perf_counter()
        work()
        assert time.perf_counter() - began >= 2_000 / 1e6

    def test_numpy_lets_others_run_and_python_does_not(self):
        """Seen by who gets a turn: a speed-up would need two free cores."""
        steps = {kind: _steps_beside(make_work(kind, 20_000)) for kind in ("numpy", "python")}
        assert steps["numpy"] > 3 * steps["python"]

    def test_it_is_shipped_as_it_is(self):
        work = make_work("python", 50)
        assert pickle.loads(pickle.dumps(work)).__dict__ == work.__dict__


def _steps_beside(work) -> int:
    """Count how often another thread gets its turn while this one works on ten rows."""
    steps, done = [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            steps[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    for _ in range(10):
        work()
    done.set()
    thread.join()
    return steps[0]


class TestDraws:
    def test_one_by_one_or_all_at_once(self):
        rows = np.arange(50, dtype=np.int64) * 7_919
        assert uniforms(rows, 3, 2).tolist() == [uniform(row, 3, 2) for row in rows.tolist()]

    def test_they_look_like_chance(self):
        drawn = uniforms(np.arange(20_000, dtype=np.int64), 1)
        assert np.histogram(drawn, 10, (0, 1))[0] == pytest.approx(2_000, abs=200)
        normal = normals(np.arange(20_000, dtype=np.int64), 1)
        assert normal.mean() == pytest.approx(0, abs=0.03)
        assert normal.std() == pytest.approx(1, abs=0.03)
        assert sum(copies(row, 1.25, 4) for row in range(20_000)) == pytest.approx(25_000, abs=300)

    def test_zipf_keys_change_hands(self):
        draw = ZipfKeys(100, 1.0, seed=2, shuffle_rows=10_000)
        first, second = (Counter(draw(np.arange(at, at + 10_000))) for at in (0, 10_000))
        assert first.most_common(1)[0][0] != second.most_common(1)[0][0]
        for found in (first, second):
            share = found.most_common(1)[0][1] / 10_000
            assert share == pytest.approx(1 / sum(1 / rank for rank in range(1, 101)), rel=0.1)

    def test_a_stream_is_the_same_however_it_is_cut(self):
        draw = ZipfKeys(50, 0.5, seed=2, shuffle_rows=7)
        whole = draw(np.arange(40)).tolist()
        assert whole == [key for at in range(0, 40, 3) for key in draw(np.arange(at, min(40, at + 3))).tolist()]


@pytest.mark.parametrize("engine", ENGINES)
def test_matrix_operators(engine, request):
    """Against exact integers of Python: no NumPy product, and no engine."""
    size, state = 4, 6
    flow = matrix(rows=ROWS, tuple_size=size, repeats=2, selectivity=1.5, state_size=state, keys=5, seed=3)
    source = next(node for node in flow.nodes.values() if node.name == "rows").operator.reader
    rows = source.function(0, ROWS).to_pylist()
    first, second = square(3, size).tolist(), square(4, size).tolist()

    def times(m, v):
        return [sum(a * b for a, b in zip(line, v, strict=True)) % PRIME for line in m]

    states: dict[int, tuple[int, list[int]]] = {}
    expected = []
    for row in rows:
        once = times(first, times(first, row["values"]))
        for _ in range(copies(row["serial"], 1.5, 3)):
            seen, kept = states.get(row["key"], (0, [0] * state))
            twice = times(second, times(second, once))
            at = seen * size % state
            kept = [(have + twice[i - at]) % PRIME if at <= i < at + size else have for i, have in enumerate(kept)]
            states[row["key"]] = seen + 1, kept
            expected.append((row["serial"], row["key"], seen + 1, sum(kept) % PRIME))
    assert run(flow, engine, request).results["out"] == expected
    assert ROWS < len(expected) < 2 * ROWS


@pytest.mark.parametrize("engine", ENGINES)
def test_generator_and_calculator(engine, request):
    flow = calculator(
        rows=ROWS, keys=20, skew=1.0, shuffle_rows=50, tuple_bytes=9, state_bytes=10, cost_us=8, kind="python", seed=6
    )
    source = next(node for node in flow.nodes.values() if node.name == "rows").operator.reader
    rows = source.function(0, ROWS).to_pylist()
    states: dict[int, tuple[int, bytearray]] = {}
    expected = []
    for row in rows:
        assert len(row["payload"]) == 9
        seen, kept = states.get(row["key"], (0, bytearray(10)))
        at = 4 * seen % 7
        kept[at : at + 4] = zlib.crc32(row["payload"]).to_bytes(4, "little")
        states[row["key"]] = seen + 1, kept
        expected.append((row["serial"], row["key"], seen + 1, zlib.crc32(kept)))
    assert run(flow, engine, request).results["out"] == expected
    assert np.mean([row["parts"] for row in rows]) == pytest.approx(PARTS, rel=0.5)


def test_the_calculator_refuses_what_cannot_be():
    with pytest.raises(FlowError, match="state_bytes=3; it must be 4 or more"):
        calculator(state_bytes=3)
    with pytest.raises(FlowError, match="cannot be async def"):
        calculator(kind="waiting")


@pytest.mark.parametrize("name", sorted(name for name in WORKLOADS if name.startswith("synthetic-")))
def test_each_runs_by_its_name(name, tmp_path):
    import pyarrow.dataset as ds

    small = {} if name in ("synthetic-matrix",) else {"cost_us": "0"}
    flow = make_workload(name, {"rows": "20", "out": str(tmp_path), **small})
    ps.run(flow, on=ps.Threads(workers=2))
    assert sorted(ds.dataset(tmp_path).to_table()["serial"].to_pylist()) == list(range(20))
