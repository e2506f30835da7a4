"""Every kind of file source and every kind of sink, in one flow each way: same rows, same order."""

from __future__ import annotations

import csv
import json
import socketserver
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import penstock as ps

pytestmark = pytest.mark.spark

ROWS = [{"n": n, "name": f"row {n % 7}", "half": n / 2} for n in range(60)]
SCHEMA = {"n": int, "name": str, "half": float}


def write_source(directory: Path, form: str) -> ps.read.Files:
    """Write the rows as four files and return the reader of them."""
    directory.mkdir()
    for number in range(4):
        rows = ROWS[number * 15 : (number + 1) * 15]
        path = directory / f"{number}.{form}"
        if form == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        elif form == "csv":
            pa.csv.write_csv(pa.Table.from_pylist(rows), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reader: ps.read.Files = getattr(ps.read, form)(str(directory))
    return reader


def counted(state: int, row: Any) -> tuple[int, dict[str, Any]]:
    return state + 1, {"n": row.n, "name": row.name, "seen": state + 1}


def expected() -> list[tuple[int, str, int]]:
    seen: dict[str, int] = {}
    out = []
    for row in ROWS:
        seen[row["name"]] = seen.get(row["name"], 0) + 1
        out.append((row["n"], row["name"], seen[row["name"]]))
    return out


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_files_come_in_order_and_every_sink_gets_the_same_rows(spark: Any, tmp_path: Path, form: str) -> None:
    called: list[tuple[int, list[Any]]] = []
    frames: list[tuple[int, list[Any]]] = []
    flow = ps.Flow(f"all sinks of {form}")
    stream = flow.source("rows", write_source(tmp_path / "in", form))
    out = stream.key_by("name").scan(counted, 0, schema={"n": int, "name": str, "seen": int})
    out.sink("memory")
    out.sink("callback", lambda rows, epoch: called.append((epoch, rows)))
    out.sink("frame", ps.write.frame(lambda frame, epoch: frames.append((epoch, frame.collect()))))
    for kind in ("parquet", "json", "csv"):
        out.sink(kind, getattr(ps.write, kind)(str(tmp_path / kind)))
    run = ps.run(flow, on=ps.Spark(spark, tasks=3, epoch_rows=32))

    assert [tuple(row) for row in run.results["memory"]] == expected()
    assert [tuple(row) for _, rows in called for row in rows] == expected()
    assert [tuple(row) for _, rows in frames for row in rows] == expected()
    assert [epoch for epoch, _ in called] == sorted({epoch for epoch, _ in called})
    assert (
        read_parquet(tmp_path / "parquet") == read_json(tmp_path / "json") == read_csv(tmp_path / "csv") == expected()
    )
    # Any tool can read the directory: here Arrow's data sets, which see the epoch as a partition.
    table = pa.dataset.dataset(tmp_path / "parquet", partitioning="hive").to_table()
    assert table.num_rows == len(ROWS)
    assert "epoch" in table.column_names


def part_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("epoch=*/part-*"))


def read_parquet(directory: Path) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for file in part_files(directory) for row in pq.ParquetFile(file).read().to_pylist()]


def read_json(directory: Path) -> list[tuple[Any, ...]]:
    return [
        tuple(json.loads(line).values()) for file in part_files(directory) for line in file.read_text().splitlines()
    ]


def read_csv(directory: Path) -> list[tuple[Any, ...]]:
    rows = []
    for file in part_files(directory):
        with file.open() as lines:
            rows += [(int(row["n"]), row["name"], int(row["seen"])) for row in csv.DictReader(lines)]
    return rows


class Lines(socketserver.BaseRequestHandler):
    """Send a few lines and close."""

    def handle(self) -> None:
        self.request.sendall("".join(f"line {n}\n" for n in range(20)).encode())


def test_a_socket_ends_when_the_server_does(spark: Any) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), Lines) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        flow = ps.Flow("lines")
        flow.source("lines", ps.read.socket("127.0.0.1", server.server_address[1])).map(lambda row: row.value).sink(
            "out"
        )
        run = ps.run(flow, on=ps.Spark(spark))
    assert run.results["out"] == [f"line {n}" for n in range(20)]


def test_a_rate_counts(spark: Any) -> None:
    flow = ps.Flow("rate")
    flow.source("ticks", ps.read.rate(2000, rows=50), time="timestamp").map(lambda row: row.value).sink("out")
    assert ps.run(flow, on=ps.Spark(spark)).results["out"] == list(range(50))


def test_an_error_is_the_users_own(spark: Any) -> None:
    flow = ps.Flow("failing")
    flow.source("rows", ROWS).map(lambda row: 1 / (row.n - 41), name="inverse").sink("out")
    with pytest.raises(ps.OperatorError) as raised:
        ps.run(flow, on=ps.Spark(spark, epoch_rows=50))
    assert (raised.value.operator, raised.value.error) == ("inverse", "ZeroDivisionError: division by zero")
    assert raised.value.where.startswith(__file__)
    assert "n=41" in raised.value.row
    assert len(str(raised.value).splitlines()) == 1


def test_a_value_that_does_not_fit_names_operator_field_and_value(spark: Any) -> None:
    flow = ps.Flow("misfit")
    flow.source("rows", ROWS).map(lambda row: {"n": "x" if row.n == 7 else row.n}, schema={"n": int}, name="bad").sink(
        "out"
    )
    with pytest.raises(ps.OperatorError, match=r"operator 'bad' failed.*field 'n' has the value 'x'.*int64"):
        ps.run(flow, on=ps.Spark(spark))


def test_a_function_that_cannot_be_pickled_is_refused(spark: Any) -> None:
    lock = threading.Lock()
    flow = ps.Flow("unpicklable")
    flow.source("rows", ROWS).map(lambda row: (lock, row)[1], name="locked").sink("out")
    with pytest.raises(ps.FlowError, match=r"'locked'.*cannot be pickled"):
        ps.run(flow, on=ps.Spark(spark))


def test_a_second_sink_on_a_directory_is_refused(spark: Any, tmp_path: Path) -> None:
    flow = ps.Flow("twice")
    stream = flow.source("rows", ROWS)
    stream.sink("one", ps.write.json(str(tmp_path / "out")))
    stream.sink("two", ps.write.json(str(tmp_path / "out")))
    with pytest.raises(ps.FlowError, match="'one' and 'two' both write"):
        ps.run(flow, on=ps.Spark(spark))
