"""Check that controllers are pure: what they import, and that they read neither clock nor chance."""

import ast
import sys
from pathlib import Path

import penstock.elastic
import penstock.lab.sim

ELASTIC, SIM = (Path(str(package.__file__)).parent for package in (penstock.elastic, penstock.lab.sim))


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(str(node.module))
    return found


def test_elastic_stands_on_the_standard_library_and_numpy() -> None:
    forbidden = {"time", "datetime", "random", "secrets", "threading", "asyncio", "multiprocessing", "os"}
    for path in ELASTIC.glob("*.py"):
        for name in imports(path):
            top = name.split(".")[0]
            assert top not in forbidden, (path.name, name)
            allowed = top in sys.stdlib_module_names or top == "numpy"
            assert allowed or name.startswith(("penstock.elastic", "penstock.order", "penstock.statistics")), (
                path.name,
                name,
            )


def test_the_simulator_imports_no_engine() -> None:
    for path in SIM.rglob("*.py"):
        for name in imports(path):
            if name.startswith("penstock.threads.policies"):
                continue  # the same code, filled by the simulator
            assert not name.startswith(("penstock.threads", "penstock.spark", "pyspark", "time", "threading")), (
                path.name,
                name,
            )
