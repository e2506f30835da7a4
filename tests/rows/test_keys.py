"""Key hashes: the same for a column and for its values, for equal values, and in every process."""

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.rows.keys import check_keys, hash_column, hash_columns, hash_value, hash_values, mix, mix_array

DAY = dt.date(2024, 2, 29)
MOMENT = dt.datetime(2024, 2, 29, 12, 0, 0, 1, dt.UTC)

# State that was written by one version is read by the next: these numbers may never change.
PINNED = {
    0: 16294208416658607535,
    1: 10451216379200822465,
    -1: 16490336266968443936,
    2**70: 9915213162542412023,
    "": 13445780950910426817,
    "penstock": 16200073812722088579,
    "größe": 1113848265919177999,
    b"penstock": 4935600136776620314,
    1.5: 18138196053697305415,
    None: 11400714819323198485,
    DAY: 17081396668504754011,
    MOMENT: 3378212646618199709,
    ("a", 1): 338750222373161965,
    (): 16294208416658607535,
    Decimal("0.1"): 16689397052463385186,
}


def of_column(values, kind) -> list[int]:
    return hash_column(pa.array(values, kind)).tolist()


@pytest.mark.parametrize("value", PINNED, ids=repr)
def test_pinned(value):
    assert hash_value(value) == PINNED[value]


def test_stable_across_processes():
    """PYTHONHASHSEED changes hash() from process to process; the key hash does not follow."""
    code = "from penstock.rows.keys import hash_value as h; print(h('penstock'), h(('a', None, 1.5)), h(b'x'))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": "src", "PYTHONHASHSEED": seed},
            check=True,
            text=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {f"{hash_value('penstock')} {hash_value(('a', None, 1.5))} {hash_value(b'x')}\n"}


COLUMNS = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float64": (pa.float64(), st.floats(allow_nan=False)),
    "string": (pa.string(), st.text()),
    "binary": (pa.binary(), st.binary()),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    "naive timestamp": (pa.timestamp("us"), st.datetimes()),
    "decimal": (pa.decimal128(9, 3), st.decimals(-1000, 1000, places=3)),
}


@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
def test_a_column_hashes_as_its_values(name, data):
    kind, values = COLUMNS[name]
    drawn = data.draw(st.lists(st.none() | values, max_size=20))
    column = pa.array(drawn, kind)
    assert hash_column(column).tolist() == [hash_value(value) for value in column.to_pylist()]


@given(st.lists(st.tuples(st.none() | st.integers(-5, 5), st.none() | st.text(max_size=2)), min_size=1))
def test_several_columns_hash_as_tuples(rows):
    columns = [
        pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), [pa.int64(), pa.string()], strict=True)
    ]
    assert hash_columns(columns).tolist() == [hash_value(row) for row in rows]
    assert hash_columns(columns[:1]).tolist() == [hash_value(row[0]) for row in rows]


@given(st.lists(st.one_of(st.integers(), st.text(max_size=3), st.none(), st.floats(allow_nan=False))))
def test_lists_hash_as_their_values(values):
    assert hash_values(values).tolist() == [hash_value(value) for value in values]


@given(st.integers(0, 2**64 - 1))
def test_arrays_mix_as_integers(value):
    assert int(mix_array(np.array([value], np.uint64))[0]) == mix(value)


@pytest.mark.parametrize(
    "equal",
    [
        (1, 1.0, True, np.int64(1), np.float32(1), np.bool_(True), Decimal("1.0")),
        (0, 0.0, -0.0, False, Decimal(0)),
        (1.5, np.float64(1.5), Decimal("1.50")),
        (2**90, 2.0**90, Decimal(2**90)),
        (float("inf"), Decimal("inf")),
        (Decimal("0.1"), Decimal("0.10")),
        ((1, "a"), (1.0, "a")),
        (MOMENT, MOMENT.astimezone(dt.timezone(dt.timedelta(hours=5)))),
        ("a", np.str_("a")),
        (b"a", bytearray(b"a")),
    ],
    ids=repr,
)
def test_equal_keys_meet(equal):
    assert all(other == equal[0] for other in equal)
    assert len({hash_value(value) for value in equal}) == 1


@given(st.floats(allow_nan=False) | st.integers(), st.floats(allow_nan=False) | st.integers())
def test_numbers_that_are_equal_meet(a, b):
    assert a != b or hash_value(a) == hash_value(b)


def test_integer_and_float_columns_meet():
    assert of_column([1, 2, None], pa.int64()) == of_column([1.0, 2.0, None], pa.float64())
    assert of_column([True, False], pa.bool_()) == of_column([1, 0], pa.int32())


def test_unequal_keys_of_one_spelling_differ():
    """Not a law of hashing, but a collision here would be a mistake in the tags."""
    alike = [1, "1", b"1", ("1",), (1,), None, (None,), ("1", None), (1, 1), 1.1]
    assert len({hash_value(key) for key in alike}) == len(alike)


def test_shards_are_used_evenly():
    shards = hash_column(pa.array(range(100_000), pa.int64())) % 256
    counts = np.bincount(shards.astype(np.int64), minlength=256)
    assert counts.min() > 300
    assert counts.max() < 480


@pytest.mark.parametrize("key", [[1], {"a": 1}, object(), {1}, (1, [2]), 1j], ids=lambda key: type(key).__name__)
def test_what_cannot_be_a_key(key):
    with pytest.raises(
        TypeError, match="has no canonical encoding; use numbers, strings, bytes, dates, None, or tuples"
    ):
        hash_value(key)


def test_empty_and_all_null_columns():
    assert of_column([], pa.string()) == []
    assert of_column([None, None], pa.string()) == [hash_value(None)] * 2


@pytest.mark.parametrize("value", [1, 1 << 70, "a\udc80", b"b", True, None, 1.5, (1, "a"), dt.date(2001, 1, 1)])
def test_what_can_be_hashed_is_a_key(value):
    check_keys([1, value])
    hash_values([1, value])


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, object(), (1, [2])])
def test_what_cannot_is_refused_in_the_same_words(value):
    with pytest.raises(TypeError) as hashing:
        hash_values([1, value])
    with pytest.raises(TypeError) as checking:
        check_keys([1, value])
    assert str(checking.value) == str(hashing.value)
