"""A flow whose state holds classes of Penstock's own, for a checkpoint that was written before they moved."""

from __future__ import annotations

import datetime as dt
import tarfile
import zlib
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.lab.workloads.mobile_fraud import Speed

ROWS = [{"n": n, "t": n // 2, "k": (7 * n + n // 5) % 5, "v": n / 7} for n in range(120)]
OUT = {"n": int, "before": int}


class Pairs(ps.Coroutine):
    """Give every row with the one before the last, which waits in the operator."""

    async def process(self, ctx: ps.CoroutineContext) -> None:
        while await ctx.wait_for_all({0: 3}):
            first = ctx.pop(0)
            await ctx.emit((first.n, ctx.peek(0).n))


def before(last: Any, row: Any) -> tuple[Any, tuple[int, int]]:
    """Keep the row itself, and a row of a workload's class."""
    return (row, Speed(dt.datetime(2026, 1, 1), row.k, 0.0, row.v)), (row.n, -1 if last is None else last[0].n)


def old_flow(data: Path, out: Path) -> ps.Flow:
    flow = ps.Flow("old names")
    rows = flow.source("rows", ps.read.parquet(str(data)), time="t")

    def write(stream: ps.Stream, name: str) -> None:
        stream.sink(f"{name} rows", ps.write.parquet(str(out / f"{name} rows")))

    write(rows.key_by("k").scan(before, None, schema=OUT, name="running"), "scanned")
    write(ps.operate(Pairs, rows, schema=OUT, name="pairs"), "paired")
    write(
        rows.key_by("k").window(ps.session(3)).apply(lambda w, r: (r[0].n, len(r)), schema=OUT, name="sessions"),
        "sessions",
    )
    write(rows.sort(slack=4, name="sorted").map(lambda r: (r.n, r.k), schema=OUT, name="flat"), "sorted")
    joined = rows.key_by("k").join(
        rows.filter(lambda r: r.n % 3 == 0, name="third").key_by("k"), within=(-4, 4), combine=lambda a, b: (a.n, b.n),
        schema=OUT, name="joined"
    )  # fmt: skip
    write(joined, "joined")
    return flow


def opened(work: Path, name: str = "old_names", where: bytes = b"/tmp/oldfix2") -> Path:
    """Unpack a checkpoint, as if it had been written here."""
    with tarfile.open(Path(__file__).with_name(f"{name}.tar.gz")) as archive:
        archive.extractall(work, filter="data")
    for path in work.rglob("*/*.json"):
        _, text = path.read_bytes().rstrip(b"\n").split(b" ", 1)
        text = text.replace(where, str(work).encode())
        path.write_bytes(b"%08x %s\n" % (zlib.crc32(text), text))
    return work / "ck"
