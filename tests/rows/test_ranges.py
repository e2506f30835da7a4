"""Ranges of keys: the same for a column and for its values, exact for all numbers, and bad bounds are refused."""

import datetime as dt
import math
from bisect import bisect_right
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.operators.base import Key
from penstock.rows.keys import Ranges, is_nan

DAY = dt.date(2024, 2, 29)
MOMENT = dt.datetime(2024, 2, 29, 12, 0, 0, 1)
BERLIN = dt.timezone(dt.timedelta(hours=1))
LARGE = 2**53
"""From here on a float does not have every integer."""

INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(LARGE - 3, LARGE + 3) | st.integers(-3, 3)
NUMBERS = INTEGERS | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.decimals(-9, 9, places=2)
MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))

COLUMNS = {
    "int64": (pa.int64(), INTEGERS, NUMBERS),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1) | st.integers(LARGE - 3, LARGE + 3), NUMBERS),
    "int8": (pa.int8(), st.integers(-128, 127), NUMBERS),
    "float64": (pa.float64(), st.floats() | st.integers(LARGE - 3, LARGE + 3).map(float), NUMBERS),
    "float32": (pa.float32(), st.floats(width=32), NUMBERS),
    "bool": (pa.bool_(), st.booleans(), st.integers(-1, 2)),
    "decimal": (pa.decimal128(6, 2), st.decimals(-99, 99, places=2), NUMBERS),
    "text": (pa.string(), st.text(max_size=3), st.text(max_size=3)),
    "bytes": (pa.binary(), st.binary(max_size=2), st.binary(max_size=2)),
    "date": (pa.date32(), st.dates(), st.dates()),
    "moment": (pa.timestamp("us"), MOMENTS, MOMENTS),
    "zoned": (
        pa.timestamp("us", "UTC"),
        MOMENTS.map(lambda m: m.replace(tzinfo=dt.UTC)),
        MOMENTS.map(lambda m: m.replace(tzinfo=BERLIN)),
    ),
}


def ascending(bounds: list) -> tuple:
    """Sort bounds, and leave out those that are equal to another."""
    kept: list = []
    for bound in sorted(bounds):
        if not kept or kept[-1] < bound:
            kept.append(bound)
    return tuple(kept)


@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
def test_a_column_has_the_ranges_of_its_values(name, data):
    kind, keys, bounds = COLUMNS[name]
    ranges = Ranges(ascending(data.draw(st.lists(bounds, min_size=1, max_size=6))))
    # Bounds themselves are the keys where a cut may be wrong.
    drawn = data.draw(st.lists(keys | st.none() | st.sampled_from(ranges.bounds), max_size=12))
    fitting = [key for key in drawn if fits(key, kind)]
    column = pa.array(fitting, kind)
    values = column.to_pylist()
    expected = [expect(ranges.bounds, value) for value in values]
    assert ranges.of_columns([column]).tolist() == expected
    assert ranges.of_values(values).tolist() == expected
    assert [ranges.of_value(value) for value in values] == expected


def fits(key, kind) -> bool:
    try:
        return pa.array([key], kind).to_pylist() == [key] or is_nan(key)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False


def expect(bounds: tuple, key) -> int:
    """Count the bounds that a key is not below."""
    if key is None:
        return 0
    return len(bounds) if is_nan(key) else sum(1 for bound in bounds if bound <= key)


PARTS = st.none() | st.integers(-2, 2)


@given(
    st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)) | st.tuples(st.integers(-2, 2)), min_size=1, max_size=5),
    st.lists(st.tuples(PARTS, PARTS), max_size=12),
)
def test_keys_of_several_columns_are_tuples_with_nulls_first(bounds, keys):
    ranges = Ranges(ascending(bounds))
    columns = [pa.array([key[i] for key in keys], pa.int64()) for i in range(2)]
    low = -99  # stands for null, below all others
    plain = [tuple(low if part is None else part for part in key) for key in keys]
    assert ranges.of_columns(columns).tolist() == [bisect_right(ranges.bounds, key) for key in plain]


def test_a_bound_is_the_least_key_of_the_range_above_it():
    ranges = Ranges((10, 20))
    assert len(ranges) == 3
    assert ranges.of_values([9, 10, 19, 20, 21]).tolist() == [0, 1, 1, 2, 2]


def test_equal_keys_are_in_one_range():
    ranges = Ranges((1, Decimal("1.5"), LARGE + 1))
    for alike in ([1, 1.0, True, Decimal(1), np.int64(1)], [1.5, Decimal("1.5"), np.float64(1.5)]):
        assert len({ranges.of_value(key) for key in alike}) == 1
    # As floats, LARGE and LARGE + 1 are one number.
    assert ranges.of_values([LARGE, LARGE + 1]).tolist() == [2, 3]
    assert ranges.of_columns([pa.array([float(LARGE), float(LARGE + 2)])]).tolist() == [2, 3]


def test_no_number_is_last_and_null_is_first():
    for ranges in (Ranges((1, 2)), Ranges((Decimal(1), Decimal(2)))):
        for nothing in (math.nan, Decimal("nan"), np.float64("nan")):
            assert ranges.of_value(nothing) == 2
        assert ranges.of_value(None) == 0
        assert ranges.of_value(math.inf) == 2
    assert Ranges(((1, 5), (2, 5))).of_values([(1, None), (1, math.nan), (2, Decimal("nan"))]).tolist() == [0, 1, 2]


@pytest.mark.parametrize("key", ["a", MOMENT, (1,)])
def test_a_key_of_another_type_is_named(key):
    with pytest.raises(TypeError, match=r"cannot be compared with 5, a bound of key_by.*one type"):
        Ranges((5, 6)).of_value(key)
    with pytest.raises(TypeError, match="cannot be compared"):
        Ranges((5, 6)).of_values([1, key])


@given(st.integers(1, 300), st.integers(1, 40), st.integers(-5, 45))
def test_ranges_are_dealt_to_shards_in_order_and_evenly(count, bounds, key):
    ranges = Key(("k",), ranges=Ranges(tuple(range(bounds))))
    shards = [ranges.shard(each, count) for each in range(-1, bounds)]
    assert shards == sorted(shards)
    assert shards[0] >= 0
    assert shards[-1] < count
    sizes = np.bincount(shards, minlength=count)
    sizes = sizes[sizes > 0]
    assert sizes.max() - sizes.min() <= 1
    assert len(sizes) == min(count, bounds + 1)
    assert ranges.shards([key], count).tolist() == [ranges.shard(key, count)]
    assert ranges.column_shards([pa.array([key])], count).tolist() == [ranges.shard(key, count)]


class TestBadBounds:
    """Errors come where the flow is built, and say what to do."""

    SCHEMA = pa.schema(
        [
            ("n", pa.int64()),
            ("s", pa.string()),
            ("b", pa.binary()),
            ("d", pa.date32()),
            ("t", pa.timestamp("us")),
            ("z", pa.timestamp("us", "UTC")),
            ("l", pa.duration("us")),
        ]
    )

    def stream(self, **options):
        return ps.Flow("f").source("in", ps.read.items([]), **options)

    @pytest.mark.parametrize(
        ("fields", "bounds", "message"),
        [
            (["n"], 8, "takes a list of bounds, for example .* not 8"),
            (["s"], "am", "takes a list of bounds"),
            (["n"], [], "has no bounds; give at least one, or leave ranges= out"),
            (["n"], [1, 3, 2], "ascend, but 3 comes before 2"),
            (["n"], [1, 1], "1 comes before 1; sort them, each once"),
            (["n"], ["a"], "'a' in a bound, but the field 'n' is of type int64"),
            (["n"], [(1,)], r"bound \(1,\), but the key has one field, 'n'; give plain values"),
            (["n"], [1, None], "bound None; nulls are in the first range"),
            (["n"], [1, math.nan], "bound nan; .* NaN in the last"),
            (["s"], [1], "1 in a bound, but the field 's' is of type string"),
            (["b"], ["a"], "'a' in a bound, but the field 'b' is of type binary"),
            (["d"], [MOMENT], "the field 'd' is of type date32"),
            (["t"], [DAY], "the field 't' is of type timestamp"),
            (["t"], [MOMENT.replace(tzinfo=BERLIN)], "the field 't' is of type timestamp"),
            (["z"], [MOMENT], "the field 'z' is of type timestamp"),
            (["l"], ["a"], "the field 'l' is of type duration"),
            (["n", "s"], [1], r"bound 1, but the key has the fields 'n', 's'; give tuples"),
            (["n", "s"], [[1, "a"]], r"\[1, 'a'\].*no canonical encoding"),
            (["n", "s"], [()], r"bound \(\), but the key has the fields 'n', 's'"),
            (["n", "s"], [(1, "a", 2)], r"bound \(1, 'a', 2\), but the key has the fields 'n', 's'"),
            (["n", "s"], [(1, 2)], "2 in a bound, but the field 's' is of type string"),
            (["n", "s"], [(1, None)], r"bound \(1, None\); nulls are in the first range"),
        ],
    )
    def test_of_fields(self, fields, bounds, message):
        with pytest.raises(ps.FlowError, match=rf"operator 'in': key_by\(ranges=...\) .*{message}"):
            self.stream(schema=self.SCHEMA).key_by(*fields, ranges=bounds)

    @pytest.mark.parametrize(
        ("bounds", "message"),
        [([1, "a"], "1 and 'a', which have no order"), ([[1]], "no canonical encoding"), ([b"b", b"a"], "ascend")],
    )
    def test_of_functions_and_of_rows_of_unknown_type(self, bounds, message):
        with pytest.raises(ps.FlowError, match=message):
            self.stream().key_by(lambda row: row, ranges=bounds)
        with pytest.raises(ps.FlowError, match=message):
            self.stream().key_by("n", ranges=bounds)

    def test_of_a_join(self):
        rows = self.stream(schema={"n": int, "t": int}, time="t")
        for left, right in (([1], None), ([1], [2])):
            with pytest.raises(
                ps.FlowError, match=r"'join' joins keys in different ranges; give both key_by\(\) the same"
            ):
                rows.key_by("n", ranges=left).join(rows.key_by("n", ranges=right), 5)

    def test_good_ones_pass(self):
        rows = self.stream(schema=self.SCHEMA)
        for field, bounds in {
            "n": np.array([1, 2]),
            "s": iter(["a", "b"]),
            "b": [b"a"],
            "d": [DAY],
            "t": [MOMENT],
            "z": [MOMENT.replace(tzinfo=BERLIN)],
        }.items():
            assert len(rows.key_by(field, ranges=bounds).key.ranges) > 1
        assert rows.key_by("n", "s", ranges=[(1,), (1, "m"), (2,)]).key.ranges == Ranges(((1,), (1, "m"), (2,)))
        assert (rows >> ps.key_by("n", ranges=[1])).key == rows.key_by("n", ranges=[1]).key
