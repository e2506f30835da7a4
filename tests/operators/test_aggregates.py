"""What single aggregates make of nulls, NaN, decimals and large numbers, in whatever order they come."""

import math
from decimal import Decimal
from itertools import permutations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import FlowError
from penstock.operators import aggregates as agg
from penstock.operators.aggregation import aggregation
from penstock.rows.records import record_type

FLOAT = pa.float64()


def folded(aggregate: agg.Agg, values: list, kind: pa.DataType = FLOAT) -> object:
    """Fold values of a declared type, one by one; return the result."""
    row = record_type(pa.schema([("v", kind)]))
    bundle = aggregation({"it": aggregate}, "a", row)
    state = None
    for value in values:
        state = bundle.step(state, row.normalize({"v": value}))
    return bundle.results(state)[0]


class TestNan:
    @pytest.mark.parametrize("values", list(permutations([math.nan, 2.5, None, -1.0])))
    def test_is_larger_than_all_numbers_wherever_it_comes(self, values):
        assert folded(agg.min("v"), list(values)) == -1.0
        assert math.isnan(folded(agg.max("v"), list(values)))

    def test_alone(self):
        assert math.isnan(folded(agg.min("v"), [None, math.nan]))
        assert math.isnan(folded(agg.max("v"), [math.nan, None]))


class TestDecimals:
    def test_a_mean_of_undeclared_ones_is_a_float(self):
        bundle, state = aggregation({"it": agg.mean("v")}, "a", None), None
        for value in (Decimal("0.25"), None, Decimal("0.50")):
            state = bundle.step(state, {"v": value})
        (found,) = bundle.results(state)
        assert (type(found), found) == (float, 0.375)

    def test_a_mean_is_rounded_half_up(self):
        cents = [Decimal("0.01")] * 1 + [Decimal("0.00")] * 31  # 0.0003125
        assert folded(agg.mean("v"), cents, pa.decimal128(8, 2)) == Decimal("0.000313")

    @pytest.mark.parametrize(
        ("given", "of_sum", "of_mean"),
        [
            (pa.decimal128(8, 2), pa.decimal128(18, 2), pa.decimal128(12, 6)),
            (pa.decimal128(36, 2), pa.decimal128(38, 2), pa.decimal128(38, 4)),
            (pa.decimal256(70, 5), pa.decimal256(76, 5), pa.decimal256(74, 9)),
        ],
        ids=str,
    )
    def test_types(self, given, of_sum, of_mean):
        row = record_type(pa.schema([("v", given)]))
        bundle = aggregation({"s": agg.sum("v"), "m": agg.mean("v")}, "a", row)
        assert [field.type for field in bundle.fields(row)] == [of_sum, of_mean]

    def test_a_sum_that_does_not_fit_is_refused(self):
        kind = pa.decimal128(38, 0)
        assert folded(agg.sum("v"), [Decimal(10**38 - 2), Decimal(1)], kind) == 10**38 - 1
        with pytest.raises(OverflowError, match="does not fit decimal128"):
            folded(agg.sum("v"), [Decimal(10**38 - 1), Decimal(1)], kind)

    def test_of_a_function_are_a_float(self):
        assert folded(agg.mean(lambda row: row.v), [Decimal("0.5"), None], pa.decimal128(8, 2)) == 0.5


class TestWholeNumbers:
    def test_a_sum_may_be_larger_on_its_way(self):
        assert folded(agg.sum("v"), [2**62, 2**62, -1], pa.int64()) == 2**63 - 1

    def test_a_sum_that_does_not_fit_is_refused(self):
        with pytest.raises(OverflowError, match="does not fit int64"):
            folded(agg.sum("v"), [2**62, 2**62], pa.int64())

    def test_a_sum_of_a_function_has_any_size(self):
        assert folded(agg.sum(lambda row: row.v), [2**62, 2**62], pa.int64()) == 2**63


class TestQuantile:
    @pytest.mark.parametrize(
        ("q", "interpolation", "expected"),
        [
            (0.5, "linear", 2.5),
            (0.25, "linear", 1.75),
            (0, "linear", 1.0),
            (1, "linear", 4.0),
            (0.5, "lower", 2),
            (0.5, "higher", 3),
            (0.5, "nearest", 2),
            (0.6, "nearest", 3),
            (1, "higher", 4),
        ],
    )
    def test_between_two_numbers(self, q, interpolation, expected):
        found = folded(agg.quantile("v", q, interpolation=interpolation), [4, None, 1, 3, 2], pa.int64())
        assert (found, type(found)) == (expected, type(expected))

    def test_nan_is_larger_than_all_others(self):
        assert folded(agg.median("v"), [math.nan, 1.0, 2.0]) == 2.0
        assert math.isnan(folded(agg.quantile("v", 1), [math.nan, 1.0]))

    def test_of_nothing(self):
        assert folded(agg.median("v"), [None]) is None

    def test_of_decimals(self):
        assert folded(agg.median("v"), [Decimal("1.50"), Decimal("2.50")], pa.decimal128(5, 2)) == 2.0

    @pytest.mark.parametrize("q", [-0.1, 1.1, "half", True, math.nan])
    def test_a_part_that_is_none(self, q):
        with pytest.raises(FlowError, match="a number from 0 to 1"):
            agg.quantile("v", q)

    def test_an_unknown_interpolation(self):
        with pytest.raises(FlowError, match="linear, lower, higher, nearest"):
            agg.quantile("v", 0.5, interpolation="middle")

    def test_what_is_no_number(self):
        with pytest.raises(FlowError, match="of the type string"):
            folded(agg.median("v"), [], pa.string())
        bundle = aggregation({"m": agg.median(lambda v: v)}, "a", None)
        with pytest.raises(TypeError, match="takes numbers, not 'x'"):
            bundle.step(None, "x")


class TestArgmax:
    @pytest.mark.parametrize("values", list(permutations([math.nan, 2.5, None, -1.0])))
    def test_nan_is_largest_and_null_is_left_out(self, values):
        assert math.isnan(folded(agg.argmax("v", by="v"), list(values)))
        assert folded(agg.argmin("v", by="v"), list(values)) == -1.0

    def test_of_equal_ones_the_first(self):
        row = record_type(pa.schema([("v", pa.int64()), ("who", pa.string())]))
        bundle = aggregation({"a": agg.argmax("who", by="v"), "b": agg.argmin("who", by=pc.field("v") * 2)}, "x", row)
        state = None
        for v, who in [(1, "a"), (3, None), (3, "b"), (1, "c")]:
            state = bundle.step(state, row.normalize({"v": v, "who": who}))
        assert bundle.results(state) == [None, "a"]


class TestWhere:
    def test_is_true_or_false(self):
        with pytest.raises(FlowError, match="needs one that is true or false"):
            folded(agg.sum("v", where=pc.field("v") * 2), [])

    def test_is_no_text(self):
        with pytest.raises(FlowError, match="give an expression"):
            folded(agg.sum("v", where="v > 2"), [])

    def test_an_expression_needs_the_type_of_the_rows(self):
        with pytest.raises(FlowError, match="needs to know the rows' type"):
            aggregation({"x": agg.sum(pc.field("v") * 2)}, "a", None)

    def test_a_field_that_is_not_there(self):
        with pytest.raises(FlowError, match="does not fit rows with the fields v"):
            folded(agg.sum(pc.field("w") * 2), [])

    def test_the_value_of_other_rows_is_not_looked_at(self):
        value = agg.collect(lambda row: 6 // row.v, where=lambda row: row.v)
        assert folded(value, [3, 0, None, 2], pa.int64()) == [2, 3]
        assert folded(agg.sum(pc.scalar(6) / pc.field("v"), where=pc.field("v") != 0), [3, 0, None, 2], pa.int64()) == 5
