"""TPCx-BB: the flows against batch Spark SQL over the same tables, on every engine, row for row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.cli import main
from penstock.errors import FlowError
from penstock.lab.workloads.catalogue import make_workload
from penstock.lab.workloads.tpcx_bb import data as storing
from penstock.lab.workloads.tpcx_bb import generator, tables
from penstock.lab.workloads.tpcx_bb.q3 import LastViews

from ...how import how
from . import tpcx_bb_oracle as oracle

DAY = 86_400
SEED = 3
CLICKS, SALES, DAYS = 0.0006, 0.003, 6
"""Scales of the two large tables, over a few days only, so that windows hold more than one row."""


@dataclass(frozen=True)
class Case:
    """A query with the options that suit small data, and the same question in SQL."""

    name: str
    options: dict[str, str]
    sql: str
    parameters: dict[str, Any]
    least: int
    """How many rows the answer must have at least, so that equality means something."""


CASES = [
    Case(
        "q1",
        {"stores": "1,2,3,10", "hours": "2", "limit": "20"},
        oracle.Q1,
        {"span": 7200, "categories": "1,2,3", "stores": "1,2,3,10", "least": 1, "limit": 20},
        100,
    ),
    Case(
        "q2",
        {"limit": "10"},
        oracle.Q2,
        {"span": DAY, "timeout": 3600, "item": 10_001, "limit": 10},
        50,
    ),
    Case(
        "q2",
        {"limit": "10", "pairs": "all"},
        oracle.Q2_ALL_PAIRS,
        {"span": DAY, "timeout": 3600, "limit": 10},
        50,
    ),
    Case(
        "q3",
        {"item": "0", "lookback_days": "2", "limit": "3"},
        oracle.Q3,
        {"span": DAY, "views": 5, "lookback": 2 * DAY, "categories": "2,3", "item": 0, "limit": 3},
        50,
    ),
    Case("q4", {}, oracle.Q4, {"span": DAY, "timeout": 3600}, 5),
    Case(
        "q15",
        {"start": "2001-01-02", "end": "2001-01-05"},
        oracle.Q15,
        {"store": 10, "start": "2001-01-02", "end": "2001-01-05"},
        2,
    ),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the tables once, in several files."""
    directory = tmp_path_factory.mktemp("tpcx-bb")
    clicks = generator.web_clickstreams(CLICKS, SEED, DAYS, rows=1000)
    storing.write(directory / "web_clickstreams", clicks)
    storing.write(directory / "store_sales", generator.store_sales(SALES, SEED, DAYS, rows=800))
    storing.write(directory / "item", [tables.item(CLICKS, SEED)])
    storing.write(directory / "web_page", [tables.web_page(CLICKS, SEED)])
    return directory


@pytest.fixture(scope="module")
def answers(spark: Any, data: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Ask the oracle."""
    return {case.sql: oracle.answer(spark, data, case.sql, **case.parameters) for case in CASES}


def lines(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Write a line for each entry of a report's list, as the oracle does."""
    if not rows or "top" not in rows[0]._fields:
        return [tuple(row) for row in rows]
    flat = [(*row[:-1], *entry.values()) for row in rows for entry in row.top]
    # Lists of different purchased items close together, in the order of their first rows; the oracle sorts them.
    return sorted(flat, key=lambda line: (line[1], line[0])) if "purchased_item" in rows[0]._fields else flat


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["sequential", "threads", "spark"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name + "-".join(["", *case.options]))
def test_a_query_equals_batch_sql(case: Case, engine: Any, spark: Any, data: Path, answers: Any) -> None:
    flow = make_workload(f"tpcx-bb-{case.name}", {"data": str(data), **case.options})
    options: dict[str, Any] = {"batch_rows": 2500} if engine == "threads" else {"epoch_rows": 2500}
    options |= {"spark": spark} if engine == "spark" else {}
    (rows,) = ps.run(flow, **how(engine, **options)).results.values()
    found, expected = lines(rows), answers[case.sql]
    assert len(expected) >= case.least
    if case.name == "q15":
        # Spark adds the sales of a day in another order, and computes the line from means: 1e-9 is far above what
        # either rounds and far below what any wrong row would change.
        found = sorted(found)
        assert [row[0] for row in found] == [row[0] for row in expected]
        assert np.allclose([row[1:] for row in found], [row[1:] for row in expected], rtol=1e-9, atol=0)
    else:
        assert found == expected


def test_every_click_enters_the_last_five() -> None:
    """As in the benchmark's reducer: the purchase of another item is one of the last five clicks before this one."""
    last_views, state = LastViews(10_001, 5, 864_000, frozenset(range(1, 20_000))), ()
    for click in [*((at, 7, at, None) for at in range(1, 6)), (6, 7, 99, 1)]:
        state, viewed = last_views(state, click)
        assert viewed == []
    assert last_views(state, (7, 7, 10_001, 2))[1] == [(10_001, item) for item in (2, 3, 4, 5, 99)]


def kinds(name: str, data: Path) -> list[str]:
    flow = make_workload(f"tpcx-bb-{name}", {"data": str(data)})
    short = {"stateless": "SL", "partitioned": "PS", "stateful": "SF"}
    return [short[node.operator.kind] for node in flow.nodes.values() if node.operator.kind in short]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("q1", "SL PS SL PS SF"),
        ("q2", "SL PS SL PS SF"),
        ("q3", "SL PS PS"),
        ("q4", "SL SL PS SL SF"),
        ("q15", "SL SL PS SL"),
    ],
)
def test_operators_are_of_the_kinds_of_the_papers_table(name: str, expected: str, data: Path) -> None:
    """Some operators are in two halves: the pairs of Q1, the first of Q4 and the line of Q15 have a stateless one."""
    assert kinds(name, data) == expected.split()


def test_the_generator_repeats_itself_and_goes_by_its_seed() -> None:
    for make in (generator.web_clickstreams, generator.store_sales):
        first, again, other = (list(make(0.002, seed, 20, rows=500)) for seed in (1, 1, 2))
        assert len(first) > 1
        assert first == again
        assert first != other


def test_rows_are_in_the_order_of_time_across_files(data: Path) -> None:
    for table, prefix in (("web_clickstreams", "wcs_click"), ("store_sales", "ss_sold")):
        files = sorted((data / table).glob("*.parquet"))
        assert len(files) > 2
        rows = pq.read_table(files)
        at = rows[f"{prefix}_ts"].to_numpy()
        assert (np.diff(at) >= 0).all()
        computed = rows[f"{prefix}_date_sk"].to_numpy() * DAY + rows[f"{prefix}_time_sk"].to_numpy()
        assert (computed == at).all()
        assert at[0] // DAY == tables.FIRST_DATE_SK


def test_sizes_follow_the_scale_factor() -> None:
    for scale in (0.01, 0.05):
        size = tables.sizes(scale)
        clicks = sum(part.num_rows for part in generator.web_clickstreams(scale, 1))
        sales = sum(part.num_rows for part in generator.store_sales(scale, 1))
        assert abs(clicks / size.clicks - 1) < 0.05
        assert abs(sales / size.sales - 1) < 0.05


def test_users_and_items_are_skewed_and_purchases_are_of_known_users() -> None:
    clicks = next(iter(generator.web_clickstreams(0.05, 1)))
    for column, share in (("wcs_user_sk", 0.1), ("wcs_item_sk", 0.2)):
        counts = np.sort(pc.value_counts(clicks[column].drop_null()).field("counts").to_numpy())[::-1]
        hot = max(1, len(counts) // 50)
        assert counts[:hot].sum() > share * counts.sum()
    bought = clicks.filter(pc.is_valid(clicks["wcs_sales_sk"]))
    assert len(bought) > 100
    assert bought["wcs_user_sk"].null_count == bought["wcs_item_sk"].null_count == 0
    assert len(set(bought["wcs_sales_sk"].to_pylist())) == len(bought)


def test_a_workload_makes_its_data_and_runs_from_the_command_line(tmp_path: Path) -> None:
    options = ["-o", "scale=0.002", "-o", f"data={tmp_path / 'data'}", "-o", f"out={tmp_path / 'out'}"]
    assert main(["run", "tpcx-bb-q15", "--engine", "threads", *options]) == 0
    assert pq.read_table(str(tmp_path / "out")).column_names[:3] == ["category", "slope", "intercept"]
    with pytest.raises(FlowError, match=r"was made with scale=0\.002 and seed=1, not with scale=0\.01"):
        make_workload("tpcx-bb-q15", {"data": str(tmp_path / "data"), "scale": "0.01"})


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="no list of whole numbers"):
        make_workload("tpcx-bb-q1", {"data": str(tmp_path), "scale": "0.001", "stores": "ten"})
    with pytest.raises(FlowError, match="no date; write for example"):
        make_workload("tpcx-bb-q15", {"data": str(tmp_path), "scale": "0.001", "start": "September"})
    with pytest.raises(FlowError, match=r"scale=.*; it must be more than 0"):
        make_workload("tpcx-bb-q1", {"data": str(tmp_path / "none"), "scale": "0"})
    assert not (tmp_path / "none").exists()
