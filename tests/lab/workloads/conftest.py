"""Run a workload on each engine, cut in several epochs or batches, so that state is carried from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps

from ...how import how

Results = dict[str, list[Any]]


@pytest.fixture(params=["sequential", "threads", pytest.param("spark", marks=pytest.mark.spark)])
def results_of(request: Any) -> Callable[[ps.Flow, int], Results]:
    """Return a function that runs a flow with about so many rows at once, and returns what comes out at each sink."""
    options: dict[str, dict[str, Any]] = {
        "sequential": {},
        "threads": {"threads": 2},
        "spark": {"tasks": 2},
    }
    if request.param == "spark":
        options["spark"]["spark"] = request.getfixturevalue("spark")

    def run(flow: ps.Flow, rows: int) -> Results:
        cut = {"batch_rows": rows} if request.param == "threads" else {"epoch_rows": rows}
        return ps.run(flow, **how(request.param, **options[request.param], **cut)).results

    return run
