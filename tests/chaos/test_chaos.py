"""Kill the driver, workers and executors at random moments: what comes out is as if nothing had gone wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps

from ..spark.running import make_rows, read_back, sequential, write_files
from . import driver
from .killing import Chaos, Victim

FEW_EPOCHS = 11
"""Of the ordinary suite: Spark takes a while to start."""
ALL: list[tuple[Victim, int, int]] = [
    *[("driver", 100 + seed, 4) for seed in range(8)],
    *[("worker", 200 + seed, 6) for seed in range(3)],
    *[("executor", 300 + seed, 4) for seed in range(4)],
]
"""(victim, seed, kills) of `make chaos`."""


def check(chaos: Chaos) -> None:
    """Compare all that was left behind with the sequential engine."""
    flow = driver.flow(chaos.work)
    expected = sequential(flow)
    for sink, rows in expected.results.items():
        assert read_back(chaos.work / sink) == [tuple(row) for row in rows], sink
    state = {name: ps.state.values(str(chaos.work / "ck"), name) for name in ("running", "windows")}
    assert state == {"running": expected.state("running"), "windows": {}}


def run(work: Path, victim: Victim, seed: int, kills: int, count: Any, rate: float = 0.0, epochs: int = 0) -> None:
    chaos = Chaos(work, victim, seed, kills, rate, epochs=epochs)
    write_files(work / "data", make_rows(chaos.epochs * driver.EPOCH_ROWS, keys=driver.KEYS), driver.FILE_ROWS)
    try:
        chaos.run()
        check(chaos)
        assert len(chaos.killed) == kills, "the run was over before all kills were done"
    except BaseException as error:
        error.add_note(f"victim {victim!r}, seed {seed}; kept in {work}; killed: {chaos.killed}")
        raise
    finally:
        count(victim, len(chaos.killed))


@pytest.mark.spark
def test_a_driver_is_killed(tmp_path, count_kills):
    """An executor is killed in `tests/spark/test_cluster.py`, and a worker below."""
    run(tmp_path, "driver", 1, 1, count_kills, epochs=FEW_EPOCHS)


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "seed", "kills"), ALL)
def test_all_seeds(tmp_path, victim, seed, kills, count_kills):
    run(tmp_path, victim, seed, kills, count_kills)


@pytest.mark.spark
def test_reads_and_writes_of_tasks_fail_and_a_worker_dies(tmp_path, count_kills):
    run(tmp_path, "worker", 4, 1, count_kills, rate=0.02)
    assert (tmp_path / "faults.txt").exists(), "no read or write has failed"


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "seed"), [("worker", 401), ("worker", 402), ("executor", 403), ("executor", 404)])
def test_reads_and_writes_of_tasks_fail_while_others_are_killed(tmp_path, victim, seed, count_kills):
    run(tmp_path, victim, seed, 3, count_kills, rate=0.02)


def test_there_are_enough_kills():
    assert sum(kills for _, _, kills in ALL) >= 60
    assert {victim for victim, _, _ in ALL} == {"driver", "worker", "executor"}
