"""A flow for each operator that comes with Penstock."""

from __future__ import annotations

import penstock as ps

library = ps.library


ROWS = [{"at": at, "k": at % 2, "v": float(at)} for at in (1, 2, 4, 3, 9, 16)]


TWO = {
    "left": [{"at": at, "k": at % 2} for at in (1, 4, 5)],
    "right": [{"at": at, "k": at % 2} for at in (2, 3, 12)],
}


def until_spent(rows, back):
    passed = ps.operate(library.Gate(is_open=True), rows, back)
    return passed, passed.scan(lambda total, row: (total + row.v, total + row.v), 0.0).map(lambda total: total < 6)


async def _doubled(row):
    return row.at * 2


ONE_INPUT = {
    "sort": lambda s: s.sort(slack=2),
    "late": lambda s: s.window(4).count().late,
    "sliding": lambda s: s.key_by("k").window(ps.sliding(6, every=2)).sum("v"),
    "session": lambda s: s.key_by("k").window(ps.session(3)).aggregate(n=ps.agg.count(), all=ps.agg.collect("at")),
    "count window": lambda s: s.key_by("k").window(ps.count_window(2)).max("v"),
    "apply": lambda s: s.window(8).apply(lambda window, rows: (window.start, [row.at for row in rows])),
    "aggregate": lambda s: s.key_by("k").aggregate(mean=ps.agg.mean("v"), last=ps.agg.last("at")),
    "reduce": lambda s: s.reduce(lambda best, row: row if row.v > best.v else best),
    "flat_scan": lambda s: s.key_by("k").flat_scan(lambda n, row: (n + 1, [(row.at, n)] * n), 0),
    "throttle": lambda s: ps.operate(library.Throttle(1, per=5), s),
    "feedback": lambda s: ps.feedback(until_spent, s),
    "dead letters": lambda s: s.map(lambda row: 1 / (row.at - 4), on_error="dead_letter").errors,
    "async": lambda s: s.map(_doubled),
}


class Answers(ps.Process):
    """Say how long each row of the left waits for one of the right, five at most."""

    def on_left(self, row, context):
        context.state = [*(context.state or []), row.at]
        context.set_timer(row.at + 5)

    def on_right(self, row, context):
        context.emit((context.key, [row.at - asked for asked in context.state or []]))
        context.state = None

    def on_timer(self, time, context):
        context.emit((context.key, "nothing until", time))


TWO_INPUTS = {
    "barrier": lambda a, b: ps.operate(library.Barrier(), a, b),
    "zip": lambda a, b: ps.operate(library.Zip(longest=True), a, b),
    "library merge": lambda a, b: ps.operate(library.Merge("at"), a, b),
    "gate": lambda a, b: ps.operate(library.Gate(lambda row: row.k, hold=True), a, b),
    "switch": lambda a, b: ps.operate(library.Switch(2, lambda row: row.k), a, b),
    "library join": lambda a, b: ps.operate(library.Join("k", lambda x, y: (x.at, y.at)), a, b),
    "join": lambda a, b: a.key_by("k").join(b.key_by("k"), 4, lambda x, y: (x and x.at, y and y.at), how="outer"),
    "interval join": lambda a, b: a.join(
        b, on="k", combine=lambda x, y: (x and x.at, y and y.at), within=2, how="outer"
    ),
    "semi join": lambda a, b: a.join(b, on="k", within=(-2, 3), how="semi"),
    "anti join": lambda a, b: a.join(b, on="k", within=(-2, 3), how="anti"),
    "lasting join": lambda a, b: a.join(b, on="k", combine=lambda x, y: (x and x.at, y and y.at), ttl=3, how="outer"),
    "connect": lambda a, b: a.key_by("k").connect(b.key_by("k"), Answers),
    "merge": lambda a, b: a.merge(b, by="at"),
}
