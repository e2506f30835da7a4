"""Everything that is refused before it runs, each error naming the operator and the fix."""

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import read
from penstock.errors import FlowError
from penstock.flow import Flow, KeyedStream, Stream
from penstock.flow.checks import OTHER_WORDS
from penstock.operators import aggregates as agg
from penstock.operators.expressions import expr
from penstock.operators.process import Process
from penstock.operators.windows import Count, Session, Sliding, Tumbling
from penstock.plan.plan import make_plan

ROWS = [{"ts": 1, "name": "a", "price": 1.5, "tags": ["x"], "ok": True}]
CLOCK = {"ts": pa.timestamp("us", "UTC"), "name": str}


def source(flow: Flow | None = None, name: str = "calls", **options) -> Stream:
    """A source whose event time is an integer."""
    return (flow or Flow("f")).source(name, read.items(ROWS), **{"time": "ts", **options})


def clock(flow: Flow | None = None, **options) -> Stream:
    """A source whose event time is a timestamp."""
    return (flow or Flow("f")).source("clock", read.items([], schema=CLOCK), **{"time": "ts", **options})


def untimed() -> Stream:
    return source(time=None)


def undeclared() -> Stream:
    return source().map(lambda row: row, name="free")


def same(row):
    return row


def joined(**options) -> Stream:
    left = source()
    right = source(left.flow, "other")
    return left.key_by("name").join(right.key_by("name"), 10, name="pairs", **options)


def differing_keys():
    left = source()
    return left.key_by("name").join(source(left.flow, "other").key_by("price"), 10, name="pairs")


def numbers_of_keys():
    left = source()
    return left.key_by("name").join(source(left.flow, "other").key_by("name", "ok"), 10, name="pairs")


def zones_joined():
    left = clock()
    schema = {"ts": pa.timestamp("us"), "name": str}
    return join_of(left, left.flow.source("wall", read.items([], schema=schema), time="ts"), "1 min")


def join_of(left: Stream, right: Stream, window):
    return left.key_by("name").join(right.key_by("name"), window, name="pairs")


def one_timed_side():
    left = source()
    return join_of(left, source(left.flow, "other", time=None), 10)


def two_clocks():
    left = source()
    return join_of(left, clock(left.flow), 10)


def ambiguous_join():
    rows = [{"t": 1, "k": 1, "a": 1, "a_right": 1}]
    stream = Flow("f").source("s", rows, time="t")
    return stream.key_by("k").join(stream.key_by("k"), 10, name="pairs")


def twice_connected():
    flow = Flow("f")
    later = flow.forward("later")
    later.connect(source(flow))
    later.connect(source(flow, "other"))


REFUSED = {
    # Fields
    "key_by": (
        lambda: source().key_by("nme"),
        "operator 'calls'",
        "key_by names the field 'nme'",
        "did you mean 'name'?",
    ),
    "key_by behind an operator": (
        lambda: source().filter(same, name="keep").key_by("zzz"),
        "operator 'keep'",
        "'zzz'",
    ),
    "key_by of several": (lambda: source().key_by("name", "prices"), "did you mean 'price'?"),
    "key_by nothing": (
        lambda: source().key_by(),
        "key_by after operator 'calls'",
        "needs field names or one function",
    ),
    "key_by a number": (lambda: source().key_by(3), "needs field names or one function, got (3,)"),
    "key_by twice the same": (
        lambda: source().key_by("name", "name"),
        "operator 'calls'",
        "two fields the name 'name'",
    ),
    "key_by a list": (
        lambda: source().key_by("tags"),
        "operator 'calls'",
        "'tags' of type list",
        "use numbers",
    ),
    "order_by": (
        lambda: source(order_by="tss"),
        "operator 'calls'",
        "order_by names the field 'tss'",
        "mean 'ts'?",
    ),
    "order_by of several": (lambda: source(order_by=["ts", "nix"]), "order_by names the field 'nix'"),
    "order_by text": (
        lambda: source(order_by="name"),
        "source 'calls'",
        "of type string",
        "convert it in the source",
    ),
    "order_by of more than fits": (
        lambda: Flow("f").source("s", read.items([], schema=pa.schema([("n", pa.uint64())])), order_by="n"),
        "source 's'",
        "of type uint64",
    ),
    "idle_after": (lambda: source(idle_after=0), "operator 'calls'", "idle_after=0", "a positive number of seconds"),
    "order_by of undeclared rows": (
        lambda: Flow("f").source("s", iter(ROWS), order_by="ts"),
        "source 's'",
        "order_by='ts'",
        "give schema=",
    ),
    "time": (
        lambda: source(time="tss"),
        "operator 'calls'",
        "time names the field 'tss'",
        "did you mean 'ts'?",
    ),
    "time of undeclared rows": (
        lambda: Flow("f").source("s", iter(ROWS), time="ts"),
        "source 's'",
        "time='ts'",
        "give schema=",
    ),
    "time of text": (lambda: source(time="name"), "source 'calls'", "of type string", "convert it first"),
    "time of floats": (lambda: source(time="price"), "source 'calls'", "of type double", "convert it first"),
    "aggregate of an unknown field": (
        lambda: source().key_by("name").aggregate(total=agg.sum("prise"), name="totals"),
        "operator 'totals'",
        "total=sum(...)",
        "did you mean 'price'?",
    ),
    "window aggregate of an unknown field": (
        lambda: source().window(5).max("prise", name="tops"),
        "operator 'tops'",
        "did you mean 'price'?",
    ),
    "select": (
        lambda: source().select("nme", name="cut"),
        "operator 'cut'",
        "select names the field 'nme'",
        "mean 'name'",
    ),
    "no fields at all": (
        lambda: Flow("f").source("s", read.items([], schema=pa.schema([]))).key_by("a"),
        "but the rows have no fields",
    ),
    # Two of one name
    "two operators of one name": (
        lambda: source().map(same, name="m").map(same, name="m"),
        "two operators named 'm'",
        "another name=",
    ),
    "two sinks of one name": (
        lambda: (s := source()) and s.sink("out") and s.sink("out"),
        "two operators named 'out'",
    ),
    "two sources of one name": (lambda: source(source().flow), "two operators named 'calls'"),
    "no name": (lambda: source().map(same, name=""), "an operator's name must be text"),
    "a name that is no text": (lambda: source().sink(7), "an operator's name must be text, not 7"),
    "drop": (lambda: source().drop("nme", name="cut"), "operator 'cut'", "drop names the field 'nme'"),
    "rename": (lambda: source().rename({"nme": "x"}), "operator 'rename'", "rename names the field 'nme'"),
    "rename to a name that is there": (
        lambda: source().rename({"name": "price"}),
        "operator 'rename'",
        "rename() gives two fields the name 'price'",
    ),
    "distinct": (lambda: source().distinct("nme"), "operator 'distinct'", "distinct names the field 'nme'"),
    "distinct within a time without one": (
        lambda: untimed().distinct("name", within=5),
        "operator 'distinct'",
        "within= needs event time",
    ),
    "select one name twice": (
        lambda: source().select("price", price=pc.field("ts") + 1),
        "operator 'select'",
        "select() gives two fields the name 'price'",
        "rename one",
    ),
    "an aggregate named as the key": (
        lambda: source().key_by("ok").aggregate(ok=agg.count(), name="totals"),
        "operator 'totals'",
        "two fields the name 'ok'",
    ),
    "an aggregate named as the window": (
        lambda: source().window(5).aggregate(window_end=agg.count()),
        "operator 'window'",
        "window_end=...) has the name of a field that tells the window",
    ),
    "a join with two fields of one name": (
        ambiguous_join,
        "operator 'pairs'",
        "two fields the name 'a_right'",
    ),
    # Flow names
    "an empty flow name": (lambda: Flow(""), "a flow's name must be"),
    "a flow name with a slash": (lambda: Flow("a/b"), "a flow's name must be", "not 'a/b'"),
    "a flow name that is no text": (lambda: Flow(None), "a flow's name must be"),
    # Options
    "on_error": (
        lambda: source().map(same, name="m", on_error="ignore"),
        "operator 'm'",
        "on_error='ignore'",
        '"fail", "skip" or "dead_letter"',
    ),
    "on_error with state": (
        lambda: source().scan(lambda state, row: (state, row), name="s", on_error=None),
        "operator 's'",
        '"fail", "skip"',
    ),
    "on_error of a window": (
        lambda: source().window(5).count(name="w", on_error="no"),
        "operator 'w'",
        "on_error='no'",
    ),
    "on_error of batches": (
        lambda: source().map_batches(same, name="m", on_error="skip"),
        "operator 'm'",
        'on_error="fail" only',
        "use map()",
    ),
    "on_late": (lambda: source(on_late="drop"), "source 'calls'", "on_late='drop'", 'use "fail" or "divert"'),
    "how": (
        lambda: joined(how="cross"),
        "operator 'pairs'",
        "how='cross'",
        '"inner", "left", "right", "outer", "semi" or "anti"',
    ),
    "schema": (
        lambda: source().map(same, name="m", schema="int"),
        "operator 'm'",
        "is not a schema",
        "give a dataclass",
    ),
    # What is no function
    "map": (lambda: source().map(3, name="m"), "operator 'm'", "takes a function, not 3"),
    "filter": (
        lambda: source().filter("price > 1"),
        "operator",
        "an expression (ps.expr, pyarrow.compute), not 'price > 1'",
    ),
    "split": (lambda: source().split("x", name="s"), "operator 's'", "takes functions of the row, not 'x'"),
    "scan": (lambda: source().scan(3, name="s"), "operator 's'", "takes a function, not 3"),
    "process": (
        lambda: source().process(3, name="p"),
        "operator 'p'",
        "derive its class from penstock.Process",
    ),
    "a stage": (lambda: source() >> 3, "operator 'calls'", "cannot apply 3 with >>", "give a stage"),
    "an aggregate": (
        lambda: source().aggregate(n=3),
        "operator 'aggregate'",
        "n=3 is no aggregate",
        "use ps.agg.count()",
    ),
    "no aggregate": (
        lambda: source().aggregate(),
        "operator 'aggregate'",
        "needs at least one",
        'ps.agg.sum("value")',
    ),
    # Expressions and columns
    "filter of an unknown column": (
        lambda: source().filter(pc.field("prise") > 1, name="keep"),
        "operator 'keep'",
        "does not fit rows with the fields ts, name, price",
    ),
    "filter that is no condition": (
        lambda: source().filter(pc.field("price"), name="keep"),
        "operator 'keep'",
        "is of type double",
        "true or false",
    ),
    "an expression of other types": (
        lambda: source().select(x=pc.field("name") * 2, name="cut"),
        "operator 'cut'",
        "does not fit rows with the fields",
    ),
    "select by a value": (lambda: source().select(x=3, name="cut"), "operator 'cut'", "x=3", "use map()"),
    "select of nothing": (
        lambda: source().select(name="cut"),
        "operator 'cut'",
        "select() must leave at least one field",
    ),
    "an expression on undeclared rows": (
        lambda: undeclared().filter(pc.field("a") > 1, name="keep"),
        "operator 'keep'",
        "a filter expression needs to know the rows' type",
        "annotate",
    ),
    "select on undeclared rows": (
        lambda: undeclared().select("a", name="s"),
        "operator 's'",
        "needs to know",
        "schema=",
    ),
    "batches of undeclared rows": (
        lambda: undeclared().map_batches(same, name="b"),
        "operator 'b'",
        "needs to know",
    ),
    "a plain join of undeclared rows": (
        lambda: (s := undeclared()) and s.key_by("name").join(s.key_by("name"), 10, name="pairs"),
        "operator 'pairs'",
        "a join without combine= needs to know",
    ),
    # Event time
    "a window without time": (
        lambda: untimed().window(10).count(name="w"),
        "operator 'w'",
        "the rows of 'calls' have none",
        "give time= to every source",
    ),
    "a session without time": (
        lambda: untimed().window(Session(3)).count(name="w"),
        "operator 'w'",
        "give time=",
    ),
    "sort without time": (
        lambda: untimed().sort(name="s"),
        "operator 's'",
        "sort needs event time",
        "give time=",
    ),
    "a join without time": (lambda: join_of((s := untimed()), s, 10), "operator 'pairs'", "give time="),
    "a join with time on one side": (one_timed_side, "operator 'pairs'", "the rows of 'other' have none"),
    "a join of two clocks": (
        two_clocks,
        "operator 'pairs'",
        "'calls' has integer and 'clock' has timestamp times",
    ),
    "a union of two clocks": (
        lambda: (s := source()) and s.union(clock(s.flow), name="u").window(10).count(name="w"),
        "operator 'w'",
        "the rows of 'u' have none",
        "with the same kind of field",
    ),
    "merge by another field": (
        lambda: (s := source()) and s.merge(source(s.flow, "other"), by="price", name="m"),
        "operator 'm'",
        "merge(by='price') needs time='price' on source 'calls'",
        "time='ts'",
    ),
    "merge without time on one side": (
        lambda: (s := source()) and s.merge(source(s.flow, "other", time=None), by="ts", name="m"),
        "operator 'm'",
        "on source 'other', which has time=None",
    ),
    # Units
    "a duration over integer times": (
        lambda: source().window("10 min").count(name="w"),
        "operator 'w'",
        "'10 min'",
        "give an integer in its unit",
    ),
    "a number over timestamps": (
        lambda: clock().window(600).count(name="w"),
        "operator 'w'",
        'example "10 min"',
    ),
    "slack in another unit": (
        lambda: source(slack="5 s"),
        "operator 'calls'",
        "slack='5 s'",
        "give an integer",
    ),
    "slack of a timestamp in numbers": (lambda: clock(slack=5), "operator 'clock'", "slack=5", '"10 min"'),
    "slack without time": (
        lambda: source(time=None, slack=5),
        "operator 'calls'",
        "slack=5 needs event time",
    ),
    "sort slack in another unit": (
        lambda: source().sort(slack="5 s", name="s"),
        "operator 's'",
        "slack='5 s'",
    ),
    "a join window in another unit": (
        lambda: join_of((s := source()), s, "5 s"),
        "operator 'pairs'",
        "window='5 s'",
    ),
    "every in another unit": (
        lambda: clock().window(Sliding("10 min", 5)).count(name="w"),
        "operator 'w'",
        "every=5 and the size have different units",
    ),
    "offset in another unit": (
        lambda: clock().window(Tumbling("10 min", offset=5)).count(name="w"),
        "operator 'w'",
        "offset=5 and the size have different units",
    ),
    # Sizes
    "a size of nothing": (
        lambda: source().window(0).count(name="w"),
        "operator 'w'",
        "size must be more than nothing",
    ),
    "a negative size": (lambda: source().window(-5).count(name="w"), "operator 'w'", "not -5"),
    "a gap of nothing": (
        lambda: source().window(Session(0)).count(name="w"),
        "operator 'w'",
        "gap must be more than",
    ),
    "every of nothing": (
        lambda: source().window(Sliding(5, 0)).count(name="w"),
        "operator 'w'",
        "every must be more",
    ),
    "every larger than the size": (
        lambda: source().window(Sliding(5, 6)).count(name="w"),
        "operator 'w'",
        "every=6 is larger than its size=5",
    ),
    "a count of nothing": (
        lambda: source().window(Count(0)).count(name="w"),
        "operator 'w'",
        "at least one row, not 0",
    ),
    "a count that is no number": (
        lambda: source().window(Count("3")).count(name="w"),
        "operator 'w'",
        "not '3'",
    ),
    "what is no window": (
        lambda: source().window(2.5).count(name="w"),
        "operator 'w'",
        "size=2.5 is no duration",
    ),
    "a negative slack": (
        lambda: source(slack=-1),
        "operator 'calls'",
        "slack=-1 is negative",
        "give 0 or more",
    ),
    "a negative sort slack": (
        lambda: source().sort(slack=-1, name="s"),
        "operator 's'",
        "slack=-1 is negative",
    ),
    "a join in a session": (
        lambda: (k := source().key_by("name")).join(k, Session(5), name="pairs"),
        "operator 'pairs'",
        "needs a tumbling or sliding window",
    ),
    "a join of nothing": (
        lambda: (k := source().key_by("name")).join(k, name="pairs"),
        "operator 'pairs'",
        "one of these: a window",
        "within=(low, high)",
        "ttl=",
    ),
    "a join of two kinds": (
        lambda: (k := source().key_by("name")).join(k, 10, within=5, name="pairs"),
        "operator 'pairs'",
        "one of these: a window",
    ),
    "a join that keeps nothing": (
        lambda: (s := source()).join(s, on="name", ttl=0, name="pairs"),
        "operator 'pairs'",
        "ttl=0 keeps nothing",
    ),
    "a time to live in another unit": (
        lambda: (s := source()).join(s, on="name", ttl="5 s", name="pairs"),
        "operator 'pairs'",
        "ttl='5 s'",
    ),
    "a time to live without time": (
        lambda: (s := untimed()).join(s, on="name", ttl=5, name="pairs"),
        "operator 'pairs'",
        "ttl= needs event time",
    ),
    "a join of nothing in particular": (
        lambda: (s := source()).join(s, on=7, within=5),
        "a join after operator 'calls': on=7",
        "say what both sides agree on: a field",
    ),
    "an interval that is empty": (
        lambda: (s := source()).join(s, on="name", within=(5, -5), name="pairs"),
        "operator 'pairs'",
        "within=(5, -5) holds for no rows",
        "low <= high",
    ),
    "an interval of three": (
        lambda: (s := source()).join(s, on="name", within=(1, 2, 3), name="pairs"),
        "operator 'pairs'",
        "give (low, high)",
    ),
    "an interval in another unit": (
        lambda: (s := source()).join(s, on="name", within=("-5 s", 0), name="pairs"),
        "operator 'pairs'",
        "within=('-5 s', 0)",
        "integer of unknown unit",
    ),
    "an interval without time": (
        lambda: (s := untimed()).join(s, on="name", within=5, name="pairs"),
        "operator 'pairs'",
        "within= needs event time",
    ),
    "a semi join that combines": (
        lambda: (s := source()).join(s, on="name", within=5, how="semi", combine=max, name="pairs"),
        "operator 'pairs'",
        "left rows as they are",
        "map() after it",
    ),
    "a semi join in a window": (
        lambda: joined(how="semi"),
        "operator 'pairs'",
        "how='semi' needs within= or ttl=",
    ),
    "a process without on_row": (
        lambda: source().process(Process, name="p"),
        "operator 'p'",
        "Process has no on_row(self, row, context)",
    ),
    "a connected process without handlers": (
        lambda: (k := source().key_by("name")).connect(k, Process, name="p"),
        "operator 'p'",
        "Process has no on_left(self, row, context)",
        "on_left and on_right for connect()",
    ),
    "no process is connected": (
        lambda: (k := source().key_by("name")).connect(k, 3, name="p"),
        "operator 'p'",
        "3 is no Process",
    ),
    # Joining
    "keys that are never equal": (
        differing_keys,
        "operator 'pairs'",
        "'name' (string) with 'price' (double)",
        "convert",
    ),
    "keys of different length": (numbers_of_keys, "operator 'pairs'", "give both sides as many key fields"),
    "a union of two flows": (
        lambda: source().union(source(Flow("g"))),
        "operator 'union'",
        "(f, g)",
        "on one Flow",
    ),
    "a merge of two flows": (
        lambda: source().merge(source(Flow("g")), by="ts"),
        "operator 'merge'",
        "different flows",
    ),
    "a join of two flows": (
        lambda: join_of(source(), source(Flow("g")), 5),
        "operator 'pairs'",
        "different flows",
    ),
    "a forward to another flow": (
        lambda: Flow("g").forward("later").connect(source()),
        "'later'",
        "different flows",
    ),
    "a forward connected twice": (twice_connected, "stream 'later' is connected already, to 'calls'"),
    "sum of an expression that does not fit": (
        lambda: source().window(2).aggregate(total=agg.sum(pc.field("prices") * 2), name="w"),
        "operator 'w'",
        "does not fit rows with the fields",
    ),
    "sum of a text that does not fit": (
        lambda: source().key_by("name").aggregate(total=agg.mean(expr("price * name")), name="a"),
        "operator 'a'",
        "at character 7",
    ),
    "an aggregate of a number": (lambda: source().aggregate(n=agg.max(5), name="a"), "operator 'a'", "max(5)"),
    "a join of times with and without a zone": (
        zones_joined,
        "operator 'pairs'",
        "timestamp and",
        "naive timestamp times",
    ),
    "a window over rows that a source could not take": (
        lambda: source(on_error="dead_letter").errors.window(5).count(name="w"),
        "operator 'w'",
        "needs event time",
    ),
    "an error policy of a source that there is not": (lambda: source(on_error="ignore"), 'use "fail", "skip"'),
    # Ports
    "late of a map": (
        lambda: source().map(same, name="m").late,
        "operator 'm'",
        "no output 'late'",
        "windows, joins, sort, merge",
    ),
    "late of a source that fails": (lambda: source().late, "operator 'calls'", 'on_late="divert"'),
    "late of a count window": (
        lambda: source().window(Count(2)).count(name="w").late,
        "operator 'w'",
        "no output 'late'",
    ),
    "errors of an operator that fails": (
        lambda: source().map(same, name="m").errors,
        "operator 'm'",
        "dead_letter",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_at_the_line_that_made_it(case):
    build, *parts = REFUSED[case]
    with pytest.raises(FlowError) as caught:
        build()
    for part in parts:
        assert part in str(caught.value)


def cycle() -> Flow:
    flow = Flow("f")
    back = flow.forward("back")
    back.connect(source(flow).union(back, name="u").map(same, name="step"))
    return back.sink("out")


def no_sink() -> Flow:
    stream = source()
    stream.map(same, name="used").sink("out")
    return stream.map(same, name="lost").filter(same, name="nowhere").flow


def unconnected() -> Flow:
    flow = Flow("f")
    return source(flow).union(flow.forward("later")).sink("out")


def uneven_order() -> Flow:
    flow = Flow("f")
    return source(flow, "a", order_by="ts").union(source(flow, "b")).sink("out")


def other_order(one: pa.DataType, other: pa.DataType) -> Flow:
    flow = Flow("f")
    first, second = (
        flow.source(name, read.items([], schema=pa.schema([("n", kind)])), order_by="n")
        for name, kind in (("a", one), ("b", other))
    )
    return first.union(second.map(same, name="as a", schema=pa.schema([("n", one)]))).sink("out")


WHOLE = {
    "order_by of whole numbers and fractions": (
        lambda: other_order(pa.int32(), pa.float64()),
        "order_by='n' of source 'a' is of whole numbers",
        "order_by='n' of source 'b' of fractions",
        "declare them alike with schema=",
    ),
    "order_by of times with and without a zone": (
        lambda: other_order(pa.timestamp("us"), pa.timestamp("us", "UTC")),
        "times without a zone",
        "times with a zone",
    ),
    "order_by of days and times": (lambda: other_order(pa.date32(), pa.timestamp("us")), "dates", "without a zone"),
    "a cycle": (cycle, "the flow has a cycle: back -> u -> step -> back", "so break it"),
    "a stream that reaches no sink": (
        no_sink,
        "operator 'lost' reach no sink",
        "end the stream with .sink(name, writer)",
    ),
    "no sink at all": (lambda: source().flow, "flow 'f' has no sink", "end a stream with .sink"),
    "no source": (lambda: Flow("f"), "flow 'f' has no source", "flow.source(name, reader)"),
    "a forward that is never defined": (
        unconnected,
        "stream 'later' is read but never defined",
        "call connect(stream)",
    ),
    "order_by on some sources only": (
        uneven_order,
        "source 'a' has an order_by of 1",
        "source 'b' of 0",
        "as many",
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_refused_when_the_whole_flow_is_known(case):
    build, *parts = WHOLE[case]
    flow = build()
    with pytest.raises(FlowError) as caught:
        make_plan(flow)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("case", {**REFUSED, **WHOLE})
def test_errors_fit_a_line_or_two_and_name_no_internals(case):
    with pytest.raises(FlowError) as caught:
        make_plan({**REFUSED, **WHOLE}[case][0]())
    assert len(str(caught.value)) < 400
    assert not re.search(r"object at 0x|Traceback|\n", str(caught.value))


def test_keys_of_different_numbers_may_be_joined():
    """1 and 1.0 are equal keys, so that joining an integer to a float field is fine."""
    left = source()
    assert left.key_by("ts").join(source(left.flow, "other").key_by("price"), 10).type is not None


def test_two_ports_of_a_split_may_stay_unread():
    first, *_ = source().split(same, same)
    assert make_plan(first.sink("out"))


@pytest.mark.parametrize(
    ("stream", "name", "hint"),
    [
        (source, "groupBy", "Stream has no 'groupBy'; write key_by(...)"),
        (source, "withColumn", 'write select("*", name=expression)'),
        (source, "filtre", "did you mean 'filter'?"),
        (lambda: source().key_by("name"), "session", "write window(ps.session(gap))"),
        (lambda: source().key_by("name").window(2), "agg", "write aggregate(...)"),
        (source, "apply", "apply() needs a window"),
    ],
)
def test_words_of_other_systems_are_understood(stream, name, hint):
    with pytest.raises(AttributeError, match=re.escape(hint)):
        getattr(stream(), name)


def test_a_name_that_means_nothing_gets_no_advice():
    with pytest.raises(AttributeError, match=r"Stream has no 'xyzzy'$"):
        getattr(source(), "xyzzy")  # noqa: B009  # as `hasattr` and notebooks ask


def test_no_advice_for_a_name_that_streams_have():
    """A word of other systems that becomes a method here must leave the list."""
    words = {word for words in OTHER_WORDS.values() for word in words.split()}
    assert not words & {*dir(Stream), *dir(KeyedStream)}
