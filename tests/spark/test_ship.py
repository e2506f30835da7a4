"""What reaches the workers, and what a start costs them and the driver."""

from __future__ import annotations

import gc
import sys
import sysconfig
from pathlib import Path

import pytest

import penstock as ps
from penstock.plan import make_plan
from penstock.spark import session, ship

MODULE = "def twice(n):\n    return 2 * n\n"


def test_modules_are_found_and_the_disk_is_asked_about_each_of_them_once(tmp_path, monkeypatch):
    (tmp_path / "shipped_by_a_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import shipped_by_a_test  # type: ignore[import-not-found]

    flow = ps.Flow("f")
    flow.source("in", [1, 2]).map(shipped_by_a_test.twice, name="twice").sink("out")
    packed = ship.pack_plan(make_plan(flow), {})
    found = ship._user_modules(packed)
    assert found == {str(tmp_path.resolve()): {"shipped_by_a_test.py": tmp_path.resolve() / "shipped_by_a_test.py"}}

    asked: list[str] = []
    resolve = Path.resolve
    monkeypatch.setattr(Path, "resolve", lambda path: asked.append(str(path)) or resolve(path))
    monkeypatch.setattr(sysconfig, "get_paths", lambda: pytest.fail("asked again"))
    assert ship._user_modules(packed) == found
    assert len(asked) < 10 < len(sys.modules)


@pytest.mark.spark
def test_what_a_worker_has_loaded_is_not_searched_for_cycles_behind_each_task(spark):
    def put_aside(n: int) -> int:
        return gc.get_freeze_count()

    flow = ps.Flow("f")
    flow.source("in", list(range(4))).map(put_aside, name="put aside").sink("out")
    run = ps.run(flow, spark=spark, tasks=2)
    assert min(run.results["out"]) > 10_000


@pytest.mark.spark
def test_who_joins_a_session_asks_nothing_of_java(spark, monkeypatch):
    monkeypatch.setattr(session, "check_java", lambda: pytest.fail("it runs already"))
    assert session.make_session("another") is spark
