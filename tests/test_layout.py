"""The import rule: which room may know which other, read from the source of every module.

`order` and `elastic` stand on the standard library, NumPy, each other and `statistics`, plain data, and so do the
policies of `threads`; `rows` knows no other room; `kernels` and `store` stand on the core; `threads` and `spark` stand
above and never import each other; nothing but `cli` imports `lab`; only `spark` imports pyspark, and `import penstock`
does not load it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src"
PACKAGE = ROOT / "penstock"
PURE = {"order", "elastic"}
ENGINES = {"threads", "spark"}
CORE = {
    "annotated",
    "clock",
    "connectors",
    "errors",
    "flow",
    "logs",
    "operators",
    "plan",
    "rows",
    "sequential",
    "statistics",
    "steps",
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


@cache
def targets(name: str) -> frozenset[str]:
    """Return what a module imports."""
    return frozenset(imports(MODULES[name]) - {"penstock"})


def part(name: str) -> str:
    """Return the part of Penstock that a module is in: its directory, or its own name at the top."""
    return [*name.split("."), ""][1]


def parts_of(name: str) -> set[str]:
    """Return the other parts that a module imports."""
    return {part(found) for found in targets(name) if found.startswith("penstock.")} - {part(name)}


def outside(name: str) -> set[str]:
    """Return the distributions that a module imports, the standard library left out."""
    tops = {found.split(".")[0] for found in targets(name)}
    return tops - set(sys.stdlib_module_names) - {"penstock", "__future__"}


def inside(*parts: str) -> list[str]:
    return [name for name in MODULES if part(name) in parts]


def against(names: Iterable[str], rule: Callable[[str], Collection[str]]) -> dict[str, Collection[str]]:
    """Return what modules have that is against a rule."""
    found = {name: rule(name) for name in names}
    assert found
    return {name: each for name, each in found.items() if each}


def test_the_pure_rooms_know_only_each_other_and_numpy():
    assert against(inside(*PURE), lambda name: outside(name) - {"numpy"}) == {}
    assert against(inside(*PURE), lambda name: parts_of(name) - PURE - {"statistics"}) == {}


def test_policies_are_pure():
    policies = [name for name in MODULES if name.startswith("penstock.threads.policies")]
    allowed = ("penstock.threads.policies", "penstock.statistics")
    assert against(policies, lambda name: outside(name) - {"numpy"}) == {}
    assert (
        against(
            policies,
            lambda name: [
                each for each in targets(name) if each.startswith("penstock.") and not each.startswith(allowed)
            ],
        )
        == {}
    )


def test_rows_know_no_other_room():
    assert against(inside("rows"), lambda name: parts_of(name) - {"errors"}) == {}


def test_what_happened_is_told_by_plain_data():
    assert parts_of("penstock.statistics") | outside("penstock.statistics") == set()


def test_kernels_stand_on_the_core():
    assert against(inside("kernels"), lambda name: parts_of(name) - PURE - CORE) == {}
    assert against(inside("kernels"), lambda name: outside(name) - {"numpy", "pyarrow"}) == {}


def test_what_is_kept_stands_on_the_core_and_the_form_of_state():
    assert against(inside("store"), lambda name: parts_of(name) - CORE - {"kernels"}) == {}
    assert against(inside("store"), lambda name: outside(name) - {"pyarrow", "obstore"}) == {}


def test_engines_do_not_know_each_other():
    assert against(inside(*ENGINES), lambda name: parts_of(name) & ENGINES) == {}


def test_only_the_command_line_knows_what_the_papers_compare_with():
    assert against(sorted(set(MODULES) - set(inside("cli", "lab"))), lambda name: parts_of(name) & {"lab"}) == {}


def test_only_spark_imports_pyspark():
    assert against(sorted(set(MODULES) - set(inside("spark"))), lambda name: outside(name) & {"pyspark", "py4j"}) == {}


def test_the_core_knows_no_engine():
    """But for the one question that only Spark can answer, asked when the source is a DataFrame."""
    known = {"penstock.connectors.frame": {"spark"}}
    others = ENGINES | {"kernels", "lab"} | PURE
    assert against(inside(*CORE), lambda name: (parts_of(name) & others) - known.get(name, set())) == {}


MEASURING = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}
OWN_CLOCKS = {"clock", "cli", "lab"}
"""Those who show people how long something took, and what stands for users' code, have the real time."""
TIME_OF_DAY = {
    "penstock.store.lease",
    "penstock.store.objects",
    "penstock.dashboard.sampling",
    "penstock.dashboard.recorder",
    "penstock.store.rolling",
    "penstock.otel",
}
"""What other processes, files or people tell the time by: never stretched."""


def clocks_read(code: ast.AST) -> set[str]:
    """Return the clocks of the standard library that a piece of code reads."""
    found = set()
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
            found.add(node.attr.removesuffix("_ns"))
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            found |= {alias.name.removesuffix("_ns") for alias in node.names}
    return found & MEASURING


def test_durations_are_measured_with_the_clocks_of_one_module():
    """So that the suite can stretch them all: see `penstock.clock`."""

    def measures(name: str) -> set[str]:
        return clocks_read(ast.parse(MODULES[name].read_text())) - ({"time"} if name in TIME_OF_DAY else set())

    assert against(sorted(set(MODULES) - set(inside(*OWN_CLOCKS))), measures) == {}


def test_the_reading_of_clocks_sees_all_forms():
    code = """
from time import perf_counter_ns, sleep
def f(clock=time.monotonic):
    return time.time(), time.sleep(1), time.thread_time()
"""
    assert clocks_read(ast.parse(code)) == {"perf_counter", "monotonic", "time", "thread_time"}


def test_tests_share_nothing_through_each_other():
    """What several files need is in a file without tests: one that is imported is not run alone, and not last."""
    tests = Path(__file__).parent

    def shares(path: str) -> list[str]:
        package = "tests." + ".".join(Path(path).relative_to(tests).parts[:-1])
        found = names_in(ast.parse(Path(path).read_text()), package)
        return [name for name in found if name.startswith("tests.") and ".test_" in name]

    assert against(map(str, sorted(tests.rglob("*.py"))), shares) == {}


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
