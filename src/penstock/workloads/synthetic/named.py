"""The synthetic flows as workloads with names: parameters are the options of `penstock run`."""

from __future__ import annotations

from typing import Any

from penstock import write
from penstock.flow import Flow
from penstock.workloads.synthetic import calculator as calculators
from penstock.workloads.synthetic import matrix as matrices
from penstock.workloads.synthetic.shapes import Shape, graph


def pipeline(
    *,
    depth: int = 12,
    cost_us: float = 100.0,
    kind: str = "numpy",
    selectivity: float = 1.0,
    rows: int = 10_000,
    seed: int = 1,
    out: str = "",
) -> Flow:
    """Run busy operators one behind the other (Streams, C-Stream)."""
    return _graph("pipeline", 1, depth, cost_us, kind, selectivity, rows, seed, out)


def data_parallel(
    *,
    width: int = 12,
    cost_us: float = 100.0,
    kind: str = "numpy",
    selectivity: float = 1.0,
    rows: int = 10_000,
    seed: int = 1,
    out: str = "",
) -> Flow:
    """Run busy operators side by side, each with its part of the rows (Streams, C-Stream)."""
    return _graph("data-parallel", width, 1, cost_us, kind, selectivity, rows, seed, out)


def mixed(
    *,
    width: int = 4,
    depth: int = 4,
    cost_us: float = 100.0,
    kind: str = "numpy",
    selectivity: float = 1.0,
    rows: int = 10_000,
    seed: int = 1,
    out: str = "",
) -> Flow:
    """Run pipelines of busy operators side by side (Streams)."""
    return _graph("mixed", width, depth, cost_us, kind, selectivity, rows, seed, out)


def tree(
    *,
    branches: int = 2,
    depth: int = 6,
    cost_us: float = 100.0,
    kind: str = "numpy",
    selectivity: float = 1.0,
    rows: int = 10_000,
    seed: int = 1,
    out: str = "",
) -> Flow:
    """Run a tree of busy operators, each dealing its rows out to its branches (C-Stream)."""
    return _graph("tree", branches, depth, cost_us, kind, selectivity, rows, seed, out)


def reverse_tree(
    *,
    branches: int = 2,
    depth: int = 6,
    cost_us: float = 100.0,
    kind: str = "numpy",
    selectivity: float = 1.0,
    rows: int = 10_000,
    seed: int = 1,
    out: str = "",
) -> Flow:
    """Run a tree of busy operators from its leaves to its root (C-Stream)."""
    return _graph("reverse-tree", branches, depth, cost_us, kind, selectivity, rows, seed, out)


def matrix(
    *,
    rows: int = 20_000,
    tuple_size: int = 16,
    repeats: int = 4,
    selectivity: float = 1.0,
    state_size: int = 256,
    keys: int = 1_000,
    skew: float = 0.0,
    seed: int = 1,
    out: str = "",
) -> Flow:
    """Run matrix operators, a stateless and a partitioned one, with sizes and selectivity as parameters (Ordered)."""
    return matrices.matrix(
        rows=rows,
        tuple_size=tuple_size,
        repeats=repeats,
        selectivity=selectivity,
        state_size=state_size,
        keys=keys,
        skew=skew,
        seed=seed,
        sink=_writer(out),
    )


def calculator(
    *,
    rows: int = 20_000,
    rows_per_second: float = 0.0,
    keys: int = 10_000,
    skew: float = 0.5,
    shuffle_rows: int = 0,
    tuple_bytes: int = 128,
    state_bytes: int = 1_024,
    cost_us: float = 1_000.0,
    kind: str = "numpy",
    seed: int = 1,
    out: str = "",
) -> Flow:
    """Run a generator of skewed keys that change, and a calculator with state for each key (Elasticutor)."""
    return calculators.calculator(
        rows=rows,
        rows_per_second=rows_per_second or None,
        keys=keys,
        skew=skew,
        shuffle_rows=shuffle_rows,
        tuple_bytes=tuple_bytes,
        state_bytes=state_bytes,
        cost_us=cost_us,
        kind=kind,  # type: ignore[arg-type]  # checked where the work is made
        seed=seed,
        sink=_writer(out),
    )


def _graph(
    shape: Shape,
    width: int,
    depth: int,
    cost_us: float,
    kind: str,
    selectivity: float,
    rows: int,
    seed: int,
    out: str,
) -> Flow:
    return graph(
        shape,
        width=width,
        depth=depth,
        cost_us=cost_us,
        kind=kind,  # type: ignore[arg-type]  # checked where the work is made
        selectivity=selectivity,
        rows=rows,
        seed=seed,
        sink=_writer(out),
    )


def _writer(out: str) -> Any:
    """Write Parquet to a directory; without one show a few rows of each batch."""
    return write.parquet(out) if out else write.console(limit=2)
