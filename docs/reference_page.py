"""Write `reference.md` from the docstrings, with an example for each name: `python docs/reference_page.py`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import penstock as ps
from penstock import lab, testing

PAGE = Path(__file__).with_name("reference.md")
EXAMPLES = Path(__file__).with_name("reference_examples.py")
INTRODUCTION = """\
# Reference

Every public name, with what its docstring says and a few lines that run. [Operators](operators.md) says exactly what
each operator means, [options](options.md) what `ps.run`, `ps.Spark` and `ps.Threads` take. This page is made from
the docstrings, by `python docs/reference_page.py`; the examples are in `docs/reference_examples.py`.

What the examples share:

```python
"""
STAGES = "Each of these is a method of a stream, too: `stream.map(f)` is `stream >> ps.map(f)`."
SECTIONS: list[tuple[str, str, str, list[str]]] = [
    (
        "Flows and streams",
        "",
        "ps",
        ["Flow", "Stream", "KeyedStream", "WindowedStream", "Record", "DeadLetter", "Window"],
    ),
    ("Stages", STAGES, "ps", []),
    ("Aggregates", "For `aggregate`, of a key or of a window.", "ps.agg", []),
    ("Sinks", "", "ps.write", []),
    ("Sources", "", "ps.read", []),
    (
        "Operators of your own",
        "",
        "ps",
        ["Process", "ProcessContext", "Coroutine", "CoroutineContext", "operate", "feedback"],
    ),
    ("The library", "Operators that wait for rows of several ports, for `ps.operate`.", "ps.library", []),
    ("Running", "", "ps", ["run", "start", "Run", "Spark", "Threads", "Sequential"]),
    (
        "State",
        "What is kept of a flow, read from its checkpoint alone.",
        "ps.state",
        ["epochs", "operators", "values", "read", "shards", "compare"],
    ),
    ("Errors", "", "ps", []),
    ("Testing", "", "penstock.testing", []),
    ("What the papers compare with", "", "lab", []),
]
HOMES: dict[str, Any] = {
    "ps": ps,
    "ps.agg": ps.agg,
    "ps.read": ps.read,
    "ps.write": ps.write,
    "ps.library": ps.library,
    "ps.state": ps.state,
    "penstock.testing": testing,
    "lab": lab,
}
PARTS = {"agg", "library", "read", "state", "write"}


def names_of(home: str, title: str, given: list[str]) -> list[str]:
    """Return the names of a section: those that are given, or all of a module that no other section has."""
    if given:
        return given
    if home != "ps":
        module = HOMES[home]
        listed = getattr(module, "__all__", None) or dir(module)
        return [name for name in listed if not name.isupper() and getattr(ps, name, None) is not getattr(module, name)]
    named = {name for _, _, where, names in SECTIONS for name in names if where == "ps"} | PARTS
    rest = [name for name in ps.__all__ if name not in named]
    return [name for name in rest if name.endswith("Error") == (title == "Errors")]


def examples() -> dict[str, str]:
    """Return the lines for each name, by the comments that name them; "" is what all share."""
    parts = re.split(r"^# -- (\S+)\n", EXAMPLES.read_text(), flags=re.MULTILINE)
    shared = parts[0].partition("\n")[2].strip("\n") + "\n"
    return {"": shared, **dict(zip(parts[1::2], (part.strip("\n") + "\n" for part in parts[2::2]), strict=True))}


def page() -> str:
    """Return the whole page."""
    known = examples()
    lines = [INTRODUCTION + known.pop("").rstrip("\n"), "```", ""]
    for title, words, home, given in SECTIONS:
        lines += [f"## {title}", "", *([words, ""] if words else [])]
        for name in names_of(home, title, given):
            whole = f"{home}.{name}"
            lines += [*entry(whole, getattr(HOMES[home], name)), "```python", known.pop(whole).rstrip("\n"), "```", ""]
    assert not known, f"examples of names that are gone: {sorted(known)}"
    return "\n".join(lines).rstrip("\n") + "\n"


def entry(name: str, thing: Any) -> list[str]:
    """Return what is said of one name: how it is called, its docstring, and the methods of a class."""
    lines = [f"### `{name}`", "", f"`{name.rpartition('.')[2]}{signature(thing)}`", "", told(thing), ""]
    for method, found in vars(thing).items() if inspect.isclass(thing) else ():
        if method.startswith("_") or not (inspect.isfunction(found) or isinstance(found, property)):
            continue
        how = "" if isinstance(found, property) else signature(found)
        lines.append(f"- `{method}{how}`: {told(found).partition(chr(10) * 2)[0].replace(chr(10), ' ')}")
    return [*lines, ""] if lines[-1] else lines


def told(thing: Any) -> str:
    """Return a docstring as a paragraph of the page."""
    return inspect.getdoc(thing) or ""


def signature(thing: Any) -> str:
    """Return how something is called; what is made of options only says so."""
    if not callable(thing):
        return ""
    if inspect.isclass(thing) and (issubclass(thing, Exception) or thing in (ps.Spark, ps.Threads, ps.Sequential)):
        return ""
    if thing in (ps.run, ps.start):
        return "(flow, *, on=ps.Spark(), ...)"
    found = inspect.signature(thing)
    if "P.args" in str(found):
        return "(...)"
    given = [each for each in found.parameters.values() if each.name != "self"]
    kept = [each.replace(annotation=inspect.Parameter.empty) for each in given]
    return str(found.replace(parameters=kept, return_annotation=inspect.Signature.empty)).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
