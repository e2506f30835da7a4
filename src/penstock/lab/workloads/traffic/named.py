"""The traffic queries as a workload with a name: parameters are the options of `penstock run`."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from penstock.annotated import Count, checked
from penstock.connectors.files import Files
from penstock.errors import FlowError
from penstock.flow import Flow
from penstock.lab.workloads.outputs import writer
from penstock.lab.workloads.traffic import car_following, queries, sumo, trace

SIMULATORS = {"model": car_following.frames, "sumo": sumo.frames}


@checked
def traffic(
    *,
    vehicles: Count = 1_000,
    ticks: Count = 250,
    replicas: Count = 1,
    load: str = "constant",
    simulator: str = "model",
    seed: int = 1,
    data: str = "",
    out: str = "",
) -> Flow:
    """Count agents per road, average and rank speeds of simulated vehicles, any number of replicas (Rebinding)."""
    directory = Path(data) if data else _default_directory(simulator, vehicles, ticks, load, seed)
    make_trace(directory, vehicles, ticks, load, simulator, seed)
    reader = Files(str(directory), "parquet", trace.SCHEMA, by_name=True)
    return queries.build(reader, replicas, lambda name: writer(out, name, 2))


def make_trace(directory: Path, vehicles: int, ticks: int, load: str, simulator: str, seed: int) -> None:
    if directory.exists():
        return
    if simulator not in SIMULATORS:
        raise FlowError(f"simulator={simulator!r}; there are {', '.join(SIMULATORS)}")
    # Under another name first: a run that is cut short leaves no half trace.
    unfinished = directory.with_name(f"{directory.name}.{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    frames = SIMULATORS[simulator](vehicles, ticks, load, seed)  # type: ignore[arg-type]  # an unknown load is refused
    trace.write(frames, unfinished)
    unfinished.rename(directory)


def _default_directory(*parts: object) -> Path:
    return Path(tempfile.gettempdir()) / "penstock-traffic" / "-".join(map(str, parts))
