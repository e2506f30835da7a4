"""Runs are merged in groups that together are all rows in order, each group of a bounded size."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.merge import SortedRun, merged
from penstock.rows.chunk import Chunk

LIMIT = 1024
"""No run is cut in shorter pieces."""


def run_of(first: int, steps: list[int], port: int) -> tuple[SortedRun, list[int]]:
    places = (first + np.cumsum([0, *steps])).astype(np.int64)
    chunk = Chunk([places], None, None, None, places.tolist())
    return SortedRun(first, port, lambda: chunk), places.tolist()


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 1500), st.integers(1, 3)), min_size=1, max_size=12))
def test_groups_are_all_rows_in_order(drawn: list[tuple[int, int, int]]) -> None:
    runs, places = zip(*(run_of(first, [step] * n, i) for i, (first, n, step) in enumerate(drawn)), strict=True)
    found: list[int] = []
    low: int | None = None
    for group, bound in merged(list(runs), LIMIT):
        here = sorted(row for _, chunk in group for row in chunk.get_rows())
        assert low is None or not here or here[0] >= low
        assert bound is None or not here or here[-1] < bound
        found += here
        low = bound
    assert low is None
    assert found == sorted(row for run in places for row in run)


def test_short_runs_come_together_until_there_are_enough() -> None:
    runs = [run_of(10_000 * n, [1] * 99, 0)[0] for n in range(30)]
    assert [sum(len(chunk) for _, chunk in group) for group, _ in merged(runs, LIMIT)] == [1100, 1100, 800]
