"""What tests of the pilot of runs on Spark share: a flow, and a machine with made-up times."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import penstock as ps
from penstock.spark import task
from penstock.spark.parts import TaskReport
from penstock.spark.stages import EpochSpec

from ..conformance.inline import InlineBackend, run_on_table


def scanned() -> ps.Flow:
    """Build a flow of one keyed stage behind a function that waits."""
    flow = ps.Flow("scanned")
    rows = flow.source("rows", ps.read.items([]), schema={"k": int})
    looked = rows.map(lambda row: row, waits=True, schema={"k": int}, name="looked up")
    asked = looked.map(lambda row: row, in_flight=7, schema={"k": int}, name="asked")
    asked.key_by("k").scan(lambda n, row: (n + 1, n), 0, schema=int, name="counted").sink("out")
    return flow


class Busy(InlineBackend):
    """Report what tasks would on a machine where each row of a keyed operator costs a millisecond."""

    def run(self, spec: EpochSpec, frame: Any | None) -> TaskReport:
        self._timings: list[dict[str, Any]] = []
        outcome = super().run(spec, frame)
        return dataclasses.replace(outcome, timings=self._timings)

    def _level(self, spec: EpochSpec, level: int, inputs: Any) -> Any:
        import pyarrow as pa

        from penstock.spark.envelope import SCHEMA

        batches = []
        for number in self._shuffled(inputs):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(task, "CACHE", self._caches[self._random.randrange(len(self._caches))])
                made = task.Task(self._stages, spec, level, number)
                batches += run_on_table(made, spec, level, inputs[number], 1000)
            timing = made.timings()
            timing["load"] = {
                name: [(shard, rows, rows * 1e-3) for shard, rows, _ in load] for name, load in timing["load"].items()
            }
            spent = sum(seconds for load in timing["load"].values() for _, _, seconds in load)
            self._timings.append({**timing, "wall": spent, "cpu": spent})
        return pa.Table.from_batches(batches, SCHEMA)
