"""`penstock run` on Spark, from the file to the Parquet, and its errors without a JVM trace."""

import json

import pyarrow.parquet as pq
import pytest

from penstock.cli import main

from .support import write

pytestmark = pytest.mark.spark

TOTALS = """
    from typing import NamedTuple

    import penstock as ps
    from prices import price

    class Total(NamedTuple):
        shop: str
        total: int

    def add(total: int, sale: ps.Record) -> tuple[int, Total]:
        total += price(sale.items)
        return total, Total(sale.shop, total)

    SALES = [{"shop": "ab"[i % 2], "items": i} for i in range(10)]
    flow = ps.Flow("totals")
    flow.source("sales", ps.read.items(SALES)).key_by("shop").scan(add, 0).sink("out", ps.write.parquet("OUT"))
"""


@pytest.mark.usefixtures("spark")
def test_from_the_file_to_parquet(tmp_path, monkeypatch, capsys):
    code = tmp_path / "code"
    code.mkdir()
    write(code, "prices.py", "def price(items):\n    return items\n")
    out = tmp_path / "out"
    file = write(code, "totals.py", TOTALS.replace("OUT", str(out)))
    monkeypatch.chdir(tmp_path)  # not where the code is: the workers get it by themselves

    assert main(["run", str(file), "--tasks", "2", "--epoch-rows", "4", "--log", "json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert events[-1]["event"] == "done"
    assert events[-1]["rows_in"] == 10
    rows = [row for part in sorted(out.glob("epoch=*/*.parquet")) for row in pq.ParquetFile(part).read().to_pylist()]
    totals = {"a": 0, "b": 0}
    wanted = []
    for i in range(10):
        totals["ab"[i % 2]] += i
        wanted.append({"shop": "ab"[i % 2], "total": totals["ab"[i % 2]]})
    assert rows == wanted

    assert main(["state", ".penstock/totals", "add", "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"key": "a", "value": 20},
        {"key": "b", "value": 25},
    ]
    assert main(["run", str(file)]) == 0
    assert "this checkpoint's run is at its end" in capsys.readouterr().err


@pytest.mark.usefixtures("spark")
def test_an_error_of_a_function_names_the_users_file(tmp_path, monkeypatch, capfd):
    code = tmp_path / "failing_code"
    code.mkdir()
    # Names of their own: the workers of the session have loaded the modules of the test above.
    write(code, "strict_prices.py", "def price(items):\n    return 100 // (7 - items)\n")
    text = TOTALS.replace("OUT", str(tmp_path / "out")).replace("from prices", "from strict_prices")
    file = write(code, "strict_totals.py", text)
    monkeypatch.chdir(tmp_path)

    assert main(["run", str(file)]) == 1
    out, err = capfd.readouterr()  # also what the JVM writes
    lines = (out + err).splitlines()
    assert len(lines) <= 25
    assert lines[-1].startswith(f"OperatorError: operator 'add' failed at {code}/strict_prices.py:2: ZeroDivisionError")
    assert lines[-1].endswith("row: Row(shop='b', items=7)")
