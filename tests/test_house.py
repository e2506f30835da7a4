"""What makes the house easy to live in, read from its source: sizes, names, and who may look at whose parts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "penstock"
LAB = {"lab", "lab.py", "sim", "workloads", "demo"}
"""Papers' experiments and workloads: their names are the papers', and their rows have the fields that they have."""
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}
HOUSE = [path for path in FILES if path.relative_to(PACKAGE).parts[0] not in LAB]

MOST_LINES = 450
MOST_FUNCTION_LINES = 80
MOST_POSITIONAL = 6
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def named(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_fits_a_sitting(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_function_fits_a_screen(path):
    functions = [node for node in ast.walk(TREES[path]) if isinstance(node, Function)]
    assert [node.name for node in functions if node.end_lineno - node.lineno >= MOST_FUNCTION_LINES] == []


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


@pytest.mark.parametrize("path", HOUSE, ids=named)
def test_what_is_made_of_much_is_made_of_names(path):
    classes = [node for node in ast.walk(TREES[path]) if isinstance(node, ast.ClassDef)]
    assert [node.name for node in classes if positional(node) > MOST_POSITIONAL] == []


@pytest.mark.parametrize("path", [path for path in HOUSE if path.parent.name in ("local", "spark", "pe")], ids=named)
def test_engines_probe_nothing(path):
    """They ask the interpreter and what users wrote, never each other."""
    asked = ("main", "os", "row", "value", "self._operator")
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "hasattr":
            assert ast.unparse(node.args[0]) in asked, ast.unparse(node)


def test_the_reading_of_code_sees_what_it_should():
    tree = ast.parse("""
class A:
    x: int
    def __init__(self, a, b):
        self.a = a
@dataclass
class B:
    a: int
    b: ClassVar[int] = 1
    _: KW_ONLY
    c: int
""")
    assert [positional(node) for node in tree.body] == [2, 1]
