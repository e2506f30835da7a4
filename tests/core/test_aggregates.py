"""What single aggregates make of nulls, NaN, decimals and large numbers, in whatever order they come."""

import math
from decimal import Decimal
from itertools import permutations

import pyarrow as pa
import pytest

from penstock.operators import aggregates as agg
from penstock.rows import record_type

FLOAT = pa.float64()


def folded(aggregate: agg.Agg, values: list, kind: pa.DataType = FLOAT) -> object:
    """Fold values of a declared type, one by one; return the result."""
    row = record_type(pa.schema([("v", kind)]))
    bundle = agg.aggregation({"it": aggregate}, "a", row)
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
        bundle = agg.aggregation({"s": agg.sum("v"), "m": agg.mean("v")}, "a", row)
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
