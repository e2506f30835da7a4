"""Rows to columns and back: every form, what does not fit, and what is not declared."""

import dataclasses
import datetime as dt
import enum
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FlowError, RowTypeError
from penstock.rows.records import (
    Record,
    RowType,
    any_getter,
    arrow_type,
    make_record,
    normalize_schema,
    record_class,
    record_type,
)
from penstock.rows.row_types import infer_row_type, return_annotation, row_type, type_from_annotation
from penstock.rows.values import column_values


@dataclasses.dataclass
class Point:
    x: int
    label: str | None = None


class Pair(NamedTuple):
    x: int
    y: float


class Number(enum.IntEnum):
    """Equal to an integer, and another thing."""

    ONE = 1


class Sale(TypedDict):
    item: str
    price: float


POINTS = type_from_annotation(Point)
XY = record_type(pa.schema({"x": pa.int64(), "y": pa.float64()}))
NAIVE, UTC = dt.datetime(2024, 5, 1, 12, 30, 0, 7), dt.datetime(2024, 5, 1, 12, 30, 0, 7, dt.UTC)


def field(kind: Any) -> RowType:
    return record_type(pa.schema({"v": arrow_type(kind)}))


class TestRecord:
    def test_reads_by_attribute_name_and_index(self):
        row = make_record(("x", "a name"), (1, 2))
        assert (row.x, row["x"], row[0], row["a name"]) == (1, 1, 1, 2)

    def test_unknown_name_lists_the_fields(self):
        with pytest.raises(KeyError, match="no field 'z'; the fields are x, y"):
            make_record(("x", "y"), (1, 2))["z"]

    def test_a_time_is_shown_alike_whatever_object_its_zone_is(self):
        """The user's, in the sequential engine, and Arrow's in the others: messages say the same."""
        moment = dt.datetime(2024, 3, 1, 12, tzinfo=dt.UTC)
        shown = repr(make_record(("t", "n"), (moment, dt.datetime(2024, 3, 1))))
        assert shown == "Row(t=2024-03-01 12:00:00+00:00, n=datetime.datetime(2024, 3, 1, 0, 0))"
        assert repr(make_record(("t", "n"), (moment.replace(tzinfo=ZoneInfo("UTC")), dt.datetime(2024, 3, 1)))) == shown

    def test_asdict_replace_repr(self):
        row = make_record(("x", "y"), (1, "b"))
        assert row.asdict() == dict(row) == {**row} == {"x": 1, "y": "b"}
        assert row.replace(y="c") == (1, "c")
        assert repr(row) == "Row(x=1, y='b')"
        with pytest.raises(KeyError, match="no field 'z'"):
            row.replace(z=3)

    def test_pickles_to_the_same_class(self):
        row = make_record(("x", "y"), (1, 2))
        again = pickle.loads(pickle.dumps(row))
        assert again == row
        assert type(again) is type(row) is record_class(("x", "y"))

    @pytest.mark.parametrize("name", ["count", "index", "class", "_fields", "__slots__", "asdict", "keys"])
    def test_any_field_name_can_be_read(self, name):
        row = make_record((name, "x"), (1, 2))
        assert row[name] == 1
        assert row["x"] == 2

    def test_a_field_hides_a_method_of_tuples(self):
        assert make_record(("count",), (5,)).count == 5


class TestForms:
    """What a function gets is what another returned, whatever the form."""

    @pytest.mark.parametrize(
        ("declared", "row"),
        [
            (Point, Point(1, "a")),
            (Point, Point(1, None)),
            (Pair, Pair(1, 2.5)),
            (Sale, {"item": "tea", "price": 2.0}),
            ({"x": int, "y": float}, make_record(("x", "y"), (1, 2.0))),
            (int, 7),
            (str, "text"),
            (bytes, b"bytes"),
            (bool, True),
            (float, 0.1),
            (dt.date, dt.date(2024, 5, 1)),
            (dt.timedelta, dt.timedelta(microseconds=3)),
            (list[int], [1, 2]),
            (list[list[str]], [["a"], []]),
            (int | None, None),
        ],
        ids=repr,
    )
    def test_roundtrip(self, declared, row):
        again = row_type(declared, "op").roundtrip(row)
        assert again == row
        assert type(again) is type(row)

    @given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))))
    def test_many_rows_keep_their_order_and_values(self, values):
        rows = [make_record(("x", "y"), value) for value in values]
        assert XY.decode(XY.encode(rows)) == rows

    @pytest.mark.parametrize("row", [{"y": 2.0, "x": 1}, (1, 2.0), Pair(1, 2.0)], ids=repr)
    def test_a_declared_record_takes_any_form(self, row):
        assert XY.roundtrip(row) == (1, 2.0)
        assert isinstance(XY.roundtrip(row), Record)
        assert isinstance(XY.normalize(row), Record)

    def test_fields_are_matched_by_name_not_by_place(self):
        turned = make_record(("y", "x"), (2.0, 1))
        assert XY.roundtrip(turned) == (1, 2.0)
        assert XY.normalize(turned).x == 1

    def test_mixed_forms_in_one_batch(self):
        assert XY.decode(XY.encode([{"x": 1, "y": 1.0}, Pair(2, 2.0), (3, 3.0)])) == [
            (1, 1.0),
            (2, 2.0),
            (3, 3.0),
        ]

    def test_normalize_leaves_other_forms_alone(self):
        row = {"item": "tea", "price": 2.0}
        assert type_from_annotation(Sale).normalize(row) is row

    def test_no_rows(self):
        assert XY.decode(XY.encode([])) == []
        assert POINTS.decode(POINTS.encode([])) == []

    def test_rows_without_fields_are_counted(self):
        empty = record_type(pa.schema([]))
        assert len(empty.decode(empty.encode([(), (), ()]))) == 3

    def test_a_missing_field_is_refused_where_it_was_declared(self):
        with pytest.raises(RowTypeError, match=r"no field 'y', the schema has x, y; return it, as None"):
            XY.roundtrip({"x": 1})
        with pytest.raises(RowTypeError, match=r"no field 'y'"):
            XY.encode([{"x": 1, "y": 2.0}, {"x": 1}])

    def test_a_field_that_may_be_left_out_is_null(self):
        assert XY.lenient().roundtrip({"x": 1}) == (1, None)
        assert pickle.loads(pickle.dumps(XY.lenient())).roundtrip({"x": 1}) == (1, None)
        assert XY.lenient() == XY

    def test_a_typed_dict_says_what_may_be_left_out(self):
        class Visit(TypedDict):
            page: str
            seconds: NotRequired[float]

        visits = type_from_annotation(Visit)
        assert visits is not None
        assert visits.roundtrip({"page": "a"}) == {"page": "a", "seconds": None}
        with pytest.raises(RowTypeError, match="no field 'page'"):
            visits.roundtrip({"seconds": 1.0})

    def test_integers_fit_float_fields(self):
        assert XY.roundtrip((1, 2)) == (1, 2.0)
        assert isinstance(XY.roundtrip((1, 2)).y, float)


class TestNullsAndTimes:
    @pytest.mark.parametrize("kind", [int, float, str, bool, bytes, dt.datetime, dt.date, dt.timedelta, list[int]])
    def test_null_in_every_type(self, kind):
        rows = field(kind).decode(field(kind).encode([(None,)]))
        assert rows == [(None,)]

    def test_nulls_beside_values(self):
        assert [row.v for row in field(int).decode(field(int).encode([(1,), (None,), (2**62,)]))] == [
            1,
            None,
            2**62,
        ]

    def test_moments_arrive_as_they_are_only_if_columns_give_them_back(self):
        row = field(dt.datetime)
        named = UTC.replace(tzinfo=dt.timezone(dt.timedelta(0), "Zulu"))
        for other, same in ((UTC, True), (NAIVE, False), (UTC.replace(fold=1), False), (named, False), (None, False)):
            rows = [row.normalize((UTC,)), row.normalize((other,))]
            assert row.all_arrive_as_is(rows) == same
            assert not same or row.decode(row.encode(rows)) == rows

    @given(
        st.lists(st.integers() | st.integers(-(2**31) - 2, 2**31 + 2) | st.sampled_from([True, Number(1), None, 1.0]))
    )
    def test_integers_arrive_as_they_are_only_if_columns_give_them_back(self, values):
        row = field(int)
        rows = [row.normalize((value,)) for value in values]
        kept = [type(value) is int and -(2**63) <= value < 2**63 for value in values]
        assert row.all_arrive_as_is(rows) == all(kept)

    @given(
        st.lists(
            st.tuples(st.integers(-(2**31) - 1, 2**31) | st.sampled_from([True, 2**63, None, 1.0]), st.integers(0, 9))
            | st.tuples(st.integers(), st.floats() | st.sampled_from([0, True, None, np.float64(1)]))
            | st.tuples(st.integers(-5, 5), st.floats())
        )
    )
    def test_rows_of_numbers_arrive_as_they_are_only_if_columns_give_them_back(self, values):
        rows = XY.records(values)
        kept = [type(x) is int and -(2**63) <= x < 2**63 and type(y) is float for x, y in values]
        assert XY.all_arrive_as_is(rows) == all(kept)

    def test_a_column_of_moments_gives_the_values_of_arrow(self):
        microseconds = [-62135596800000000, -1, 0, 1, 1714566600000007, 253402300799999999]
        for zone in (None, "UTC"):
            column = pa.array(microseconds, pa.int64()).cast(pa.timestamp("us", zone))
            for each in (
                column,
                column.slice(2, 3),
                pa.chunked_array([column, column]),
                pa.chunked_array([column[:0]]),
            ):
                values = column_values(each)
                assert values == each.to_pylist()
                assert {value.tzinfo for value in values} <= {dt.UTC if zone else None}

    def test_declared_datetime_is_utc(self):
        assert field(dt.datetime).roundtrip((UTC,)).v == UTC
        assert field(dt.datetime).roundtrip((NAIVE,)).v == UTC
        assert field(dt.datetime).roundtrip((NAIVE,)).v.tzinfo is dt.UTC

    def test_other_time_zones_become_utc(self):
        vienna = UTC.astimezone(dt.timezone(dt.timedelta(hours=2)))
        assert field(dt.datetime).roundtrip((vienna,)).v == UTC
        assert infer_row_type([{"v": vienna}]).schema.field("v").type == pa.timestamp("us", "UTC")

    def test_a_schema_without_zone_stays_without(self):
        naive = record_type(pa.schema({"v": pa.timestamp("us")}))
        assert naive.roundtrip((NAIVE,)).v == NAIVE

    @pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC")])
    def test_times_with_nulls_beside_them(self, kind):
        want = NAIVE if kind.tz is None else UTC
        times = record_type(pa.schema({"v": kind}))
        assert times.decode(times.encode([(want,), (None,)])) == [(want,), (None,)]

    def test_tables_of_several_chunks(self):
        table = pa.Table.from_batches([XY.encode([(1, 1.0)]), XY.encode([(2, None)])])
        assert XY.decode(table) == [(1, 1.0), (2, None)]
        times = record_type(pa.schema({"v": pa.timestamp("us", "UTC")}))
        assert times.decode(pa.Table.from_batches([times.encode([(UTC,)])] * 2)) == [(UTC,), (UTC,)]


class TestMisfits:
    """A value that does not fit is an error that names it, never a silent change."""

    @pytest.mark.parametrize(
        ("kind", "value", "shown"),
        [
            (int, "7", "field 'v' has the value '7' (str), which does not fit the declared type int64"),
            (int, 1.5, "field 'v' has the value 1.5 (float), which does not fit the declared type int64"),
            (int, 2**64, "int64"),
            (list[int], [1.5], "field 'v' has the value [1.5] (list)"),
            (float, "x", "field 'v' has the value 'x' (str), which does not fit the declared type double"),
            (str, 7, "field 'v' has the value 7 (int), which does not fit the declared type string"),
            (bool, "no", "declared type bool"),
            (dt.datetime, "today", "declared type timestamp[us, tz=UTC]"),
            (pa.int8(), 200, "field 'v' has the value 200 (int), which does not fit the declared type int8"),
            (pa.uint64(), -1, "field 'v' has the value -1"),
        ],
    )
    def test_names_field_value_and_type(self, kind, value, shown):
        good = [(None,), (None,)]
        with pytest.raises(RowTypeError) as caught:
            field(kind).encode([*good, (value,)])
        assert shown in str(caught.value)
        assert (caught.value.index, caught.value.field) == (2, "v")

    @given(st.lists(st.one_of(st.integers(-3, 3), st.none(), st.booleans(), st.just(2.0)), max_size=6))
    def test_what_fits_does_not_depend_on_the_rows_beside_it(self, values):
        """A batch is refused exactly where one of its values is, or results would depend on the cut."""

        def fits(rows: list[Any]) -> bool:
            try:
                field(int).encode([(value,) for value in rows])
            except RowTypeError:
                return False
            return True

        assert fits(values) == all(fits([value]) for value in values)

    def test_large_unsigned_numbers_fit(self):
        assert field(pa.uint64()).roundtrip((2**64 - 1,)).v == 2**64 - 1

    def test_unknown_field(self):
        with pytest.raises(RowTypeError, match=r"the row has a field 'z', the schema has x, y$"):
            XY.encode([{"x": 1, "y": 2.0}, {"x": 1, "z": 3}])

    def test_missing_field_that_may_not_be_null(self):
        strict = RowType(pa.schema([pa.field("x", pa.int64(), nullable=False)]), "record")
        with pytest.raises(RowTypeError, match=r"no field 'x'"):
            strict.encode([{}])

    @pytest.mark.parametrize("row", [7, "text", (1,), (1, 2, 3), Point(1), None], ids=repr)
    def test_rows_of_another_shape(self, row):
        with pytest.raises(RowTypeError, match=r"field '\(row\)'.*row with the fields x, y"):
            XY.encode([row])

    def test_long_values_are_shortened(self):
        with pytest.raises(RowTypeError) as caught:
            field(int).encode([("x" * 1000,)])
        assert len(str(caught.value)) < 300


class TestDeclaring:
    def test_unknown_type_in_a_dict_names_operator_field_and_fix(self):
        with pytest.raises(FlowError, match=r"operator 'op': the field 'b' is declared as.*use int, float, str"):
            row_type({"a": int, "b": object}, "op")

    @pytest.mark.parametrize("declared", ["int", 3, [("a", int)]], ids=repr)
    def test_what_is_no_schema(self, declared):
        with pytest.raises(FlowError, match=r"operator 'op': schema=.*is not a schema; give a dataclass"):
            row_type(declared, "op")

    def test_a_list_for_a_type_is_refused_too(self):
        with pytest.raises(FlowError, match="the field 'a'"):
            row_type({"a": [int]}, "op")

    def test_none_and_row_types_pass(self):
        assert row_type(None, "op") is None
        assert row_type(XY, "op") is XY

    @pytest.mark.parametrize("annotation", [object, Any, dict, dict[str, int], int | str, None, tuple[int, int]])
    def test_undeclared(self, annotation):
        assert type_from_annotation(annotation) is None

    def test_a_class_with_a_field_of_no_type_is_undeclared(self):
        class Loose(NamedTuple):
            x: int
            rest: object

        assert type_from_annotation(Loose) is None

    def test_optional_and_annotated(self):
        assert arrow_type(int | None) == pa.int64()
        assert arrow_type(Annotated[float, "kg"]) == pa.float64()
        assert arrow_type(pa.decimal128(10, 2)) == pa.decimal128(10, 2)

    def test_schemas_lose_dictionaries_views_and_fine_clocks(self):
        schema = pa.schema(
            {
                "d": pa.dictionary(pa.int32(), pa.large_string()),
                "t": pa.timestamp("ns", "Europe/Vienna"),
                "n": pa.timestamp("s"),
                "b": pa.large_binary(),
                "v": pa.string_view(),
            }
        )
        kinds = [pa.string(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.binary(), pa.string()]
        assert normalize_schema(schema).types == kinds


class TestInference:
    def test_dicts_become_records(self):
        found = infer_row_type([{"x": 1, "y": 1.0}, {"x": 2, "y": None}])
        assert (found.form, found.schema) == ("record", XY.schema)

    def test_a_field_that_some_rows_lack_is_null_there(self):
        rows = [{"x": 1}, {"x": 2, "y": 0.5}]
        found = infer_row_type(rows)
        assert found.decode(found.encode(rows)) == [(1, None), (2, 0.5)]

    def test_own_classes_and_bare_values(self):
        assert infer_row_type([Point(1)]) == POINTS
        assert infer_row_type([Pair(1, 2.0)]).form == "tuple"
        assert infer_row_type([1, 2]).form == "scalar"
        assert infer_row_type([make_record(("x", "y"), (1, 2.0))]).schema == XY.schema

    @pytest.mark.parametrize(
        "rows",
        [
            [],
            [1, "a"],
            [object()],
            [{"a": 1}, {"a": "b"}],
            [{"a": object()}],
            [{"a": 2**70}],
            [2**70],
            [{"a": 1}, 7],
        ],
    )
    def test_what_has_no_common_type_is_undeclared(self, rows):
        assert infer_row_type(rows) is None


class TestGetters:
    def test_each_form(self):
        assert XY.getter(["y", "x"])(make_record(("x", "y"), (1, 2.0))) == (2.0, 1)
        assert POINTS.getter(["x"])(Point(3)) == 3
        assert type_from_annotation(Sale).getter(["item"])({"item": "tea", "price": 1.0}) == "tea"
        assert type_from_annotation(int).getter(["value"])(5) == 5

    def test_a_dot_in_a_name_is_no_path(self):
        dotted = record_type(pa.schema({"a.b": pa.int64()}))
        assert dotted.getter(["a.b"])(dotted.roundtrip((4,))) == 4

    def test_any_form(self):
        read = any_getter(["x"])
        assert [read(row) for row in ({"x": 1}, Point(2), Pair(3, 0.0), make_record(("x",), (4,)), 5)] == [
            1,
            2,
            3,
            4,
            5,
        ]
        assert any_getter(["x", "y"])(Pair(1, 2.0)) == (1, 2.0)


class TestAnnotations:
    def test_functions_methods_partials_and_objects(self):
        def plain(row: Any) -> Point: ...

        class Callable:
            rate: int = 0

            def __call__(self, row: Any) -> Pair: ...

            def method(self, row: Any) -> Iterator[Sale]: ...

        assert return_annotation(plain) is Point
        assert return_annotation(partial(plain, 1)) is Point
        assert return_annotation(Callable()) is Pair
        assert return_annotation(Callable().method) == Iterator[Sale]

    def test_without_annotation_or_with_one_that_cannot_be_resolved(self):
        def lost(row: Any) -> "NoSuchClass": ...  # noqa: F821

        assert return_annotation(lambda row: row) is None
        assert return_annotation(lost) is None
        assert return_annotation(len) is None
