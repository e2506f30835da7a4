"""Rows that fail, and flows that do."""

from __future__ import annotations

from typing import Any

from penstock.operators import aggregates as agg
from penstock.operators.process import Process, ProcessContext
from penstock.operators.windows import Session

from .cases import EVENTS, ZEROS, Sources, case, inverse


def inverse_sum(total: float, row: Any) -> tuple[float, float]:
    """Fail where v is 0."""
    return total + row.v, total / row.v


@case(ZEROS)
def skipped_rows(s: Sources) -> None:
    stream = s(time="t")
    stream.map(inverse, on_error="skip").sink("map out")
    stream.filter(lambda r: 6 / r.v > 2, on_error="skip").sink("filter out")
    stream.flat_map(lambda r: [r.v, 6 // r.v], on_error="skip").sink("flat_map out")
    stream.key_by("k").scan(inverse_sum, 0, on_error="skip").sink("scan out")
    stream.key_by(lambda r: 6 // r.v).aggregate(n=agg.count(), on_error="skip").sink("key out")
    stream.key_by("k").window(8).aggregate(x=agg.sum(lambda r: 6 // r.v), on_error="skip").sink("window out")
    stream.key_by("k").window(Session(3)).aggregate(x=agg.sum(lambda r: 6 // r.v), on_error="skip").sink("session out")


@case(ZEROS)
def dead_letters(s: Sources) -> None:
    stream = s(time="t")
    mapped = stream.map(inverse, name="mapped", on_error="dead_letter")
    mapped.sink("out")
    mapped.errors.sink("errors")
    scanned = stream.key_by("k").scan(inverse_sum, 0, name="scanned", on_error="dead_letter")
    scanned.map(str).union(scanned.errors.map(lambda e: f"{e.error} {e.row}")).sink("both")
    low, rest = stream.split(lambda r: 6 // r.v > 3, name="split", on_error="dead_letter")
    low.sink("low")
    rest.sink("rest")
    low.errors.key_by("operator").aggregate(n=agg.count()).sink("split errors")


@case(ZEROS)
def dead_letters_of_windows_and_timers(s: Sources) -> None:
    stream = s(time="t", slack=2)
    closed = (
        stream.key_by("k")
        .window(6)
        .apply(lambda w, rows: (w.start, 60 // min(r.v for r in rows)), on_error="dead_letter", name="closed")
    )
    closed.sink("out")
    closed.errors.map(lambda e: (e.error, e.row)).sink("errors")
    sessions = (
        stream.key_by("k")
        .window(Session(4))
        .apply(lambda w, rows: (w.start, 60 // min(r.v for r in rows)), on_error="skip", name="sessions")
    )
    sessions.sink("sessions out")


@case([{**ZEROS[0], "v": 0}, *ZEROS], (1, 3))
def records_of_any_form_beside_rows_that_fail(s: Sources) -> None:
    """What a function returns takes the declared form, whatever the rows around it are."""

    def mixed(total: int, row: Any) -> tuple[int, Any]:
        result = {"x": total, "k": row.k}
        return total + 6 // row.v, result if row.v < 3 else (total, row.k)

    stream = s().key_by("k").scan(mixed, 0, schema={"x": int, "k": int}, on_error="skip")
    stream.map(lambda r: (r.x, r.k)).sink("out")


@case(ZEROS)
def rows_of_another_shape_are_skipped_before_they_change_anything(s: Sources) -> None:
    def shaped(total: int, row: Any) -> tuple[int, Any]:
        return total + 1, {"x": total} if row.v else {"y": total}

    scanned = s().key_by("k").scan(shaped, 0, schema={"x": int}, name="shaped", on_error="dead_letter")
    scanned.map(lambda r: r.x).sink("out")
    scanned.errors.map(lambda e: (e.error, e.row)).sink("errors")


@case(EVENTS)
def reduce_to_declared_records(s: Sources) -> None:
    """The accumulated value has the form that the function's result is declared to have."""

    def larger(a: Any, b: Any) -> Any:
        return {"t": a.t, "k": a.k, "v": max(a.v, b.v)}

    stream = s(time="t")
    fields = {"t": int, "k": int, "v": int}
    stream.key_by("k").reduce(larger, schema=fields).map(lambda r: (r.k, r.v)).sink("out")
    stream.window(6).reduce(larger, schema=fields).map(lambda r: (r.t, r.v)).sink("windows out")


class Touchy(Process):
    """Fail on some rows and on some timers."""

    def on_row(self, row: Any, context: ProcessContext) -> None:
        context.state = (context.state or 0) + row.v
        context.set_timer(row.t + 4)
        context.emit(("row", row.t))
        if row.v == 0:
            raise ValueError(f"row {row.t}")

    def on_timer(self, time: Any, context: ProcessContext) -> None:
        context.emit(("timer", time))
        context.state = 0
        if time % 3 == 0:
            raise ValueError(f"timer {time}")


@case(ZEROS)
def a_process_that_fails_now_and_then(s: Sources) -> None:
    touchy = s(time="t").key_by("k").process(Touchy, on_error="dead_letter")
    touchy.sink("out")
    touchy.errors.map(lambda e: (e.error, e.row)).sink("errors")


@case(ZEROS, fails=True)
def fails_in_a_map(s: Sources) -> None:
    s().map(inverse, name="inv").sink("out")


@case(ZEROS, fails=True)
def fails_in_a_scan(s: Sources) -> None:
    s().key_by("k").scan(inverse_sum, 0, name="inv").sink("out")


@case(ZEROS, (20,), fails=True)
def fails_in_several_places(s: Sources) -> None:
    stream = s(time="t")
    stream.filter(lambda r: r.t > 9).map(inverse, name="later").sink("a")
    stream.filter(lambda r: r.t > 5).key_by("k").scan(inverse_sum, 0, name="earlier").sink("b")
    stream.window(20).apply(lambda w, rows: 1 / 0, name="latest").sink("c")


@case(ZEROS, fails=True)
def fails_when_a_window_closes(s: Sources) -> None:
    s(time="t").key_by("k").window(6).apply(lambda w, rows: 1 / min(r.v for r in rows), name="close").sink("out")


@case(EVENTS, fails=True)
def fails_where_a_value_does_not_fit(s: Sources) -> None:
    s().map(lambda r: {"v": r.v if r.v < 8 else f"{r.v}"}, schema={"v": int}, name="odd").sink("out")


@case([{"n": n} for n in (1, 2, 5, 4, 6, 7)], (3,), fails=True)
def fails_where_order_by_goes_back(s: Sources) -> None:
    s(order_by="n").sink("out")


@case(EVENTS, fails=True)
def fails_where_a_key_has_no_encoding(s: Sources) -> None:
    s().key_by(lambda r: frozenset([r.v])).aggregate(n=agg.count(), name="count").sink("out")


@case([1, 7, "a", 3, "b"], fails=True)
def fails_where_a_key_has_no_range(s: Sources) -> None:
    s().key_by(lambda k: k, ranges=[2, 5]).scan(lambda n, _: (n + 1, n), 0, name="count").sink("out")
