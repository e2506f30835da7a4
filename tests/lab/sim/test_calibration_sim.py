"""Check that the machines' calibrated costs put the best levels where Streams' text puts them (section 5).

At full size, with short measurements: it is the place of the best level that counts, not its throughput.
"""

import pytest

from penstock.elastic.thread_level import ThreadLevel
from penstock.lab.sim.machine import POWER8, XEON, Machine
from penstock.lab.sim.scale import SHAPES, Experiment, experiments, static_levels

PIPELINE, DATA_PARALLEL, MIXED = SHAPES


def relative(experiment: Experiment, levels: tuple[int, ...]) -> dict[int, float]:
    measured = {level: experiment.static(level, periods=2) for level in levels}
    best = max(measured.values())
    return {level: value / best for level, value in measured.items()}


def test_pipeline_on_the_xeon_is_flat_from_72_to_132() -> None:
    found = relative(Experiment(PIPELINE, XEON, 1), (16, 72, 96, 132, 176))
    assert min(found[72], found[96], found[132]) > 0.85
    assert found[16] < 0.4
    assert found[176] < 0.95


def test_pipeline_on_the_power8_is_best_from_128() -> None:
    found = relative(Experiment(PIPELINE, POWER8, 1), (32, 128, 160, 184))
    assert min(found[128], found[160]) > 0.9
    assert found[32] < 0.7


@pytest.mark.parametrize(
    ("machine", "flops", "good", "worse"),
    [
        # Very few threads are best for a cost of 1.
        (XEON, 1, (2,), (16, 88)),
        (POWER8, 1, (3,), (32, 128)),
        # 8 to 10 threads on the Xeon, clearly fewer at 16; 16 to 24 on the Power8.
        (XEON, 10_000, (8, 10), (16, 64)),
        (POWER8, 10_000, (16, 20), (4, 64)),
        # 130 to 184 on the Power8 for 100,000.
        (POWER8, 100_000, (130, 184), (32,)),
    ],
)
def test_data_parallel(machine: Machine, flops: int, good: tuple[int, ...], worse: tuple[int, ...]) -> None:
    found = relative(Experiment(DATA_PARALLEL, machine, flops), (*good, *worse))
    assert min(found[level] for level in good) > 0.8
    assert max(found[level] for level in worse) < 0.8


def test_mixed_is_best_at_all_cores_on_the_power8_and_no_better_than_at_80_on_the_xeon() -> None:
    power8 = relative(Experiment(MIXED, POWER8, 1_000), (64, 184))
    assert power8[64] < 0.85
    assert power8[184] == 1.0
    xeon = relative(Experiment(MIXED, XEON, 1_000), (80, 176))
    assert xeon[80] > 0.88


def test_all_experiments_are_there() -> None:
    names = [experiment.name for experiment in experiments()]
    assert len(names) == len(set(names)) == 18
    assert static_levels(POWER8)[-1] == 184
    assert static_levels(XEON)[-1] == 176


def test_the_thread_level_at_full_size() -> None:
    """One of the bench's experiments, with fewer periods: within ten per cent of the best fixed level."""
    experiment = Experiment(DATA_PARALLEL, XEON, 10_000)
    journey, reached = experiment.elastic(ThreadLevel(high=176), periods=40, noise=0.03, seed=1)
    best = max(experiment.static(level, periods=3) for level in (6, 8, 10, 12))
    assert reached >= 0.9 * best
    assert journey.levels[-1] in range(8, 13)
