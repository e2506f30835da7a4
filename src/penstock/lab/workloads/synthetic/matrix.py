"""Ordered's parametric operators: matrix computations with tuple size, state size, cost and selectivity as parameters.

A stateless operator multiplies a row's vector by a matrix, again and again, and passes it on several times; a
partitioned one multiplies it into a vector that it keeps for the key. Numbers are integers modulo a prime, so results
are exact whatever the order of additions. NumPy lets go of the GIL while it multiplies, but a product of small matrices
is over before another thread has woken up: only from some hundred numbers per row on do two threads multiply at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import read
from penstock.annotated import Amount, Count, Rate, checked
from penstock.flow import Flow
from penstock.lab.workloads.synthetic.draws import ZipfKeys, copies, uniforms

PRIME = 32_749
"""Products of two numbers below it, a vector's length of them added up, stay far below 2 ** 63."""

Vector = npt.NDArray[np.int64]
ROWS = {"serial": int, "key": int, "values": list[int]}
RESULTS = {"serial": int, "key": int, "seen": int, "result": int}


def square(seed: int, size: int) -> Vector:
    """Make a matrix of numbers modulo the prime."""
    return np.random.default_rng(seed).integers(0, PRIME, (size, size), dtype=np.int64)


def powered(matrix: Vector, vector: Vector, repeats: int) -> Vector:
    """Multiply a vector by the matrix so many times."""
    for _ in range(repeats):
        vector = matrix @ vector % PRIME
    return vector


@dataclass(frozen=True)
class Vectors:
    """Generate rows: a key by Zipf's law, and a vector."""

    keys: ZipfKeys
    size: int
    seed: int

    def __call__(self, start: int, stop: int) -> pa.Table:
        rows = np.arange(start, stop, dtype=np.int64)
        cells = np.arange(start * self.size, stop * self.size, dtype=np.int64)
        values = (uniforms(cells, self.seed, 7) * PRIME).astype(np.int64)
        lists = pa.ListArray.from_arrays(np.arange(0, len(cells) + 1, self.size, dtype=np.int32), values)
        return pa.table({"serial": rows, "key": self.keys(rows), "values": lists})


@dataclass(frozen=True)
class Multiply:
    """The stateless operator: multiply the vector, and pass the row on as often as the selectivity says."""

    size: int
    repeats: int
    selectivity: float
    seed: int

    @cached_property
    def matrix(self) -> Vector:
        return square(self.seed, self.size)

    def __call__(self, row: Any) -> list[tuple[int, int, list[int]]]:
        values = powered(self.matrix, np.array(row.values), self.repeats).tolist()
        return [(row.serial, row.key, values)] * copies(row.serial, self.selectivity, self.seed)


@dataclass(frozen=True)
class Accumulate:
    """The partitioned operator: multiply the vector into the key's own, which is as long as the state is large."""

    size: int
    repeats: int
    state_size: int
    seed: int

    @cached_property
    def matrix(self) -> Vector:
        return square(self.seed, self.size)

    def __call__(self, state: Any, row: Any) -> tuple[Any, tuple[int, int, int, int]]:
        seen, kept = state or (0, np.zeros(self.state_size, dtype=np.int64))
        vector = powered(self.matrix, np.array(row.values), self.repeats)
        at = seen * self.size % self.state_size
        kept = kept.copy()  # state that is changed in place would be changed even if the row fails
        part = kept[at : at + self.size]
        part += vector[: len(part)]
        part %= PRIME
        return (seen + 1, kept), (row.serial, row.key, seen + 1, int(kept.sum() % PRIME))


@checked
def matrix(
    *,
    rows: Amount = 2_000,
    tuple_size: Count = 512,
    repeats: Amount = 1,
    selectivity: Rate = 1.0,
    state_size: Count = 256,
    keys: Count = 1_000,
    skew: Rate = 0.0,
    seed: int = 1,
    sink: Any = None,
) -> Flow:
    """Build a stateless operator followed by a partitioned one, as Ordered's section 7.3.2 does; the sink is `out`.

    A row has `tuple_size` integers; each operator multiplies them by its matrix `repeats` times. The stateless one
    makes `selectivity` rows of one (50 in the paper), the partitioned one keeps `state_size` integers for each key.
    With fewer than some hundred integers per row threads take turns instead of working at once (see above).
    """
    flow = Flow("synthetic matrix")
    vectors = Vectors(ZipfKeys(keys, skew, seed), tuple_size, seed)
    stream = flow.source("rows", read.generate(vectors, schema=ROWS, rows=rows))
    many = stream.flat_map(Multiply(tuple_size, repeats, selectivity, seed), schema=ROWS, name="multiply")
    accumulate = Accumulate(tuple_size, repeats, state_size, seed + 1)
    many.key_by("key").scan(accumulate, None, schema=RESULTS, name="accumulate").sink("out", sink)
    return flow
