"""What comes out does not wait: workers look after what they sent down, and rows that come seldom go by themselves."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.plan.plan import make_plan
from penstock.threads.engine import LocalEngine, LocalOptions
from penstock.threads.levers import CALM_POLLS, FED_POLLS, FIRST_LOOK, FIRST_ROWS, PIECES, pieces
from penstock.threads.settings import Settings
from penstock.threads.stations import SOON

from ..patience import PATIENCE
from .support import wait_for

ROWS = 8


class Rows:
    """Rows, the first of which takes until all are in the flow; each takes longer than a worker may not look around."""

    def __init__(self) -> None:
        self.all_in, self.now, self.done = threading.Event(), 0.0, 0

    def __iter__(self) -> Iterator[dict[str, int]]:
        yield from ({"v": number} for number in range(ROWS))
        self.all_in.set()

    def clock(self) -> float:
        return self.now

    def work(self, row: Any) -> int:
        assert self.all_in.wait(PATIENCE)
        self.now += 2 * SOON
        self.done += 1
        return int(row.v)


@pytest.mark.parametrize("keyed", [False, True])
def test_what_is_done_does_not_wait_below_for_the_end_of_a_quantum(keyed: bool) -> None:
    rows, ahead = Rows(), list[int]()
    flow = ps.Flow("soon")
    source = flow.source("in", ps.read.items(rows, schema={"v": int}))
    if keyed:
        made = source.key_by("v").scan(lambda state, row: (rows.work(row), row.v), 0, name="work")
    else:
        made = source.map(rows.work, name="work")
    # Not a sink, which the worker of an operator runs, too.
    below = made.key_by(lambda v: v).scan(lambda state, v: (v, v), 0, name="below")
    below.sink("out", ps.write.callback(lambda out, _: ahead.extend(rows.done - 1 - row for row in out)))
    settings = Settings(workers=1, quantum=100 * SOON)
    LocalEngine(make_plan(flow), LocalOptions(1, settings=settings), clock=rows.clock).run()
    assert len(ahead) == ROWS
    assert max(ahead) <= 1  # the row that had waited longer than the output


@pytest.mark.parametrize(("batch_rows", "first"), [(None, [1] * FIRST_LOOK), (FIRST_ROWS, [FIRST_ROWS])])
def test_rows_that_come_after_nothing_do_not_wait_for_each_other(
    tmp_path: Path, batch_rows: int | None, first: list[int]
) -> None:
    """Unless the user says how many go together."""
    assert FIRST_ROWS == PIECES  # a piece is a row
    watched, sizes = tmp_path / "in", list[int]()
    watched.mkdir()
    flow = ps.Flow("calm")
    flow.source("in", ps.read.json(str(watched), schema={"v": int}, follow=True)).sink(
        "out", ps.write.callback(lambda rows, _: sizes.append(len(rows)))
    )
    engine = LocalEngine(make_plan(flow), LocalOptions(batch_rows))
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        wait_for(lambda: engine.statistics().waited > 0)
        (tmp_path / "rows").write_text("".join(json.dumps({"v": v}) + "\n" for v in range(FIRST_ROWS)))
        (tmp_path / "rows").rename(watched / "rows.json")
        wait_for(lambda: sum(sizes) == FIRST_ROWS)
    finally:
        engine.stop()
        thread.join()
    assert sizes[:FIRST_LOOK] == first  # then the engine knows what rows cost


def test_rows_that_wait_for_their_key_keep_no_row_from_an_idle_worker(tmp_path: Path) -> None:
    """The first row of "slow" ends when the one of "quick" has come, which comes after as many as there are workers."""
    watched, quick, out = tmp_path / "in", threading.Event(), list[str]()
    watched.mkdir()

    def work(count: int, row: Any) -> tuple[int, str]:
        assert row.key == "quick" or quick.wait(PATIENCE)
        if row.key == "quick":
            quick.set()
        return count + 1, row.key

    flow = ps.Flow("keys")
    source = flow.source("in", ps.read.json(str(watched), schema={"key": str}, follow=True))
    source.key_by("key").scan(work, 0).sink("out", ps.write.callback(lambda rows, _: out.extend(rows)))
    engine = LocalEngine(make_plan(flow), LocalOptions(settings=Settings(workers=2)))
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        for number, key in enumerate(("slow", "slow", "quick")):
            wait_for(lambda before=number: engine.element.submitted >= before)
            (tmp_path / "rows").write_text(json.dumps({"key": key}) + "\n")
            (tmp_path / "rows").rename(watched / f"{number}.json")
        wait_for(lambda: len(out) == 3)
    finally:
        engine.stop()
        thread.join()
    assert out == ["slow", "slow", "quick"]


def test_batches_grow_step_by_step_where_the_flow_does_not_keep_up() -> None:
    assert pieces(0) == pieces(CALM_POLLS) == PIECES
    assert [pieces(CALM_POLLS + more) for more in (1, 2)] == [PIECES // 2, PIECES // 4]
    assert pieces(FED_POLLS) == 1
    assert pieces(FED_POLLS - 1) == 2
