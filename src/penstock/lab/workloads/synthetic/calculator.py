"""Elasticutor's micro-benchmark (section 5.1): a generator of skewed keys that change, and a calculator with state.

The paper's setting: 10,000 keys, skew 0.5, 128 bytes a tuple, 1 ms of computing on average with a variance of half
the mean, 32 KB of state a shard (256 MB in all, 26 KB a key), frequencies shuffled among the keys up to 16 times a
minute. Shuffles come after a number of rows here, not at a time, so that a stream is the same in every run: shuffling
w times a minute at a rate is `shuffle_rows = 60 * rate / w`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from penstock import read
from penstock.annotated import Amount, Count, Limits, Rate, checked
from penstock.errors import FlowError
from penstock.flow import Flow
from penstock.lab.workloads.synthetic.busy import Kind, Work, make_work
from penstock.lab.workloads.synthetic.draws import ZipfKeys, normals, uniforms

PARTS = 8
"""The work of a mean row, in parts: a row's own work is a whole number of them."""
MARK_BYTES = 4
"""What a row writes into the state of its key."""
ROWS = {"serial": int, "key": int, "parts": int, "payload": bytes}
RESULTS = {"serial": int, "key": int, "seen": int, "check": int}


@dataclass(frozen=True)
class Generator:
    """Generate rows: a key, how much work it is, and a payload."""

    keys: ZipfKeys
    tuple_bytes: int
    spread: float
    """Standard deviation of the work, as a part of its mean."""
    seed: int

    def __call__(self, start: int, stop: int) -> pa.Table:
        rows = np.arange(start, stop, dtype=np.int64)
        parts = np.rint(PARTS * (1 + self.spread * normals(rows, self.seed, 3))).clip(min=0).astype(np.int64)
        cells = np.arange(start * self.tuple_bytes, stop * self.tuple_bytes, dtype=np.int64)
        content = (uniforms(cells, self.seed, 9) * 256).astype(np.uint8)
        offsets = np.arange(0, len(content) + 1, max(1, self.tuple_bytes), dtype=np.int32)
        if not self.tuple_bytes:
            offsets = np.zeros(len(rows) + 1, dtype=np.int32)
        payload = pa.Array.from_buffers(
            pa.binary(), len(rows), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(content.tobytes())]
        )
        return pa.table({"serial": rows, "key": self.keys(rows), "parts": parts, "payload": payload})


@dataclass(frozen=True)
class Calculator:
    """Work on a row, and write its checksum into the state of its key."""

    work: Work
    """One part of the work."""
    state_bytes: int

    def __call__(self, state: Any, row: Any) -> tuple[Any, tuple[int, int, int, int]]:
        for _ in range(row.parts):
            self.work()
        seen, kept = state or (0, bytes(self.state_bytes))
        mark = zlib.crc32(row.payload).to_bytes(MARK_BYTES, "little")
        at = MARK_BYTES * seen % (self.state_bytes - MARK_BYTES + 1)
        kept = kept[:at] + mark + kept[at + MARK_BYTES :]
        return (seen + 1, kept), (row.serial, row.key, seen + 1, zlib.crc32(kept))


@checked
def calculator(
    *,
    rows: Amount | None = 20_000,
    rows_per_second: Rate = 0.0,
    keys: Count = 10_000,
    skew: Rate = 0.5,
    shuffle_rows: Amount = 0,
    tuple_bytes: Amount = 128,
    state_bytes: Annotated[int, Limits(MARK_BYTES)] = 1_024,
    cost_us: Rate = 1_000.0,
    kind: Kind = "numpy",
    seed: int = 1,
    sink: Any = None,
) -> Flow:
    """Build the generator and the calculator, which keeps `state_bytes` for each key; the sink is `out`.

    At 0 `rows_per_second` the generator saturates the calculator, as in the paper; without `rows` it never ends.
    """
    if kind == "waiting":
        raise FlowError('kind="waiting"; an operator with state cannot be async def: use kind="blocking"')
    # The variance is half of the mean, both in ms as the paper has them: at 1 ms the deviation is 0.7 ms.
    spread = (0.5 / (cost_us / 1000)) ** 0.5 if cost_us else 0.0
    generator = Generator(ZipfKeys(keys, skew, seed, shuffle_rows), tuple_bytes, min(spread, 1.0), seed)
    flow = Flow("synthetic calculator")
    stream = flow.source(
        "rows", read.generate(generator, schema=ROWS, rows=rows, rows_per_second=rows_per_second or None)
    )
    calculate = Calculator(make_work(kind, cost_us / PARTS), state_bytes)
    stream.key_by("key").scan(calculate, None, schema=RESULTS, name="calculator").sink("out", sink)
    return flow
