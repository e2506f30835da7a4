"""What happens to a row that fails: the flow fails, the row is skipped, or a dead letter leaves."""

import json
import pickle

import pytest

from penstock import errors
from penstock.errors import FlowError, OperatorError, PenstockError, RowTypeError, operator_error
from penstock.flow import Flow
from penstock.operators import aggregates as agg
from penstock.operators.process import Process
from penstock.operators.windows import Count, Session, Sliding, Tumbling
from penstock.rows.records import make_record
from penstock.rows.row_types import row_type
from penstock.sequential import row_text

from .running import feed, numbers, out, records, run, started


def invert(n):
    return 1 / n


def first_line(function) -> int:
    return function.__code__.co_firstlineno


class TestFail:
    def test_names_operator_place_error_and_row(self):
        with pytest.raises(OperatorError) as caught:
            out(numbers([2, 0, 1]).map(invert, name="inv"))
        place = f"{__file__}:{first_line(invert) + 1}"
        assert str(caught.value) == f"operator 'inv' failed at {place}: ZeroDivisionError: division by zero; row: 0"

    def test_what_came_before_stays(self):
        engine = started(numbers([2]).map(invert).sink("out"))
        with pytest.raises(OperatorError):
            feed(engine, "in", 2, 4, 0, 5)
        assert engine.results["out"] == [0.5, 0.25]

    def test_the_first_in_the_order_of_the_graph_is_the_one(self):
        stream = numbers([0])
        stream.map(invert, name="first").sink("x")
        with pytest.raises(OperatorError, match="operator 'first'"):
            run(stream.map(lambda n: [][n], name="second").sink("y"))

    def test_points_at_the_user_not_at_the_library(self):
        def parse(text):
            return json.loads(text)

        with pytest.raises(OperatorError) as caught:
            out(numbers(["{"]).map(parse))
        assert caught.value.where == f"{__file__}:{first_line(parse) + 1}"
        assert "json/decoder.py" in caught.value.trace

    def test_a_library_function_given_as_it_is(self):
        with pytest.raises(OperatorError) as caught:
            out(numbers(["{"]).map(json.loads))
        assert "json" in caught.value.where

    def test_a_key_that_cannot_be_read_or_hashed(self):
        with pytest.raises(OperatorError, match=r"operator 'n' failed.*KeyError: 'k'"):
            out(numbers([1]).map(lambda _: {}).key_by("k").aggregate(n=agg.count(), name="n"))
        with pytest.raises(OperatorError, match=r"operator 'n' failed.*has no canonical encoding"):
            out(numbers([1]).key_by(lambda n: frozenset([n])).aggregate(n=agg.count(), name="n"))

    def test_long_rows_are_shortened(self):
        with pytest.raises(OperatorError) as caught:
            out(numbers(["x" * 5000]).map(int))
        assert len(caught.value.row) == 400


class TestSkip:
    def test_stateless(self):
        assert out(numbers([2, 0, 4]).map(invert, on_error="skip")) == [0.5, 0.25]
        assert out(numbers([2, 0, 4]).filter(invert, on_error="skip")) == [2, 4]
        small, rest = numbers([2, 0, 4]).split(lambda n: 1 / n > 0.3, on_error="skip")
        rest.sink("rest")
        assert run(small.sink("small")) == {"small": [2], "rest": [4]}

    def test_a_row_that_fails_half_way_leaves_nothing(self):
        def halves(n):
            yield n
            yield 1 / n

        assert out(numbers([2, 0, 4]).flat_map(halves, on_error="skip")) == [2, 0.5, 4, 0.25]

    def test_state_is_as_if_the_row_had_not_come(self):
        def add(total, n):
            return total + n, 10 / n

        engine = started(numbers([1]).scan(add, 0, name="s", on_error="skip").sink("out"))
        feed(engine, "in", 5, 0, 2)
        assert engine.results["out"] == [2.0, 5.0]
        assert engine.state("s") == {None: 7}

    def test_a_first_row_that_fails_opens_nothing(self):
        engine = started(
            numbers([1]).key_by(str).scan(lambda s, n: (s, 1 / n), 0, name="s", on_error="skip").sink("out")
        )
        feed(engine, "in", 0)
        assert engine.state("s") == {}

    def test_a_process_keeps_state_timers_and_silence(self):
        class Bad(Process):
            def on_row(self, row, context):
                context.state = row.t
                context.set_timer(row.t + 1)
                context.emit(row.t)
                if row.t == 2:
                    raise ValueError("two")

            def on_timer(self, time, context):
                context.emit(-time)

        assert out(records([{"t": 1}, {"t": 2}, {"t": 5}]).process(Bad, on_error="skip")) == [1, -2, 5, -6]

    @pytest.mark.parametrize("spec", [Tumbling(10), Sliding(10, 10), Session(10), Count(10)], ids=str)
    def test_a_window_without_the_row_that_failed(self, spec):
        """Also of a session, whose rows are only known to be together at its close."""
        rows = records([{"t": 1, "v": 1}, {"t": 2, "v": 0}, {"t": 3, "v": 2}])
        window = rows.window(spec).aggregate(s=agg.sum(lambda r: 10 // r.v), rows=agg.collect("v"), on_error="skip")
        (found,) = out(window)
        assert (found.s, found.rows) == (15, [1, 2])

    @pytest.mark.parametrize("spec", [Tumbling(10), Session(10)], ids=str)
    def test_a_window_whose_close_failed_is_gone(self, spec):
        def close(_, rows):
            if any(r.v == 0 for r in rows):
                raise ValueError("zero")
            return len(rows)

        stream = records([{"t": 1, "v": 0}], slack=0)
        engine = started(stream.window(spec).apply(close, name="w", on_error="skip").sink("out"))
        feed(engine, "in", {"t": 1, "v": 0}, {"t": 30, "v": 1})
        assert engine.results["out"] == []
        assert len(engine.state("w")[None]) == 1
        engine.end("in")
        assert engine.results["out"] == [1]

    def test_a_timer_that_failed_does_not_wait_again(self):
        """State is saved with its timers; one that has been must not come back with it."""

        class Once(Process):
            def on_row(self, row, context):
                context.state = row.t
                context.set_timer(5)

            def on_timer(self, time, context):
                raise ValueError(time)

        engine = started(records([{"t": 1}]).process(Once, name="p", on_error="skip").sink("out"))
        feed(engine, "in", {"t": 1}, {"t": 9})
        logic = engine.plan.nodes["p"].operator.logic
        # The row at 9 asked for a timer at 5, which has passed, so that it waits for the next mark.
        assert [fire for fire, _ in logic.timers(engine.state("p")[None])] == [10]

    def test_a_join_forgets_a_pair_that_failed(self):
        flow = Flow("f")
        left = flow.source("L", [{"t": 1, "v": 0}, {"t": 2, "v": 2}], time="t").key_by(lambda _: 1)
        right = flow.source("R", [{"t": 1, "w": 10}], time="t").key_by(lambda _: 1)

        def ratio(a, b):
            return (a and a.v) if b is None else b.w / a.v

        stream = left.join(right, 10, ratio, how="left", on_error="skip")
        # R meets 0 and fails, so it is as if it had not come: both left rows stay alone.
        assert run(stream.sink("out"))["out"] == [0, 2]


class TestDeadLetter:
    def letters(self, stream):
        stream.errors.sink("errors")
        return run(stream.sink("out"))

    def test_has_operator_error_place_and_row(self):
        found = self.letters(
            records([{"n": 2, "s": "é"}, {"n": 0, "s": "b"}], time=None).map(
                lambda r: 1 / r.n, name="inv", on_error="dead_letter"
            )
        )
        assert found["out"] == [0.5]
        (letter,) = found["errors"]
        assert (letter.operator, letter.error) == ("inv", "ZeroDivisionError: division by zero")
        assert letter.where.startswith(__file__)
        assert json.loads(letter.row) == {"n": 0, "s": "b"}

    def test_leaves_at_the_position_of_its_row(self):
        stream = numbers([1, 0, 2]).map(invert, name="inv", on_error="dead_letter")
        both = stream.map(lambda n: f"ok {n}").union(stream.errors.map(lambda e: f"bad {e.row}"))
        assert out(both) == ["ok 1.0", "bad 0", "ok 0.5"]

    def test_of_every_kind_of_operator(self):
        def fail(*_):
            raise ValueError("no")

        def stream():
            return records([{"t": 1, "v": 1}])

        class Failing(Process):
            def on_row(self, row, context):
                fail()

        built = [
            stream().map(fail, on_error="dead_letter"),
            stream().filter(fail, on_error="dead_letter"),
            stream().flat_map(fail, on_error="dead_letter"),
            stream().split(fail, on_error="dead_letter")[0],
            stream().scan(fail, on_error="dead_letter"),
            stream().flat_scan(fail, on_error="dead_letter"),
            stream().key_by(fail).aggregate(n=agg.count(), on_error="dead_letter"),
            stream().window(5).apply(fail, on_error="dead_letter"),
            stream().window(5).aggregate(x=agg.sum(fail), on_error="dead_letter"),
            stream().process(Failing, on_error="dead_letter"),
        ]
        for each in built:
            found = self.letters(each)
            assert found["out"] == []
            assert [letter.error for letter in found["errors"]] == ["ValueError: no"]

    def test_of_a_timer_names_its_key(self):
        window = records([{"t": 1, "k": "a"}]).key_by("k").window(5)
        found = self.letters(window.apply(lambda _, rows: 1 // (len(rows) - 1), on_error="dead_letter"))
        assert found["errors"][0].row == "\"timer of key 'a'\""

    @pytest.mark.parametrize(
        ("row", "text"),
        [
            ((1, "a"), '[1, "a"]'),
            ({"a": 1}, '{"a": 1}'),
            ({(1, 2): 3}, "{(1, 2): 3}"),
            (None, "null"),
        ],
    )
    def test_rows_as_text(self, row, text):
        assert row_text(row) == text

    def test_rows_of_own_classes_as_text(self):
        class Thing:
            def __init__(self):
                self.size = 3

        assert row_text(Thing()) == '{"size": 3}'


class TestErrorObjects:
    def test_an_operator_error_survives_pickling(self):
        error = OperatorError("op", "ValueError: x", "file.py:3", "row", "trace")
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.trace) == (str(error), "trace")

    def test_a_row_type_error_survives_pickling(self):
        error = RowTypeError(3, "f", 1, "string")
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.index, again.value) == (str(error), 3, 1)

    def test_an_operator_error_is_not_wrapped_again(self):
        error = OperatorError("inner", "e", "w", "r")
        assert operator_error("outer", error, 1) is error

    def test_a_shipped_copy_is_shown_as_the_users_file(self, monkeypatch):
        monkeypatch.setitem(errors.ROOTS, "modules-0123abcd.zip", "/home/me/project")
        names = {}
        exec(
            compile("def f():\n    return 1 / 0", "/spark/modules-0123abcd.zip/mine.py", "exec"),
            names,
        )
        with pytest.raises(ZeroDivisionError) as raised:
            names["f"]()
        error = operator_error("op", raised.value, 1)
        assert error.where == "/home/me/project/mine.py:2"
        assert '"/home/me/project/mine.py", line 2' in error.trace

    def test_a_field_that_a_row_has_not_is_named_with_those_that_it_has(self):
        row = make_record(("at", "user", "amount"), (1, "ann", 2.0))
        with pytest.raises(AttributeError) as raised:
            _ = row.amuont
        error = operator_error("op", raised.value, row).error
        assert error.endswith("'amuont'; did you mean 'amount'? the row has at, user, amount")
        with pytest.raises(AttributeError) as raised:
            _ = row.zzz
        assert operator_error("op", raised.value, row).error.endswith("'zzz'; the row has at, user, amount")
        with pytest.raises(AttributeError) as raised:
            _ = (1).zzz
        assert operator_error("op", raised.value, row).error.endswith("'zzz'")

    def test_a_row_with_a_field_that_its_schema_has_not(self):
        declared = row_type({"user": str, "total": float}, "op")
        for row in ({"user": "ann", "totl": 1.0}, make_record(("user", "totl"), ("ann", 1.0))):
            with pytest.raises(RowTypeError) as raised:
                declared.encode([row])
            again = pickle.loads(pickle.dumps(raised.value))
            assert str(again) == "the row has a field 'totl', the schema has user, total; did you mean 'total'?"

    def test_all_have_one_base(self):
        assert issubclass(FlowError, PenstockError)
        assert str(RowTypeError(0, "f", 1, "string")) == (
            "field 'f' has the value 1 (int), which does not fit the declared type string"
        )
