"""The import rule: which part may know which other, read from the source of every module.

`order`, `policies` and `elastic` stand on the standard library, NumPy and each other; `pe` stands on those and on the
core; `local`, `spark` and `sim` stand above and never import each other; only `spark` imports pyspark, and
`import penstock` does not load it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src"
PACKAGE = ROOT / "penstock"
PURE = {"order", "policies", "elastic"}
ENGINES = {"local", "spark", "sim"}
CORE = {
    "checks",
    "drawing",
    "errors",
    "flow",
    "graph",
    "hints",
    "ingress",
    "keys",
    "operators",
    "plan",
    "positions",
    "ranges",
    "read",
    "reports",
    "rows",
    "sequential",
    "stages",
    "timing",
    "write",
}
"""What a flow is and means, and how its rows come in: below every engine."""


def module_name(path: Path) -> str:
    """Return the dotted name of a source file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    """Return the dotted names that a module imports, wherever in it, but for those that only a type checker sees."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    return names_in(ast.parse(path.read_text()), package)


def names_in(node: ast.AST, package: str) -> set[str]:
    """Return the dotted names that a piece of code in a package imports."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return set().union(*(names_in(child, package) for child in node.orelse))
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        return {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return set().union(*(names_in(child, package) for child in ast.iter_child_nodes(node)))


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TARGETS = {name: {found for found in imports(path) if found != "penstock"} for name, path in MODULES.items()}


def part(name: str) -> str:
    """Return the part of Penstock that a module is in: its directory, or its own name at the top."""
    return [*name.split("."), ""][1]


def parts_of(name: str) -> set[str]:
    """Return the other parts that a module imports."""
    return {part(found) for found in TARGETS[name] if found.startswith("penstock.")} - {part(name)}


def outside(name: str) -> set[str]:
    """Return the distributions that a module imports, the standard library left out."""
    tops = {found.split(".")[0] for found in TARGETS[name]}
    return tops - set(sys.stdlib_module_names) - {"penstock", "__future__"}


def inside(*parts: str) -> list[str]:
    return [name for name in MODULES if part(name) in parts]


@pytest.mark.parametrize("name", inside(*PURE))
def test_the_pure_parts_know_only_each_other_and_numpy(name):
    assert outside(name) <= {"numpy"}
    assert parts_of(name) <= PURE


@pytest.mark.parametrize("name", inside("pe"))
def test_pe_stands_on_the_pure_parts_and_the_core(name):
    assert parts_of(name) <= PURE | CORE
    assert outside(name) <= {"numpy", "pyarrow"}


@pytest.mark.parametrize("name", inside(*ENGINES))
def test_engines_do_not_know_each_other(name):
    assert not parts_of(name) & ENGINES


@pytest.mark.parametrize("name", sorted(set(MODULES) - set(inside("spark"))))
def test_only_spark_imports_pyspark(name):
    assert not outside(name) & {"pyspark", "py4j"}


@pytest.mark.parametrize("name", inside(*CORE))
def test_the_core_knows_no_engine(name):
    """But for the one question that only Spark can answer, asked when the source is a DataFrame."""
    known = {"penstock.read": {"spark"}}
    assert not parts_of(name) & (ENGINES | {"pe"} | PURE) - known.get(name, set())


def test_the_front_door_only_re_exports():
    body = ast.parse(MODULES["penstock"].read_text()).body
    plain = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
    assert [ast.unparse(node)[:60] for node in body if not isinstance(node, plain)] == []


def test_import_penstock_loads_neither_pyspark_nor_pandas_nor_the_page():
    unwanted = {"pyspark", "py4j", "pandas", "starlette", "uvicorn", "penstock.dashboard"}
    code = f"import sys, penstock; print(sorted({unwanted} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_reading_of_imports_sees_all_forms():
    """The rule is worth no more than this."""
    code = """
import a.b
from penstock import read
from . import near
from ..flow import Flow
def f():
    import hidden
if TYPE_CHECKING:
    import unseen
"""
    found = names_in(ast.parse(code), "penstock.pe")
    assert {"a.b", "penstock.read", "penstock.pe.near", "penstock.flow", "hidden"} <= found
    assert "unseen" not in found
    assert len(MODULES) > 30
