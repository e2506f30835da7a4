"""The examples of the reference: a comment names what the lines after it show. The first lines are for all of them."""

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import penstock as ps
from penstock import lab
from penstock.testing import Script, assert_in_order, assert_same, run_list, torture

SALES = [
    {"at": 1, "who": "ann", "price": 5.0},
    {"at": 2, "who": "bob", "price": 7.0},
    {"at": 4, "who": "ann", "price": 1.0},
    {"at": 12, "who": "ann", "price": 3.0},
]


def given(stage):
    """Run a stage over the sales; return what comes out, as tuples."""
    return [tuple(row) if isinstance(row, tuple) else row for row in run_list(stage, SALES, time="at")]


def results(flow, name="out"):
    """Run a flow in threads of this process; return the rows of a sink."""
    return ps.run(flow, on=ps.Threads()).results[name]


def numbers(name="numbers"):
    """Return a stream of three numbers, in a flow of its own."""
    return ps.Flow(name).source("in", [1, 2, 3])


def refused(make):
    """Return the error that a function ends with."""
    try:
        make()
    except ps.PenstockError as error:
        return error


cheap = ps.step("cheap", lambda row: row.price < 4, times=2)
session = SparkSession.getActiveSession() or SparkSession.builder.master("local[1]").getOrCreate()

# -- ps.Flow
flow = ps.Flow("twice", shards=64)
flow.source("in", [1, 2, 3]).map(lambda n: 2 * n, name="twice").sink("out")
assert list(flow.nodes) == ["in", "twice", "out"]
assert results(flow) == [2, 4, 6]

# -- ps.Stream
stream = numbers()
assert isinstance(stream, ps.Stream)
doubled = stream.map(lambda n: 2 * n)
assert results(doubled.union(stream).sink("out")) == [2, 1, 4, 2, 6, 3]

# -- ps.KeyedStream
keyed = numbers().key_by(lambda n: n % 2)
assert isinstance(keyed, ps.KeyedStream)
assert results(keyed.reduce(lambda a, b: a + b).sink("out")) == [1, 2, 4]

# -- ps.WindowedStream
assert given(lambda sales: sales.key_by("who").window(10).count()) == [
    ("ann", 0, 10, 2),
    ("bob", 0, 10, 1),
    ("ann", 10, 20, 1),
]

# -- ps.Record
(row,) = results(ps.Flow("records").source("in", [{"who": "ann", "n": 1}]).sink("out"))
assert isinstance(row, ps.Record)
assert (row.who, row["n"], row[1]) == ("ann", 1, 1)

# -- ps.DeadLetter
halves = numbers().map(lambda n: 1 / (n - 2), on_error="dead_letter")
halves.errors.sink("errors")
(letter,) = results(halves.sink("out"), "errors")
assert isinstance(letter, ps.DeadLetter)
assert (letter.error, letter.row) == ("ZeroDivisionError: division by zero", "2")


# -- ps.Window
def sizes(sales):
    return sales.window(10).apply(lambda window, rows: (window.start, len(rows)))


assert given(sizes) == [(0, 3), (10, 1)]
assert ps.Window(None, 0, 10).end == 10

# -- ps.map
assert run_list(ps.map(lambda n: 2 * n), [1, 2]) == [2, 4]

# -- ps.filter
assert run_list(ps.filter(lambda n: n > 1), [1, 2, 3]) == [2, 3]

# -- ps.flat_map
assert run_list(ps.flat_map(lambda n: [n] * n), [1, 2]) == [1, 2, 2]


# -- ps.map_batches
def cheaper(batch):
    """Halve the prices, as columns."""
    return batch.set_column(2, "price", pc.divide(batch.column("price"), 2.0))


assert given(ps.map_batches(cheaper))[0] == (1, "ann", 2.5)

# -- ps.select
assert given(ps.select("who", double=ps.expr("price * 2")))[:2] == [("ann", 10.0), ("bob", 14.0)]

# -- ps.drop
assert given(ps.drop("price"))[0] == (1, "ann")

# -- ps.rename
assert run_list(ps.rename({"who": "user"}), SALES)[0].user == "ann"

# -- ps.distinct
assert run_list(ps.distinct("who") >> ps.map(lambda row: row.who), SALES) == ["ann", "bob"]

# -- ps.expr
assert given(ps.filter(ps.expr("price > 4 and who = 'ann'"))) == [(1, "ann", 5.0)]

# -- ps.lookup
COUNTRIES = [{"who": "ann", "country": "AT"}]
assert [row[-1] for row in given(ps.lookup(COUNTRIES, on="who"))] == ["AT", None, "AT", "AT"]

# -- ps.Cache
asked = []
names = ps.map(lambda row: asked.append(row.who) or row.who.title(), cache=ps.Cache(100, by="who"))
assert run_list(names, SALES) == ["Ann", "Bob", "Ann", "Ann"]
assert asked == ["ann", "bob"]

# -- ps.top
best = run_list(ps.top(1, by="price") >> ps.map(lambda row: row.who), SALES)
assert best[-1] == "bob"

# -- ps.arrival
stamped = ps.Flow("arrivals").source("in", SALES, time=ps.arrival)
assert stamped.time is not None

# -- ps.step
assert cheap.name == "cheap"
assert ps.step("once", lambda row: row.price < 4).times == 1

# -- ps.absent
never = ps.absent("never", lambda row: row.price > 100)
assert never.name == "never"

# -- ps.pattern
twice = ps.key_by("who") >> ps.pattern(cheap, within=20, combine=lambda match: [row.at for row in match["cheap"]])
assert given(twice) == [[4, 12]]

# -- ps.key_by
assert run_list(ps.key_by("who") >> ps.scan(lambda n, row: (n + 1, n + 1), 0), SALES) == [1, 1, 2, 3]

# -- ps.scan
assert run_list(ps.scan(lambda total, n: (total + n, total + n), 0), [1, 2, 3]) == [1, 3, 6]

# -- ps.flat_scan
repeats = ps.flat_scan(lambda last, n: (n, [n] if n == last else []), None)
assert run_list(repeats, [1, 1, 2, 2]) == [1, 2]

# -- ps.reduce
assert run_list(ps.reduce(max), [2, 1, 3]) == [2, 2, 3]

# -- ps.aggregate
totals = ps.key_by("who") >> ps.aggregate(total=ps.agg.sum("price"))
assert given(totals) == [("ann", 5.0), ("bob", 7.0), ("ann", 6.0), ("ann", 9.0)]


# -- ps.process
class Third(ps.Process):
    """Let every third row of a key pass."""

    def on_row(self, row, ctx):
        ctx.state = (ctx.state or 0) + 1
        if ctx.state % 3 == 0:
            ctx.emit(row)


assert run_list(ps.key_by("who") >> ps.process(Third()) >> ps.map(lambda row: row.at), SALES) == [12]

# -- ps.window
assert given(ps.window(ps.tumbling(10)) >> (lambda windows: windows.count())) == [(0, 10, 3), (10, 20, 1)]

# -- ps.Match
whole = ps.key_by("who") >> ps.pattern(cheap, within=20, combine=lambda match: isinstance(match, ps.Match))
assert given(whole) == [True]

# -- ps.tumbling
assert given(lambda sales: sales.window(ps.tumbling(10, offset=2)).count()) == [(-8, 2, 1), (2, 12, 2), (12, 22, 1)]

# -- ps.sliding
assert given(lambda sales: sales.window(ps.sliding(10, 5)).count())[0] == (-5, 5, 3)

# -- ps.session
assert given(lambda sales: sales.window(ps.session(5)).count()) == [(1, 9, 3), (12, 17, 1)]

# -- ps.count_window
assert [row[-1] for row in given(lambda sales: sales.window(ps.count_window(2)).count())] == [2, 2]

# -- ps.sort
late = [SALES[1], SALES[0], *SALES[2:]]
assert [row.at for row in run_list(ps.sort(slack=2), late, time="at", slack=2)] == [1, 2, 4, 12]

# -- ps.union
flow = ps.Flow("both")
both = ps.union(flow.source("a", [1, 2]), flow.source("b", [3]))
assert sorted(results(both.sink("out"))) == [1, 2, 3]

# -- ps.merge
flow = ps.Flow("merged")
halves = [flow.source(name, SALES[k::2], order_by="at", time="at") for k, name in enumerate(("even", "odd"))]
assert [row.at for row in results(ps.merge(*halves, by="at").sink("out"))] == [1, 2, 4, 12]

# -- ps.parallel
assert run_list(ps.parallel(2) >> ps.map(lambda n: n + 1), [1, 2, 3], on=ps.Threads()) == [2, 3, 4]

# -- ps.threaded
assert run_list(ps.threaded() >> ps.map(lambda n: n + 1), [1, 2, 3], on=ps.Threads()) == [2, 3, 4]

# -- ps.sink
assert results(numbers() >> ps.sink("out", ps.write.memory())) == [1, 2, 3]

# -- ps.agg.count
assert given(lambda sales: sales.window(20).aggregate(n=ps.agg.count(where=ps.expr("price > 2")))) == [(0, 20, 3)]

# -- ps.agg.sum
assert given(lambda sales: sales.window(20).aggregate(total=ps.agg.sum("price"))) == [(0, 20, 16.0)]

# -- ps.agg.min
assert given(lambda sales: sales.window(20).aggregate(least=ps.agg.min("price"))) == [(0, 20, 1.0)]

# -- ps.agg.max
assert given(lambda sales: sales.window(20).aggregate(most=ps.agg.max("price"))) == [(0, 20, 7.0)]

# -- ps.agg.mean
assert given(lambda sales: sales.window(20).aggregate(mean=ps.agg.mean("price"))) == [(0, 20, 4.0)]

# -- ps.agg.median
assert given(lambda sales: sales.window(20).aggregate(middle=ps.agg.median("price"))) == [(0, 20, 4.0)]

# -- ps.agg.quantile
assert given(lambda sales: sales.window(20).aggregate(high=ps.agg.quantile("price", 1.0))) == [(0, 20, 7.0)]

# -- ps.agg.first
assert given(lambda sales: sales.window(20).aggregate(first=ps.agg.first("who"))) == [(0, 20, "ann")]

# -- ps.agg.last
assert given(lambda sales: sales.window(20).aggregate(last=ps.agg.last("at"))) == [(0, 20, 12)]

# -- ps.agg.collect
assert given(lambda sales: sales.window(20).aggregate(all=ps.agg.collect("at"))) == [(0, 20, [1, 2, 4, 12])]

# -- ps.agg.distinct
assert given(lambda sales: sales.window(20).aggregate(names=ps.agg.distinct("who"))) == [(0, 20, ["ann", "bob"])]

# -- ps.agg.count_distinct
assert given(lambda sales: sales.window(20).aggregate(n=ps.agg.count_distinct("who"))) == [(0, 20, 2)]

# -- ps.agg.argmin
assert given(lambda sales: sales.window(20).aggregate(who=ps.agg.argmin("who", by="price"))) == [(0, 20, "ann")]

# -- ps.agg.argmax
assert given(lambda sales: sales.window(20).aggregate(who=ps.agg.argmax("who", by="price"))) == [(0, 20, "bob")]

# -- ps.agg.fold
longest = ps.agg.fold(lambda: 0, lambda most, row: max(most, len(row.who)), returns=int)
assert given(lambda sales: sales.window(20).aggregate(most=longest)) == [(0, 20, 3)]

# -- ps.read.items
assert (
    results(ps.Flow("items").source("in", ps.read.items([("ann", 1)], schema={"who": str, "n": int})).sink("out"))[0].n
    == 1
)

# -- ps.read.generate
squares = ps.read.generate(
    lambda start, stop: pa.table({"n": [n * n for n in range(start, stop)]}), rows=4, schema={"n": int}
)
assert [row.n for row in results(ps.Flow("squares").source("in", squares).sink("out"))] == [0, 1, 4, 9]

# -- ps.read.rate
assert [row.value for row in results(ps.Flow("rate").source("in", ps.read.rate(1000, rows=3)).sink("out"))] == [0, 1, 2]

# -- ps.read.socket
assert ps.read.socket("localhost", 9999).goes_on

# -- ps.read.frame
flow = ps.Flow("frame")
flow.source("in", ps.read.frame(session.range(3))).sink("out")
assert [row.id for row in ps.run(flow, on=ps.Spark(session)).results["out"]] == [0, 1, 2]

# -- ps.write.memory
assert results(numbers().sink("out", ps.write.memory())) == [1, 2, 3]

# -- ps.write.parquet
ps.run(ps.Flow("written").source("in", SALES).sink("out", ps.write.parquet("sales.parquet")), on=ps.Threads())

# -- ps.read.parquet
again = ps.Flow("parquet").source("in", ps.read.parquet("sales.parquet"), order_by="at")
assert [row.price for row in results(again.sink("out"))] == [5.0, 7.0, 1.0, 3.0]

# -- ps.write.json
ps.run(ps.Flow("written").source("in", SALES).sink("out", ps.write.json("sales.json")), on=ps.Threads())

# -- ps.read.sink
assert [row["price"] for row in ps.read.sink("sales.parquet")] == [5.0, 7.0, 1.0, 3.0]

# -- ps.read.json
assert results(ps.Flow("json").source("in", ps.read.json("sales.json")).sink("out"))[0].who == "ann"

# -- ps.write.csv
ps.run(ps.Flow("written").source("in", SALES).sink("out", ps.write.csv("sales.csv")), on=ps.Threads())

# -- ps.read.csv
assert results(ps.Flow("csv").source("in", ps.read.csv("sales.csv")).sink("out"))[1].price == 7.0

# -- ps.read.text
lines = ps.Flow("text").source("in", ps.read.text("sales.csv")).map(lambda row: row.value)
assert results(lines.sink("out"))[0] == '"at","who","price"'

# -- ps.write.console
ps.run(numbers().sink("out", ps.write.console(limit=1)), on=ps.Threads())

# -- ps.write.callback
taken = []
ps.run(numbers().sink("out", ps.write.callback(lambda rows, epoch: taken.extend(rows))), on=ps.Threads())
assert taken == [1, 2, 3]

# -- ps.write.frame
counts = []
flow = (
    ps.Flow("frames").source("in", SALES).sink("out", ps.write.frame(lambda frame, epoch: counts.append(frame.count())))
)
ps.run(flow, on=ps.Spark(session))
assert sum(counts) == 4


# -- ps.Process
class Remind(ps.Process):
    """Say who bought nothing for five ticks."""

    def on_row(self, row, ctx):
        ctx.state = row.who
        ctx.set_timer(row.at + 5)

    def on_timer(self, time, ctx):
        ctx.emit((time, ctx.state))


assert ("bob" in [who for _, who in given(ps.key_by("who") >> ps.process(Remind()))]) is True


# -- ps.ProcessContext
class Late(ps.Process):
    """Tell how far the watermark is behind each row."""

    def on_row(self, row, ctx: ps.ProcessContext):
        ctx.emit((ctx.key, ctx.time - row.at))


assert given(ps.key_by("who") >> ps.process(Late()))[0] == ("ann", 0)


# -- ps.Coroutine
class Pairs(ps.Coroutine):
    """Bring the rows of a stream together two by two."""

    async def process(self, ctx):
        while await ctx.wait_for_all({0: 2}):
            await ctx.emit((ctx.pop(0), ctx.pop(0)))


assert results(ps.operate(Pairs, numbers()).sink("out")) == [(1, 2)]


# -- ps.CoroutineContext
class Peek(ps.Coroutine):
    """Let rows pass that are smaller than the next one."""

    async def process(self, ctx: ps.CoroutineContext):
        while await ctx.wait_for_all({0: 2}):
            row = ctx.pop(0)
            if row < ctx.peek(0):
                await ctx.emit(row)


assert results(ps.operate(Peek, numbers()).sink("out")) == [1, 2]

# -- ps.operate
flow = ps.Flow("zipped")
a, b = flow.source("a", [1, 2]), flow.source("b", ["x", "y"])
assert results(ps.operate(ps.library.Zip(), a, b).sink("out")) == [(1, "x"), (2, "y")]


# -- ps.feedback
def until_three(stream, back):
    """Let numbers pass until one is three."""
    passed = ps.operate(ps.library.Gate(is_open=True), stream, back)
    return passed, passed.map(lambda n: n < 3)


flow = ps.Flow("fed back")
assert results(ps.feedback(until_three, flow.source("in", [1, 3, 2])).sink("out")) == [1, 3]

# -- ps.library.Barrier
flow = ps.Flow("barrier")
sums = ps.operate(ps.library.Barrier(lambda a, b: a + b), flow.source("a", [1, 2]), flow.source("b", [10, 20]))
assert results(sums.sink("out")) == [11, 22]

# -- ps.library.Gate
flow = ps.Flow("gate")
gate = ps.operate(ps.library.Gate(is_open=True), flow.source("in", [1, 2]), flow.source("control", []))
assert results(gate.sink("out")) == [1, 2]

# -- ps.library.Join
flow = ps.Flow("joined")
pairs = ps.operate(
    ps.library.Join(lambda n: n % 10, lambda a, b: (a, b)), flow.source("a", [1]), flow.source("b", [11])
)
assert results(pairs.sink("out")) == [(1, 11)]

# -- ps.library.Merge
flow = ps.Flow("in order")
merged = ps.operate(ps.library.Merge(lambda n: n), flow.source("a", [1, 4]), flow.source("b", [2, 3]))
assert results(merged.sink("out")) == [1, 2, 3, 4]

# -- ps.library.Switch
flow = ps.Flow("switch")
left, right = ps.operate(ps.library.Switch(2), flow.source("in", [1, 2]), flow.source("control", []))
right.sink("right")
assert results(left.sink("out")) == [1, 2]

# -- ps.library.Throttle
assert results(ps.operate(ps.library.Throttle(every=2), numbers()).sink("out")) == [1, 3]

# -- ps.library.Zip
flow = ps.Flow("zip")
zipped = ps.operate(ps.library.Zip(longest=True, fill=0), flow.source("a", [1, 2]), flow.source("b", [3]))
assert results(zipped.sink("out")) == [(1, 3), (2, 0)]

# -- ps.run
run = ps.run(numbers().sink("out"), on=ps.Threads())
assert run.results["out"] == [1, 2, 3]

# -- ps.start
run = ps.start(numbers().sink("out"), on=ps.Threads(workers=2))
assert run.await_end()
assert run.results["out"] == [1, 2, 3]

# -- ps.Run
assert isinstance(run, ps.Run)
assert (run.running, run.error, run.stats.rows_in) == (False, None, 3)

# -- ps.Spark
run = ps.run(numbers().sink("out"), on=ps.Spark(session, tasks=2), checkpoint="kept")
assert run.results["out"] == [1, 2, 3]

# -- ps.Threads
run = ps.run(numbers().sink("out"), on=ps.Threads(workers=2, model="dynamic"))
assert run.results["out"] == [1, 2, 3]

# -- ps.Sequential
assert ps.run(numbers().sink("out"), on=ps.Sequential()).results["out"] == [1, 2, 3]

# -- ps.state.epochs
flow = ps.Flow("counted")
flow.source("in", [1, 2, 3]).key_by(lambda n: n % 2).scan(lambda n, _: (n + 1, n + 1), 0, name="count").sink("out")
ps.run(flow, on=ps.Spark(session, epoch_rows=2), checkpoint="counted")
first, *_, last = ps.state.epochs("counted")

# -- ps.state.operators
assert [(each.operator, each.keys) for each in ps.state.operators("counted")] == [("count", 2)]

# -- ps.state.values
assert ps.state.values("counted", "count") == {1: 2, 0: 1}

# -- ps.state.read
assert ps.state.read("counted", "count").column_names == ["key", "value"]

# -- ps.state.shards
assert sum(each.keys for each in ps.state.shards("counted", "count")) == 2

# -- ps.state.compare
assert [change.key for change in ps.state.compare("counted", "count", first, last)] == [1]

# -- ps.PenstockError
assert issubclass(ps.FlowError, ps.PenstockError)

# -- ps.FlowError
error = refused(lambda: ps.run(ps.Flow("empty"), on=ps.Threads()))
assert isinstance(error, ps.FlowError)
assert "has no source" in str(error)

# -- ps.OperatorError
error = refused(lambda: run_list(ps.map(lambda n: 1 / n, name="inverse"), [0]))
assert isinstance(error, ps.OperatorError)
assert (error.operator, error.row) == ("inverse", "0")

# -- ps.RowTypeError
assert issubclass(ps.RowTypeError, ps.PenstockError)

# -- ps.SetupError
assert issubclass(ps.SetupError, ps.PenstockError)

# -- ps.SourceError
error = refused(lambda: run_list(ps.map(str), [2, 1], order_by="value", schema=int))
assert isinstance(error, ps.SourceError)
assert "order" in str(error)

# -- ps.StorageError
assert issubclass(ps.StorageError, ps.PenstockError)

# -- ps.CheckpointError
error = refused(lambda: ps.state.epochs("nowhere"))
assert isinstance(error, ps.CheckpointError)
assert "nowhere" in str(error)

# -- ps.LeaseError
assert issubclass(ps.LeaseError, ps.PenstockError)

# -- penstock.testing.run_list
assert run_list(ps.map(lambda n: 2 * n), [1, 2]) == [2, 4]

# -- penstock.testing.torture
assert torture(ps.key_by("who") >> ps.scan(lambda n, row: (n + 1, n + 1), 0), SALES) == [1, 1, 2, 3]

# -- penstock.testing.Script
script = Script(numbers().map(lambda n: 2 * n).sink("out"))
assert script.send(5, 6) == [10, 12]

# -- penstock.testing.assert_in_order
assert_in_order(SALES, "at")

# -- penstock.testing.assert_same
assert_same({"out": [1, 2]}, {"out": [1, 2]})

# -- lab.Static
assert ps.run(numbers().sink("out"), on=ps.Threads(model="bound", binding=lab.Static())).results["out"] == [1, 2, 3]

# -- lab.Greedy
assert ps.run(numbers().sink("out"), on=ps.Threads(model="bound", binding=lab.Greedy())).results["out"] == [1, 2, 3]

# -- lab.Barrier
assert ps.run(numbers().sink("out"), on=ps.Threads(model="bound", binding=lab.Barrier())).results["out"] == [1, 2, 3]

# -- lab.Locked
assert ps.run(numbers().sink("out"), on=ps.Threads(reorder=lab.Locked())).results["out"] == [1, 2, 3]

# -- lab.StreamsRules
assert ps.run(numbers().sink("out"), on=ps.Threads(workers=lab.StreamsRules())).results["out"] == [1, 2, 3]
