"""What several threads make or find out at once comes to the same for all of them."""

from __future__ import annotations

import threading
from collections.abc import ValuesView
from typing import Any

import pytest

import penstock as ps
from penstock.kernels.shards import FEW_KEYS, Forgetting
from penstock.order.threads import RealThreads
from penstock.plan.plan import Plan, make_plan
from penstock.rows import records as rows
from penstock.rows.chunk import Chunk, row_chunk
from penstock.rows.timing import BEFORE
from penstock.threads.element import Element
from penstock.threads.settings import Settings

from ..patience import PATIENCE


def test_two_threads_that_need_a_record_class_at_once_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made, both = rows.namedtuple, threading.Barrier(2)

    def slowly(*args: Any, **options: Any) -> Any:
        both.wait(PATIENCE)
        return made(*args, **options)

    monkeypatch.setattr(rows, "namedtuple", slowly)
    found: list[type] = []
    threads = [threading.Thread(target=lambda: found.append(rows.record_class(("made", "twice")))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is rows.record_class(("made", "twice"))


def test_a_worker_that_saw_nothing_forgotten_does_not_undo_what_another_one_saw() -> None:
    forgetting = Forgetting()

    class LookedAtByAnother(dict[Any, Any]):
        """States that another worker, whose partition has forgotten a key, looks at in the same moment."""

        def values(self) -> ValuesView[Any]:
            forgetting.look(dict.fromkeys(range(2 * FEW_KEYS)))
            return super().values()

    forgetting.look(LookedAtByAnother.fromkeys(range(FEW_KEYS + 1), 1))
    assert forgetting.seen


def counted(rows: int) -> Plan:
    flow = ps.Flow("counted")
    keyed = flow.source("in", ps.read.items(range(rows), schema=int)).key_by(lambda n: n % 300)
    keyed.scan(lambda count, n: (count + 1, (n, count)), 0, schema={"n": int, "before": int}, name="counted").sink(
        "out"
    )
    return make_plan(flow)


def run_through(element: Element, rows: int, start: int = 0) -> None:
    """Bring the numbers from `start` on in, a thousand in a batch, and wait for all."""
    for first in range(start, start + rows, 1000):
        made = row_chunk(list(range(first, first + 1000)), element.stations["in"].node.types[0])
        assert element.submit({"in": {0: made}}, {"in": BEFORE}, {})
    element.drain()
    assert element.error is None


@pytest.mark.parametrize(("turns", "dicts"), [(True, 1), (False, 5)])
def test_workers_that_run_at_once_do_not_write_to_one_dict(turns: bool, dicts: int) -> None:
    found: list[Any] = []
    element = Element(
        counted(9000),
        lambda header, chunks: found.extend(
            tuple(row) for chunk in chunks for row in (chunk.get_rows() if chunk else ())
        ),
        Settings(workers=1, partitions=5),
        primitives=RealThreads(gil=turns),
    )
    element.start()
    try:
        station = element.stations["counted"]
        run_through(element, 3000)
        assert len(station.state()) == 1  # one worker has no need to tell partitions apart
        element.set_workers(2)
        run_through(element, 3000, start=3000)
        assert len(station.state()) == dicts
        element.set_workers(1)
        run_through(element, 3000, start=6000)
    finally:
        element.close()
    assert found == [(n, n // 300) for n in range(9000)]
    assert sorted(key for states in station.state() for key in states) == list(range(300))
    for number, states in enumerate(station.state() if dicts > 1 else ()):
        assert {station._operator.shard(key, 5) for key in states} == {number}


def test_the_worker_that_makes_rows_looks_whether_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, look = [], Chunk.arrives_as_is

    def watched(self: Chunk) -> bool:
        if self.type is not None and self.type.form == "record":
            looked.append(len(self))
        return look(self)

    monkeypatch.setattr(Chunk, "arrives_as_is", watched)
    element = Element(counted(2000), lambda header, chunks: None, Settings(workers=2, partitions=5))
    element.start()
    try:
        run_through(element, 2000)
    finally:
        element.close()
    assert len(looked) == 10  # each part, and never a whole batch
    assert sum(looked) == 2000


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("readers", [1, 2])
def test_rows_made_of_columns_end_with_who_made_them_unless_others_read_them(workers: int, readers: int) -> None:
    """The thread that brought the columns may sleep, and would keep the rows; made twice they would cost twice."""
    flow = ps.Flow("decoded")
    source = flow.source("in", ps.read.items([{"n": 1}], schema={"n": int}))
    for number in range(readers):
        source.key_by("n").scan(lambda count, row: (count + 1, count), 0, schema=int, name=f"count{number}").sink(
            f"out{number}"
        )
    plan, found = make_plan(flow), list[int]()
    declared = plan.sources[0].types[0]
    assert declared is not None
    rows = [declared.row_class((number,)) for number in range(100)]
    given = row_chunk(rows, declared).only_columns()
    element = Element(
        plan,
        lambda header, chunks: found.extend(len(each.get_rows()) for each in chunks if each is not None),
        Settings(workers=workers),
    )
    element.start()
    try:
        assert element.submit({"in": {0: given}}, {"in": BEFORE}, {})
        element.drain()
    finally:
        element.close()
    assert element.error is None
    assert found == [100] * readers
    assert given.columns is not None
    if readers == 1:
        assert given.rows is None
    elif workers == 1:
        assert given.rows == rows
