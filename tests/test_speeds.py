"""What `make test-speeds` runs is there: it takes too long to be run whole after each change."""

from __future__ import annotations

import pytest

from tests import speeds


def test_all_that_it_names_is_there():
    speeds.check_paths([*speeds.QUICK, *speeds.measuring_rooms()])


def test_rooms_that_measure_are_found_by_what_they_import(tmp_path):
    modules = {
        "spark/one.py": "from penstock.clock import monotonic",
        "threads/models/two.py": "import os\nfrom penstock import clock",
        "flow/three.py": "from penstock.plan.positions import clock_of\nfrom penstock import read",
        "clock.py": "",
        "steps.py": "from penstock.clock import monotonic",
    }
    for name, code in modules.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    assert speeds.measuring_rooms(tmp_path) == ["tests/spark", "tests/threads"]
    assert {"tests/spark", "tests/threads"} < set(speeds.measuring_rooms())


@pytest.mark.parametrize("arguments", [[], ["--quick"]])
def test_what_has_moved_is_said_before_anything_runs(arguments, monkeypatch):
    monkeypatch.setattr(speeds, "QUICK", ["tests/threads/test_engine.py", "tests/gone"])
    monkeypatch.setattr(speeds, "measuring_rooms", lambda: ["tests/gone"])
    monkeypatch.setattr(speeds, "run_tests", lambda *_, **__: pytest.fail("ran"))
    with pytest.raises(SystemExit, match=r"tests/gone not found"):
        speeds.main(arguments)
