"""What the statistics of Parquet files spare the driver, and when they are not believed."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.interfaces import read_split
from penstock.connectors.parquet import row_group_spans
from penstock.kernels import ahead

from ..in_turn import one_of_each
from .running import flow_of, make_engine, read_back, sequential

INT = pa.int64()


def spans(path: Path, values: Any, kind: pa.DataType, *, read_as: pa.DataType | None = None, **options: Any) -> Any:
    pq.write_table(pa.table({"n": pa.array(values, kind)}), path / "file", row_group_size=2, **options)
    found = row_group_spans(str(path / "file"), "n", read_as or kind)
    assert [(group.start, group.stop) for group in found] == [(n, n + 2) for n in range(0, len(values), 2)]
    return [None if group.ends is None else group.ends.to_pylist() for group in found]


class TestRowGroups:
    def test_integers_narrow_ones_and_days(self, tmp_path: Path) -> None:
        assert spans(tmp_path, [3, 1, -5, 7], INT) == [[1, 3], [-5, 7]]
        assert spans(tmp_path, [3, 1, -5, 7], pa.int16(), read_as=INT) == [[1, 3], [-5, 7]]
        assert spans(tmp_path, [dt.date(2020, 1, 2), dt.date(1960, 1, 1)], pa.date32()) == [
            [dt.date(1960, 1, 1), dt.date(2020, 1, 2)]
        ]

    @pytest.mark.parametrize("zone", [None, "UTC"])
    def test_times_in_another_unit(self, tmp_path: Path, zone: str | None) -> None:
        kind, wanted = pa.timestamp("ns", zone), pa.timestamp("us", zone)
        (found,) = spans(tmp_path, [1_999, -1], kind, read_as=wanted)
        read = pq.ParquetFile(tmp_path / "file").read().column("n").cast(wanted, safe=False)
        assert found == sorted(read.to_pylist())

    def test_nothing_where_a_value_is_null(self, tmp_path: Path) -> None:
        assert spans(tmp_path, [None, 1, 2, 3, None, None], INT) == [None, [2, 3], None]

    def test_nothing_where_the_file_compares_in_another_way(self, tmp_path: Path) -> None:
        assert spans(tmp_path, [1.0, float("nan")], pa.float64()) == [None]
        assert spans(tmp_path, [1, (1 << 63) + 1], pa.uint64()) == [None]
        assert spans(tmp_path, [1, 2], INT, read_as=pa.timestamp("us")) == [None]
        assert spans(tmp_path, [1, 2], pa.timestamp("us"), read_as=pa.timestamp("us", "UTC")) == [None]
        assert spans(tmp_path, [1, 2], pa.timestamp("ns"), use_deprecated_int96_timestamps=True) == [None]

    def test_nothing_where_there_is_none(self, tmp_path: Path) -> None:
        assert spans(tmp_path, [1, 2], INT, write_statistics=False) == [None]
        assert [group.ends for group in row_group_spans(str(tmp_path / "file"), "other", INT)] == [None]


def write(directory: Path, name: str, values: list[int | None], **options: Any) -> Any:
    (directory / name).mkdir(parents=True)
    table = pa.table({"name": [name] * len(values), "n": pa.array(values, INT)})
    pq.write_table(table, directory / name / "rows", row_group_size=4, **options)
    return ps.read.parquet(str(directory / name))


GIVEN: dict[str, dict[str, list[int | None]]] = {
    "apart": {"a": list(range(40)), "b": list(range(40, 80)), "c": list(range(80, 120))},
    "interleaved": {"a": list(range(0, 120, 3)), "b": list(range(1, 120, 3)), "c": list(range(50, 60))},
    "not in order inside of groups": {"a": [n ^ 3 for n in range(40)], "b": list(range(20, 36))},
    "ties": {"a": [n // 4 for n in range(40)], "b": [n // 10 for n in range(40)], "c": [5] * 9},
    "nulls": {"a": [None] * 5 + list(range(20)), "b": [None, 0, 4, None, *range(18)]},
}
READ = {"apart": 0, "interleaved": 12, "not in order inside of groups": 4, "ties": 4, "nulls": 20}
"""The rows whose order_by the driver reads at most, with statistics: some of the groups that two sources share."""


@pytest.mark.parametrize(("case", "epoch_rows"), one_of_each(GIVEN, [10, 1000, 3]))
def test_the_same_rows_with_fewer_reads(tmp_path: Path, monkeypatch: Any, case: str, epoch_rows: int) -> None:
    counted = [0]

    def counting(*arguments: Any) -> Any:
        for piece in read_split(*arguments):
            counted[0] += piece.positions.shape[-1]
            yield piece

    monkeypatch.setattr(ahead, "read_split", counting)
    outputs, reads = [], []
    for statistics in (True, False):
        place = tmp_path / str(statistics)
        readers = {
            name: write(place, name, values, write_statistics=statistics) for name, values in GIVEN[case].items()
        }
        flow = flow_of(readers, place / "out", order_by="n", on_late="divert")
        make_engine(flow, place / "ck", epoch_rows=epoch_rows).run()
        reads.append(counted[0])
        counted[0] = 0
        outputs.append(read_back(place / "out"))
        assert outputs[-1] == [tuple(row) for row in sequential(flow).results["out"]]
    assert outputs[0] == outputs[1]
    assert reads[1] >= sum(map(len, GIVEN[case].values()))
    assert epoch_rows < 4 or reads[0] < reads[1]
    assert epoch_rows < 1000 or reads[0] <= READ[case]
