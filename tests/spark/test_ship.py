"""What reaches the workers, and what a start costs them and the driver."""

from __future__ import annotations

import gc
import subprocess
import sys
import sysconfig
import tempfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.plan.plan import make_plan
from penstock.spark import session, ship

from ..patience import PATIENCE

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


def test_two_runs_that_start_at_once_zip_the_same_modules(tmp_path, monkeypatch):
    """Neither takes the other's unfinished file for its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    module = tmp_path / "module.py"
    module.write_text(MODULE)
    both, write = threading.Barrier(2, timeout=PATIENCE), zipfile.ZipFile.writestr

    def together(archive: zipfile.ZipFile, *arguments: Any) -> None:
        both.wait()
        write(archive, *arguments)

    monkeypatch.setattr(zipfile.ZipFile, "writestr", together)
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(ship._zip_modules, {"module.py": module}) for _ in range(2)]
        path, again = (each.result() for each in made)
    assert again == path
    assert zipfile.ZipFile(path).read("module.py").decode() == MODULE
    assert [each.name for each in Path(path).parent.iterdir()] == [Path(path).name]


def test_what_was_zipped_is_not_read_again_until_it_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    module, read, asked = tmp_path / "module.py", Path.read_bytes, list[str]()
    monkeypatch.setattr(Path, "read_bytes", lambda path: asked.append(path.name) or read(path))
    zips = []
    for code in (MODULE, MODULE, MODULE + "\n"):
        if not module.exists() or module.read_text() != code:
            module.write_text(code)
        zips.append(ship._zip_modules({"module.py": module}))
    assert asked == ["module.py"] * 2
    assert zips[0] == zips[1] != zips[2]
    assert zipfile.ZipFile(zips[2]).read("module.py").decode() == MODULE + "\n"
    Path(zips[2]).unlink()  # as who cleans the directory of temporary files
    assert ship._zip_modules({"module.py": module}) == zips[2]
    assert Path(zips[2]).exists()


def test_penstock_itself_is_read_once(monkeypatch):
    first = ship._zip_penstock()
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} is read again"))
    assert ship._zip_penstock() == first
    names = zipfile.ZipFile(first).namelist()
    assert {"penstock/__init__.py", "penstock/py.typed", "penstock/spark/ship.py"} < set(names)
    assert not any("__pycache__" in name for name in names)
    assert "penstock/spark/ship.pyc" in names


FAILING = """
import sys
sys.path.insert(0, sys.argv[1])
import penstock as ps

def add(total, row):
    return total + 1 / row.n, total

flow = ps.Flow("f")
flow.source("in", [{"n": 1}, {"n": 0}]).key_by("n").scan(add, 0.0).sink("out")
try:
    ps.run(flow, on=ps.Threads())
except ps.OperatorError as error:
    print(ps.__file__, error.trace, sep="\\n")
"""


def test_errors_leave_out_what_was_compiled_elsewhere(tmp_path):
    """What is in the zip says of itself where it was compiled, and that is not where the zip is."""
    zipped = ship._zip_penstock()
    (tmp_path / "failing.py").write_text(FAILING)
    command = [sys.executable, str(tmp_path / "failing.py"), zipped]
    file, *trace = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert file == f"{zipped}/penstock/__init__.pyc"
    assert "in add" in trace[0]
    assert len([line for line in trace if "File" in line]) == 1, "the function's line, and no line of Penstock's"


@pytest.mark.spark
def test_what_a_worker_has_loaded_is_not_searched_for_cycles_after_each_task(spark):
    def put_aside(n: int) -> int:
        return gc.get_freeze_count()

    flow = ps.Flow("f")
    flow.source("in", list(range(40))).map(put_aside, name="put aside").sink("out")
    run = ps.run(flow, on=ps.Spark(spark, tasks=2, epoch_rows=4))
    assert run.results["out"][-1] > 10_000  # a worker puts aside what it has after its first task


@pytest.mark.spark
def test_who_joins_a_session_asks_nothing_of_java(spark, monkeypatch):
    monkeypatch.setattr(session, "check_java", lambda: pytest.fail("it runs already"))
    assert session.make_session("another") is spark
