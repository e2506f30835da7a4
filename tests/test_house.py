"""What makes the house easy to live in, read from its source: sizes, names, and who may look at whose parts."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "penstock"
LAB = {"lab"}
"""Papers' experiments and workloads: their names are the papers', and their rows have the fields that they have."""
FILES = sorted(PACKAGE.rglob("*.py"))
HOUSE = [path for path in FILES if path.relative_to(PACKAGE).parts[0] not in LAB]

MOST_LINES = 450
MOST_FUNCTION_LINES = 80
MOST_POSITIONAL = 6
MOST_TWICE = 10
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def named(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def against(paths: Iterable[Path], rule: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """Return what is against a rule, by file."""
    found = {named(path): list(rule(path)) for path in paths}
    assert found
    return {name: each for name, each in found.items() if each}


def test_a_file_fits_a_sitting():
    assert against(FILES, lambda path: path.read_text().splitlines()[MOST_LINES:]) == {}


def test_a_function_fits_a_screen():
    def long(path: Path) -> Iterator[str]:
        functions = [node for node in ast.walk(tree(path)) if isinstance(node, Function)]
        return (node.name for node in functions if node.end_lineno - node.lineno >= MOST_FUNCTION_LINES)

    assert against(FILES, long) == {}


def positional(node: ast.ClassDef) -> int:
    """Return how many positional arguments a class is made with, by its own fields or `__init__`."""
    for each in node.body:
        if isinstance(each, Function) and each.name == "__init__":
            return len([*each.args.posonlyargs, *each.args.args]) - 1
    how = " ".join(ast.unparse(each) for each in (*node.decorator_list, *node.bases))
    if "kw_only=True" in how or not ("dataclass" in how or "NamedTuple" in how):
        return 0
    count = 0
    for each in node.body:
        if isinstance(each, ast.AnnAssign):
            words = ast.unparse(each)
            if "KW_ONLY" in words:
                break
            count += not any(word in words for word in ("ClassVar", "kw_only=True", "init=False"))
    return count


def test_what_is_made_of_much_is_made_of_names():
    def large(path: Path) -> Iterator[str]:
        classes = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)]
        return (node.name for node in classes if positional(node) > MOST_POSITIONAL)

    assert against(HOUSE, large) == {}


COMMANDS = {"add_arguments", "run"}
"""What each command of the command line has."""
FORMATS = {"csv", "json", "parquet", "frame", "memory"}
"""What `ps.read` and `ps.write` both have."""
AS_METHODS = {"distinct", "drop", "rename", "select", "count"}
"""What users write in two ways: as a method of a stream and as a stage behind `>>`, or as an aggregate."""


def test_few_names_stand_for_two_things():
    places: dict[str, list[str]] = defaultdict(list)
    for path in HOUSE:
        for node in tree(path).body:
            if isinstance(node, (ast.ClassDef, *Function)) and not node.name.startswith("_"):
                places[node.name].append(named(path))
    twice = {name: where for name, where in places.items() if len(where) > 1}
    for name in COMMANDS | FORMATS | AS_METHODS:
        twice.pop(name, None)
    assert len(twice) <= MOST_TWICE, twice


NAMED_TUPLE = {"_fields", "_replace", "_asdict", "_make"}
"""Public in spite of their names."""
ELSEWHERE = {"os", "sys", "argparse", "super()", "pc.Expression"}
"""Of the standard library, and of Arrow, which makes expressions of functions by no other way."""


def private_parts(tree: ast.AST) -> Iterator[str]:
    """Yield the private attributes of others that a module looks at: what its own classes have is its own."""
    own = {each for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in written_in(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            of = ast.unparse(node.value)
            if of not in ("self", "cls", *ELSEWHERE) and node.attr not in own | NAMED_TUPLE:
                yield ast.unparse(node)


def written_in(node: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes that a class gives itself."""
    for each in ast.walk(node):
        if isinstance(each, Function):
            yield each.name
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            if isinstance(each.value, ast.Name) and each.value.id in ("self", "cls"):
                yield each.attr
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Attribute):
            yield each.target.attr


def test_nobody_looks_at_the_private_parts_of_others():
    """PySpark's are another matter: what the Spark engine needs of them is in docs/decisions."""
    theirs = ("_jvm", "_jsc", "_jdf", "_jrdd", "_jsq", "_gateway", "_jsparkSession")

    def looks(path: Path) -> Iterator[str]:
        allowed = theirs if path.parent.name == "spark" else ()
        return (each for each in private_parts(tree(path)) if not each.endswith(allowed))

    assert against(FILES, looks) == {}


def test_engines_probe_nothing():
    """They ask the interpreter and what users wrote, never each other."""
    asked = ("main", "os", "row", "value", "self._operator")

    def probes(path: Path) -> Iterator[str]:
        calls = (node for node in ast.walk(tree(path)) if isinstance(node, ast.Call))
        found = (node for node in calls if ast.unparse(node.func) == "hasattr")
        return (ast.unparse(node) for node in found if ast.unparse(node.args[0]) not in asked)

    assert against([path for path in HOUSE if path.parent.name in ("threads", "spark", "kernels")], probes) == {}


def test_the_reading_of_code_sees_what_it_should():
    code = ast.parse("""
class A:
    x: int
    def __init__(self, a, b):
        self._own = 1
    def f(self, other, engine):
        return other._own, engine._theirs, row._fields, os._exit
@dataclass
class B:
    a: int
    b: ClassVar[int] = 1
    _: KW_ONLY
    c: int
""")
    assert list(private_parts(code)) == ["engine._theirs"]
    assert [positional(node) for node in code.body] == [2, 1]
