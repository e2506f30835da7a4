"""The input sequence of several sources across restarts and crashes: the Spark engine goes on where it stood."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps

from .running import Crash, make_engine, read_back, sequential

OUT = {"i": int, "name": str, "n": int}
VALUES = {"a": [0, 0, 2, 3, 3, 3, 7, 9, 9, 12, 15, 15, 20], "b": [1, 3, 3, 8, 9], "c": [3] * 4 + list(range(4, 30))}


def write(directory: Path, form: str) -> Any:
    """Write each source as some small files, and return a reader for each."""
    readers = {}
    for name, values in VALUES.items():
        path = directory / name
        path.mkdir(parents=True)
        for number, start in enumerate(range(0, len(values), 6)):
            rows = [{"name": name, "n": n} for n in values[start : start + 6]]
            file = path / str(number)
            if form == "parquet":
                pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=4)
            else:
                file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(file, (number + 1, number + 1))
        schema = {"name": str, "n": int}
        readers[name] = ps.read.parquet(str(path)) if form == "parquet" else ps.read.json(str(path), schema=schema)
    return readers


def flow_of(readers: Any, out: Path, **options: Any) -> ps.Flow:
    flow = ps.Flow("sequence")
    first, *others = (flow.source(name, reader, **options) for name, reader in readers.items())
    numbered = first.union(*others).scan(lambda n, r: (n + 1, (n, r.name, r.n)), 0, schema=OUT, name="running")
    numbered.sink("out", ps.write.parquet(str(out)))
    return flow


@pytest.mark.parametrize("crashes", [False, True], ids=["stopped", "crashed"])
@pytest.mark.parametrize("form", ["parquet", "json"])
@pytest.mark.parametrize("options", [{"order_by": "n"}, {}], ids=["by order", "in turn"])
def test_goes_on_after_every_epoch(tmp_path: Path, options: Any, form: str, crashes: bool) -> None:
    """Each run does one epoch and is stopped, or crashes just before the commit of the next one."""
    readers = write(tmp_path / "data", form)
    expected = [tuple(row) for row in sequential(flow_of(readers, tmp_path / "out", **options)).results["out"]]
    names = [name for _, name, _ in expected]
    if options:
        assert [n for *_, n in expected] == sorted(n for *_, n in expected)
    else:
        assert names[:9] == list("abc") * 3
    runs = 0
    while True:
        engine = make_engine(flow_of(readers, tmp_path / "out", **options), tmp_path / "ck", epoch_rows=4)
        epochs: list[Any] = []
        engine._listener = epochs.append
        commit = engine._commit

        def commit_once(*args: Any, commit: Any = commit, epochs: Any = epochs) -> Any:
            if crashes and epochs:
                raise Crash
            return commit(*args)

        engine._commit = commit_once  # type: ignore[method-assign]
        if not crashes:
            engine._listener = lambda stats, engine=engine, epochs=epochs: (epochs.append(stats), engine.stop())
        try:
            engine.run()
        except Crash:
            runs += 1
            continue
        runs += 1
        if not epochs or not engine._stop.is_set():
            break
        assert runs < 60
    assert runs > 5
    assert read_back(tmp_path / "out") == expected


def test_a_backlog_larger_than_an_epoch_is_not_late(tmp_path: Path) -> None:
    """As long as one source is at values that another has passed, the other waits."""
    readers = {
        "a": ps.read.items([{"name": "a", "n": n} for n in range(200)]),
        "b": ps.read.items([{"name": "b", "n": n} for n in range(100, 110)]),
    }
    engine = make_engine(flow_of(readers, tmp_path / "out", order_by="n"), tmp_path / "ck", epoch_rows=20)
    engine.run()
    found = [(n, name) for _, name, n in read_back(tmp_path / "out")]
    assert found == sorted(found)
    assert len(found) == 210
