"""Each example gives what a database says of the same rows, in a few lines, and runs by itself."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OFFERS = """offers as (
    select b.i, b.ts, b.bidder, b.price, a.auction, a.seller from auctions a join bids b using (auction)
    where b.ts - a.ts between interval 0 seconds and interval 60 seconds)"""
ANSWERS = {
    "selection": """
        select ts, auction, bidder, price * 92 // 100 from bids
        where auction % 10 in (0, 5) and price >= 1000 order by i""",
    "hot_items": """
        with shown as (
            select time_bucket(interval 20 seconds, ts) - to_seconds(20 * n) as start, auction, i
            from bids, generate_series(0, 2) as _(n)),
        counts as (select start, auction, count(*) as n, min(i) as first from shown group by all)
        select start, start + interval 60 seconds, auction, n from counts
        qualify row_number() over (partition by start order by n desc, first) = 1 order by start""",
    "highest_price": """
        select time_bucket(interval 1 minute, ts) as start, start + interval 1 minute, max(price),
            first(bidder order by price desc, i), quantile_cont(price::double, 0.5), count(*),
            count(*) filter (price > 50000)
        from bids group by start order by start""",
    "last_ten": f"""
        with {OFFERS},
        sold as (select seller, auction, max(price) as price, max(ts) as last, min(i) as first from offers group by all)
        select seller, auction,
            avg(price) over (partition by seller order by last, first rows between 9 preceding and current row)
        from sold order by last, first""",
    "new_customers": f"""
        with {OFFERS},
        firsts as (select seller, min(ts) as ts, min(i) as i from offers group by seller, bidder)
        select seller, time_bucket(interval 1 minute, ts) as start, start + interval 1 minute, count(*)
        from firsts group by seller, start order by start, min(i)""",
    "three_streams": """
        select b.ts, b.auction, b.price, a.seller, p.city, a.category
        from bids b join auctions a using (auction) join people p on a.seller = p.person
        order by greatest(b.ts, a.ts, p.ts), a.i, b.i""",
    "sessions_by_user": """
        with steps as (
            select *, coalesce(ts - lag(ts) over w >= interval 15 seconds, true) as new
            from bids window w as (partition by bidder order by i)),
        numbered as (select *, sum(new::int) over (partition by bidder order by i) as number from steps)
        select bidder, min(ts), max(ts) + interval 15 seconds as stop, count(*), count(distinct auction),
            first(auction order by i), last(auction order by i), sum(price)::bigint
        from numbered group by bidder, number having count(*) > 1 order by stop, min(i)""",
    "top_per_window": """
        with sums as (
            select time_bucket(interval 1 minute, ts) as start, auction, sum(price)::bigint as total, min(i) as first
            from bids group by all)
        select start, row_number() over (partition by start order by total desc, first) as rank, auction, total
        from sums qualify rank <= 3 order by start, rank""",
}


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what runs an example as a script or as a module, which all find the market beside them."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield lambda name, as_script=False: runpy.run_path(
        str(EXAMPLES / f"{name}.py"), run_name="__main__" if as_script else name
    )
    sys.modules.pop("market", None)


def answer(market: Any, name: str) -> list[tuple[Any, ...]]:
    database = duckdb.connect()
    database.sql("set timezone = 'UTC'")
    for table, rows in market.rows().items():
        # `at` means something in SQL.
        named = [{"i": i, "ts": row["at"], **{k: v for k, v in row.items() if k != "at"}} for i, row in enumerate(rows)]
        database.register(table, pa.Table.from_pylist(named))
    return database.sql(ANSWERS[name]).fetchall()


def test_every_example_is_checked() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} - {"market"} == ANSWERS.keys()
    text = (EXAMPLES / "README.md").read_text()
    assert all(f"({name}.py)" in text for name in ANSWERS)


@pytest.mark.parametrize("name", ANSWERS)
def test_gives_what_a_database_says(name: str, example: Any) -> None:
    flow = example(name)["build"]()
    market = sys.modules["market"]
    (found,) = ps.run(flow, on=ps.Threads(workers=1)).results.values()
    expected = answer(market, name)
    assert len(expected) > 5
    assert [tuple(row) for row in found] == expected


@pytest.mark.parametrize("name", ANSWERS)
def test_runs_by_itself(name: str, example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    example(name, as_script=True)
    assert "rows\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ANSWERS)
def test_is_a_few_lines(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    tree = ast.parse(text)
    lines = sum(
        node.body[-1].end_lineno - node.body[0].lineno + 1  # type: ignore[operator]
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    )
    assert lines <= 15
    assert "Process" not in text
