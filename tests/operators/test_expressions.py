"""Expressions that are written as text: what they mean, and where a bad one is wrong."""

import datetime as dt
import math
import pickle
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.operators import aggregate_values
from penstock.operators.expressions import bound, value_column
from penstock.rows.records import record_type

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("yes", pa.bool_()),
        ("price", pa.decimal128(8, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("two words", pa.int32()),
    ]
)
ROW = record_type(SCHEMA)
NOON = dt.datetime(2024, 3, 1, 12, 30, tzinfo=dt.UTC)
ONE = {"a": 7, "b": -2, "x": 2.5, "s": "Ab c", "yes": True, "price": Decimal("5.25"), "at": NOON, "two words": 3}


def value(text, **fields):
    """Compute an expression for one row, by what a worker would be sent."""
    made, _ = bound(ps.expr(text), ROW, "it", "a test")
    return value_column(ROW.encode([{**ONE, **fields}]), pickle.loads(pickle.dumps(made)))[0].as_py()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * 2", 3),
        ("(a + b) * 2", 10),
        ("a - b - 1", 8),
        ("-a", -7),
        ("- -a", 7),
        ("a / 2", 3.5),
        ("a // 2", 3),
        ("b // 3", -1),
        ("a % 4", 3),
        ("b % 3", 1),
        ("a % -4", -1),
        ("x % 1", 0.5),
        ("x // 1", 2.0),
        ("5.3 % 0.1", 5.3 % 0.1),
        ("a % 0", None),
        ("a // 0", None),
        ("a / 0", math.inf),
        ("`two words` + 1", 4),
        ("1e3 + .5", 1000.5),
        ("a > 5 and b < 0", True),
        ("a > 5 AND NOT b < 0 Or yes", True),
        ("not not yes", True),
        ("a = 7 and a == 7 and a <> 8 and a != 8", True),
        ("s is null", False),
        ("s is not null", True),
        ("a in (1, 7)", True),
        ("a not in (1, 2.5)", True),
        ("s in ('x', 'Ab c')", True),
        ("a between 7 and 8", True),
        ("a not between 7 and 8", False),
        ("s like 'A%'", True),
        ("price > 5", True),
        ("price + 1.25", Decimal("6.50")),
        ("price in (5.25)", True),
        ("5 < price", True),
        ("'it''s' + \" ok\"", "it's ok"),
        ("upper(s) + lower(s)", "AB Cab c"),
        ("length(trim('  é '))", 1),
        ("substring(s, 2, 2)", "b "),
        ("substring(s, 4)", "c"),
        ("replace(s, 'b', 'bb')", "Abb c"),
        ("starts_with(s, 'A') and ends_with(s, 'c') and contains(s, 'b ') and matches(s, '^A.*c$')", True),
        ("concat(s, '-', text(a))", "Ab c-7"),
        ("reverse(s)", "c bA"),
        ("if(a > 5, 'high', 'low')", "high"),
        ("if(null, 1, 2)", 2),
        ("coalesce(null, a)", 7),
        ("least(a, b) + greatest(a, b)", 5),
        ("round(2.5) + round(1.25, 1) + floor(x) + ceil(x)", 2 + 1.2 + 2 + 3),
        ("int(x) + int('12')", 14),
        ("float(a) / 2", 3.5),
        ("abs(b) + sign(b) + power(a, 2)", 50),
        ("sqrt(4.0) + exp(0.0) + ln(1.0) + log10(100.0)", 5.0),
        ("year(at) * 100 + month(at) + day(at) + hour(at) + minute(at) + second(at)", 202446),
        ("day_of_week(at)", 4),
        ("at > timestamp('2024-03-01T12:00:00Z')", True),
        ("date('2024-03-01') = date('2024-03-01')", True),
        ("is_nan(x)", False),
        ("true or null", True),
        ("a\n  > 5", True),
    ],
)
def test_what_it_gives(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize(
    "text", ["a + 1", "a % 2", "2 % a", "a // b", "a > 1", "a in (1, 2)", "not (a = 1)", "-a", "a between 1 and 2"]
)
def test_null_makes_null(text):
    assert value(text, a=None) is None


@pytest.mark.parametrize("text", ["a / 1", "float(a)", "a + 0.0", "coalesce(a, 0.5)", "a // 1.0"])
def test_large_whole_numbers_become_the_nearest_float(text):
    assert value(text, a=(1 << 60) + 1) == float(1 << 60)
    assert value("a > 0.5", a=(1 << 60) + 1) is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [("i + 1", 1 << 31), ("i * b", (1 << 31) * 200 - 200), ("-c - b", -300), ("abs(c * b)", 20_000)],
)
def test_small_whole_numbers_are_computed_as_large_ones(text, expected):
    row = record_type(pa.schema([("i", pa.int32()), ("b", pa.uint8()), ("c", pa.int8())]))
    made, kind = bound(ps.expr(text), row, "it", "a test")
    assert kind == pa.int64()
    assert value_column(row.encode([((1 << 31) - 1, 200, 100)]), made).to_pylist() == [expected]


def test_a_null_divided_by_nothing_is_null():
    assert value("a % b", a=None, b=0) is None


@pytest.mark.parametrize(
    ("text", "at", "problem"),
    [
        ("", 1, "the text ends where a field, a constant or a function should be"),
        ("price >", 8, "the text ends where"),
        ("price % ) > 5", 9, "')' stands where"),
        ("a b", 3, "'b' stands where an operator, or the end should be"),
        ("a + $", 5, "'$' cannot stand here"),
        ("s = 'open", 5, '"\'" is not closed'),
        ("1 < a < 5", 7, "joined by 'and'"),
        ("a is 5", 6, "'5' stands where 'null' should be"),
        ("a not 5", 7, "'in', 'between' or 'like'"),
        ("a in 5", 6, "'5' stands where '(' should be"),
        ("(a + 1", 7, "the text ends where ')' should be"),
        ("9999999999999999999 + a", 1, "does not fit int64"),
        ("__import__('os')", 1, "there is no function __import__()"),
        ("uper(s)", 1, "there is no function uper(); did you mean 'upper'"),
        ("prices > 5", 1, "there is no field 'prices'"),
        ("a and yes", 3, "'and' takes what is true or false, not something of the type int64"),
        ("length(a)", 1, "'length()' takes a text"),
        ("s % 2", 3, "'%' takes numbers"),
        ("s > a", 3, "'>' does not take what it is given: string and int64"),
        ("lower(s, s)", 1, "'lower()' takes 1 values, not 2"),
        ("contains(s, s)", 1, "'contains()' takes a text in quotes"),
        ("matches(s, '(')", 1, "missing )"),
        ("at > timestamp('2024-03-01')", 4, "'>' compares times with a zone with times without one"),
        ("at in (timestamp('2024-03-01'))", 4, "'in' compares times with a zone"),
        ("timestamp('soon')", 1, "does not take what it is given"),
        ("(" * 150 + "a" + ")" * 150, 101, "brackets are inside one another"),
        ("+".join(["a"] * 200), 398, "parts are inside one another"),
        ("a >\n  $", 7, "'$' cannot stand here"),
    ],
)
def test_where_a_bad_one_is_wrong(text, at, problem):
    with pytest.raises(ps.FlowError) as caught:
        value(text)
    message = str(caught.value)
    assert problem in message
    assert f"at character {at} of the text" in message
    assert "\n" not in message
    assert "kernel" not in message
    assert ("after" if at > len(text) else " ".join(text[at - 1 :].split())[:10]) in message.split("of the text,")[1]


def test_what_is_no_text():
    with pytest.raises(ps.FlowError, match="takes a text"):
        ps.expr(5)


def test_the_error_names_the_operator():
    stream = ps.Flow("f").source("in", ps.read.items([], schema=SCHEMA))
    with pytest.raises(ps.FlowError, match=r"operator 'large': ps.expr: there is no field 'amount'"):
        stream.filter(ps.expr("amount > 5"), name="large")
    with pytest.raises(ps.FlowError, match="a filter needs one that is true or false"):
        stream.filter(ps.expr("a + 5"))


def test_a_row_that_cannot_be_computed_is_blamed_and_no_file_of_a_library():
    stream = ps.Flow("f").source("in", ps.read.items([{"s": "1"}, {"s": "x"}]))
    with pytest.raises(ps.OperatorError, match=r"operator 'select' failed: ArrowInvalid: .*'x' .*; row: Row\(s='x'\)"):
        ps.run(stream.select(n=ps.expr("int(s)")).sink("out"), on=ps.Sequential())


def test_in_every_place():
    rows = [{"a": n, "b": n % 3} for n in range(20)]
    stream = ps.Flow("f").source("in", ps.read.items(rows), time="a")
    some = stream.filter(ps.expr("a % 5 != 0")).select("*", half=ps.expr("a // 2"), name=ps.expr("text(b)"))
    made = some.window(10).aggregate(
        n=ps.agg.count(where=ps.expr("name = '1'")),
        total=ps.agg.sum(ps.expr("half * b")),
        best=ps.agg.argmax("a", by=ps.expr("-b")),
    )
    left = [row for row in rows if row["a"] % 5]
    expected = []
    for start in (0, 10):
        inside = [row for row in left if start <= row["a"] < start + 10]
        ones = sum(row["b"] == 1 for row in inside)
        total = sum(row["a"] // 2 * row["b"] for row in inside)
        best = min(inside, key=lambda row: (row["b"], row["a"]))["a"]
        expected.append((start, start + 10, ones, total, best))
    assert ps.run(made.sink("out"), on=ps.Threads(workers=1)).results["out"] == expected


NUMBERS = st.none() | st.integers(-20, 20)
FLOATS = st.none() | st.integers(-50, 50).map(lambda n: n / 8)
ATOMS = st.sampled_from(["a", "b", "x", "3", "2.5", "-4", "null"])
ARITHMETIC = st.recursive(
    ATOMS,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*"]), inner)
        | st.builds("coalesce({}, {})".format, inner, inner)
        | st.builds("abs({})".format, inner)
    ),
    max_leaves=5,
)
TRUTHS = st.recursive(
    st.builds("{} {} {}".format, ARITHMETIC, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), ARITHMETIC)
    | st.builds("{} is null".format, ARITHMETIC)
    | st.builds("{} between {} and {}".format, ARITHMETIC, ATOMS, ATOMS)
    | st.builds("a in ({}, {})".format, ATOMS, ATOMS)
    | st.sampled_from(["a % 3 = 1 and a >= 0", "s like 'a%'", "substring(s, 2, 1) = 'b'", "length(s) > 1"]),
    lambda inner: (
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=4,
)


@settings(max_examples=100, deadline=None)
@given(TRUTHS, st.lists(st.tuples(NUMBERS, NUMBERS, FLOATS, st.sampled_from([None, "", "a", "abc", "bb"])), max_size=8))
def test_as_a_database_computes_it(text, rows):
    """Where both speak the same language; the database would take 2.5 for a DECIMAL."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
    row = record_type(schema)
    batch = row.encode([tuple(each) for each in rows])
    made, _ = bound(ps.expr(text), row, "it", "a test")
    database = duckdb.connect()
    database.register("input", pa.Table.from_batches([batch], schema))
    expected = database.sql(f"select {text.replace('2.5', '2.5::double')} from input").fetchall()
    assert value_column(batch, made).to_pylist() == [each for (each,) in expected]


@pytest.mark.parametrize("kind", ["count windows", "slack", "running", "top"])
def test_rows_that_are_taken_one_by_one_are_computed_together(kind, monkeypatch):
    calls = []
    monkeypatch.setattr(aggregate_values, "value_column", lambda *args: calls.append(1) or value_column(*args))
    rows = [{"a": n, "b": n % 3} for n in range(500)]
    stream = ps.Flow("f").source("in", ps.read.items(rows), time="a", slack=5 if kind == "slack" else 0).key_by("b")
    total = {"total": ps.agg.sum(ps.expr("a * 2"), where=ps.expr("b != 1")), "all": ps.agg.collect("b")}
    made = {
        "count windows": lambda: stream.window(ps.count_window(4)).aggregate(**total),
        "slack": lambda: stream.window(ps.session(50)).aggregate(**total),
        "running": lambda: stream.aggregate(**total),
        "top": lambda: stream.top(3, by=ps.expr("a % 7")),
    }[kind]()
    ps.run(made.sink("out"), on=ps.Threads(workers=1))
    assert 0 < len(calls) < 100
