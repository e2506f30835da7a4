"""Composing a flow: names, types, ports, stages and composites. Nothing runs here."""

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import read, write
from penstock.errors import FlowError
from penstock.flow import Flow, Stream
from penstock.operators import aggregates as agg
from penstock.operators.process import Process
from penstock.operators.windows import Count, Session, Sliding
from penstock.plan.plan import make_plan

from ..running import out, records

ROWS = [{"t": 1, "k": "a", "v": 1.5}]


class Out(NamedTuple):
    n: int


class Loud(TypedDict):
    text: str


@dataclasses.dataclass
class Shape:
    sides: int


def source() -> Stream:
    return records(ROWS)


def schema(stream: Stream) -> dict[str, pa.DataType] | None:
    return None if stream.type is None else dict(zip(stream.type.names, stream.type.schema.types, strict=True))


class TestNames:
    def test_come_from_functions_or_kinds(self):
        def clean(*arguments):
            return arguments[-1]

        stream = source()
        names = [
            stream.map(clean).node.name,
            stream.map(clean).node.name,
            stream.map(lambda r: r).node.name,
            stream.filter(lambda r: r).node.name,
            stream.filter(pc.field("v") > 1).node.name,
            stream.key_by("k").scan(clean).node.name,
            stream.window(10).count().node.name,
        ]
        assert names == ["clean", "clean_2", "map", "filter", "filter_2", "clean_3", "window"]

    def test_can_be_given(self):
        assert source().map(str, name="my map").node.name == "my map"

    def test_sinks_have_theirs(self):
        flow = source().sink("out", write.parquet("/nowhere"))
        assert flow.nodes["out"].operator.writer == write.parquet("/nowhere")

    def test_nodes_cannot_be_changed_from_outside(self):
        with pytest.raises(TypeError):
            source().flow.nodes["x"] = 1


class TestTypes:
    def test_of_sources(self):
        assert schema(source()) == {"t": pa.int64(), "k": pa.string(), "v": pa.float64()}
        assert Flow("f").source("s", iter([1])).type is None
        assert schema(Flow("f").source("s", iter([1]), schema=Out)) == {"n": pa.int64()}

    def test_of_functions(self):
        def named(row: Any) -> Out: ...

        def several(row: Any) -> Iterator[Loud]: ...

        def stateful(state: int, row: Any) -> tuple[int, Shape]: ...

        def emitting(state: int, row: Any) -> tuple[int, list[Out]]: ...

        stream, keyed = source(), source().key_by("k")
        assert stream.map(named).type.cls is Out
        assert stream.map(partial(named)).type.cls is Out
        assert stream.flat_map(several).type.form == "dict"
        assert keyed.scan(stateful).type.cls is Shape
        assert keyed.flat_scan(emitting).type.cls is Out
        assert schema(stream.map(lambda r: r.t, schema=int)) == {"value": pa.int64()}
        assert stream.map(lambda r: r).type is None

    def test_a_declared_schema_goes_before_the_annotation(self):
        def named(row: Any) -> Out: ...

        assert schema(source().map(named, schema={"m": str})) == {"m": pa.string()}

    def test_that_pass_through(self):
        stream = source()
        keep = stream.type
        left, right = stream.split(lambda r: r.v > 1)
        passed = [
            stream.filter(bool),
            stream.filter(pc.field("v") > 1),
            left,
            right,
            stream.sort(),
            left.union(right),
        ]
        passed += [
            stream.reduce(max),
            stream.window(5).count().late,
            stream.map_batches(lambda b: b),
        ]
        assert all(each.type == keep for each in passed)

    def test_of_projections(self):
        chosen = source().select("k", double=pc.field("v") * 2, old=pc.field("t") > 5)
        assert schema(chosen) == {"k": pa.string(), "double": pa.float64(), "old": pa.bool_()}

    def test_of_aggregates(self):
        results = {
            "n": agg.count(),
            "s": agg.sum("v"),
            "i": agg.sum("t"),
            "m": agg.mean("t"),
            "c": agg.collect("k"),
            "d": agg.distinct("k"),
            "l": agg.last("t", skip_nulls=True),
        }
        kinds = {
            "n": pa.int64(),
            "s": pa.float64(),
            "i": pa.int64(),
            "m": pa.float64(),
            "c": pa.list_(pa.string()),
            "d": pa.list_(pa.string()),
            "l": pa.int64(),
        }
        stream = source()
        assert schema(stream.aggregate(**results)) == kinds
        assert schema(stream.key_by("k").aggregate(**results)) == {"k": pa.string(), **kinds}
        bounds = {"window_start": pa.int64(), "window_end": pa.int64()}
        assert schema(stream.key_by("k").window(10).aggregate(**results)) == {
            "k": pa.string(),
            **bounds,
            **kinds,
        }
        assert schema(stream.window(Count(3)).count()) == {"window": pa.int64(), "count": pa.int64()}

    def test_a_key_function_makes_the_result_undeclared(self):
        assert source().key_by(lambda r: r.k).window(10).count().type is None

    def test_windows_over_timestamps_have_timestamps(self):
        flow = Flow("f").source("s", read.items([], schema={"at": pa.timestamp("ms", "UTC")}), time="at")
        assert schema(flow.window("1 h").count())["window_end"] == pa.timestamp("us", "UTC")

    def test_a_union_of_different_types_is_undeclared(self):
        stream = source()
        assert stream.union(stream.select("k")).type is None
        assert stream.union(stream.select("k")).node.time == "integer"

    def test_of_joins(self):
        keyed = source().key_by("k")
        joined = keyed.join(keyed, 10)
        kinds = {
            "t": pa.int64(),
            "k": pa.string(),
            "v": pa.float64(),
            "t_right": pa.int64(),
            "v_right": pa.float64(),
        }
        assert schema(joined) == kinds
        assert schema(joined.late) == schema(source())

    def test_of_dead_letters(self):
        letters = source().map(str, on_error="dead_letter").errors
        assert letters.type.names == ["operator", "error", "where", "row", "attempts"]


class TestComposing:
    def test_composites_are_plain_functions(self):
        def doubled(stream: Stream) -> Stream:
            return stream.map(lambda r: r.v * 2)

        assert out(source() >> doubled) == [3.0]

    def test_keyed_and_windowed_streams_take_composites_too(self):
        result = source().key_by("k") >> (lambda keyed: keyed.window(10)) >> (lambda window: window.count())
        assert out(result) == [("a", 0, 10, 1)]

    def test_a_number_or_duration_tumbles(self):
        assert out(source().window(10).count()) == [(0, 10, 1)]

    def test_a_process_may_be_a_class_or_an_object(self):
        class Echo(Process):
            def on_row(self, row, context):
                context.emit(row.v)

        assert out(source().process(Echo)) == out(source().key_by("k").process(Echo())) == [1.5]

    def test_operators_are_partitioned_with_a_key_and_stateful_without(self):
        stream = source()
        kinds = [
            stream.key_by("k").reduce(max),
            stream.reduce(max),
            stream.window(5).count(),
            stream.map(str),
            stream,
        ]
        assert [each.node.operator.kind for each in kinds] == [
            "partitioned",
            "stateful",
            "stateful",
            "stateless",
            "source",
        ]

    def test_ports(self):
        stream = source()
        window = stream.window(Session(5)).count(on_error="dead_letter")
        assert (window.port.index, window.late.port.index, window.errors.port.index) == (0, 1, 2)
        assert [each.port.index for each in stream.split(bool, bool)] == [0, 1, 2]

    def test_a_forward_stream_is_defined_later(self):
        flow = Flow("f")
        later = flow.forward("later")
        end = later.map(lambda n: n + 1)
        later.connect(flow.source("s", [1, 2]))
        assert out(end) == [2, 3]

    def test_initial_state_is_not_shared_between_keys(self):
        class Box:
            def __init__(self) -> None:
                self.seen: list[str] = []

        def remember(box: Box, row: Any) -> tuple[Box, int]:
            box.seen.append(row)
            return box, len(box.seen)

        def count(seen: list, row: Any) -> tuple[list, int]:
            seen.append(row)
            return seen, len(seen)

        words = Flow("f").source("s", ["a", "b", "a"]).key_by(lambda w: w)
        assert out(words.scan(remember, Box())) == [1, 1, 2]
        words = Flow("f").source("s", ["a", "b", "a"]).key_by(lambda w: w)
        assert out(words.scan(count, [])) == [1, 1, 2]
        words = Flow("f").source("s", ["a", "b", "a"]).key_by(lambda w: w)
        assert out(words.scan(remember, Box)) == [1, 1, 2]


class TestReadersAndWriters:
    def test_iterables_and_functions_are_wrapped(self):
        assert read.as_reader([1]) == read.items([1])
        assert isinstance(read.as_reader(range(3)), read.Items)
        function = print
        assert write.as_writer(function) == write.callback(function)
        assert write.as_writer(None) == write.memory()

    @pytest.mark.parametrize("value", [7, "cdr/", b"x", None], ids=repr)
    def test_what_is_no_source(self, value):
        with pytest.raises(FlowError, match=r"operator 's': .* is no source; use ps\.read\.parquet"):
            Flow("f").source("s", value)

    def test_what_is_no_sink(self):
        with pytest.raises(FlowError, match=r"operator 'out': 7 is no sink; use ps\.write\.parquet"):
            source().sink("out", 7)

    def test_rate_counts(self):
        table = read.rate(4).function(2, 5)
        assert table.column("value").to_pylist() == [2, 3, 4]
        assert table.column("timestamp").cast(pa.int64()).to_pylist() == [500_000, 750_000, 1_000_000]

    def test_describe_only(self):
        assert read.csv("x", header=False).options == {"header": False, "delimiter": ","}
        assert read.json("x", follow=True).follow
        assert (write.json("x").format, write.csv("x", header=False).header, write.console(5).limit) == (
            "json",
            False,
            5,
        )

    def test_sockets_give_lines(self):
        assert schema(Flow("f").source("s", read.socket("localhost", 9))) == {"value": pa.string()}


def test_a_flow_can_be_planned_twice():
    stream = source()
    stream.window(Sliding(10, 5)).count(name="w").sink("out")
    assert make_plan(stream.flow).nodes.keys() == make_plan(stream.flow).nodes.keys() == {"in", "w", "out"}


class TestFieldsNamedAsOptions:
    """A computed field may be called as an option of its operator is."""

    def test_in_select(self):
        stream = source().select("k", name=pc.field("t") + 1, on_error=pc.field("t"))
        assert list(schema(stream)) == ["k", "name", "on_error"]
        assert stream.node.name == "select"

    @pytest.mark.parametrize("windowed", [False, True])
    def test_in_aggregate(self, windowed):
        keyed = source().key_by("k")
        stream = (keyed.window(5) if windowed else keyed).aggregate(name=agg.last("k"), n=agg.count())
        assert list(schema(stream))[-2:] == ["name", "n"]

    def test_the_option_is_still_there(self):
        assert source().select("k", name="mine").node.name == "mine"
        assert source().aggregate(n=agg.count(), name="mine", on_error="skip").node.operator.on_error == "skip"


class TestKindsOfTime:
    KINDS: ClassVar = {
        pa.timestamp("us"): ("naive timestamp", pa.timestamp("us")),
        pa.timestamp("ms"): ("naive timestamp", pa.timestamp("us")),
        pa.date32(): ("timestamp", pa.timestamp("us", "UTC")),
        pa.timestamp("s", "Europe/Berlin"): ("timestamp", pa.timestamp("us", "UTC")),
        pa.int32(): ("integer", pa.int64()),
    }

    @pytest.mark.parametrize("kind", KINDS, ids=str)
    def test_of_windows(self, kind):
        stream = Flow("f").source("in", read.items([], schema={"at": kind}), time="at")
        assert stream.time == self.KINDS[kind][0]
        counts = stream.window(5 if stream.time == "integer" else "5 min").count()
        assert schema(counts)["window_start"] == self.KINDS[kind][1]

    def test_rows_that_a_source_could_not_take_have_none(self):
        stream = Flow("f").source("in", read.items([], schema={"at": int}), time="at", on_error="dead_letter")
        assert (stream.time, stream.errors.time, stream.errors.map(str).time) == ("integer", None, None)
