"""What commands are told: the flow that a Python file defines, and flags made of options.

The file is loaded as the module of its own name, found in its own directory: then its classes are pickled as
`name.Class` and not as `__main__.Class`, and the engine ships the file to the workers like any other module.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from penstock.annotated import Names, Option, options_of
from penstock.cli import UsageError
from penstock.errors import FlowError
from penstock.flow import Flow, Stream
from penstock.lab import NAMES
from penstock.lab.workloads.catalogue import WORKLOADS, find, make_workload, read_options
from penstock.run import LOADING


def add_flags(parser: argparse._ActionsContainer, options: Iterable[Option]) -> None:
    """Add the flag of each option that has one; those that are not given do not appear among the arguments."""
    for option in options:
        names = NAMES.get(option.name, {})
        given: dict[str, Any] = {"dest": option.name, "default": argparse.SUPPRESS, "help": _help(option)}
        if option.kinds == (bool,):
            parser.add_argument(option.flag, action="store_const", const=not option.default, **given)
        elif option.about.flag:
            parser.add_argument(option.flag, type=_reader(option, names), metavar=option.metavar(names), **given)


def _help(option: Option) -> str:
    about = f"turn off: {option.about.help}" if option.default is True else option.about.help
    if option.default and option.default is not True:
        about += f" (default: {option.default})"
    return about.replace("%", "%%")


def _reader(option: Option, names: Names) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            value = option.parse(text, names)
            option.check(value)
        except (ValueError, FlowError):
            raise argparse.ArgumentTypeError(f"{text!r}: give {option.wanted(names)}") from None
        return value

    return read


def as_flags(message: str) -> str:
    """Write a refusal with flags instead of keywords."""
    engines = re.sub(r"on=ps\.(\w+)\([^)]*\)", lambda found: f"--engine {found[1].lower()}", message)
    return re.sub(
        r"""\b([a-z_]+)=(?:["']([^"']*)["']|(\w+))?""",
        lambda found: f"--{found[1].replace('_', '-')} {found[2] or found[3] or ''}".rstrip(),
        engines,
    )


def add_target(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Let a command take a flow: of a file, or a workload with its options."""
    parser.add_argument(
        "target",
        metavar="FILE.py[:name] | NAME",
        nargs=nargs,
        help="the file, and the flow in it if it has several; or the name of a workload",
    )
    parser.add_argument(
        "-o",
        "--option",
        dest="workload_options",
        metavar="OPTION=VALUE",
        action="append",
        default=[],
        help="an option of the workload; may be given several times",
    )


def load_target(target: str | None, options: list[str]) -> Flow:
    """Load a file's flow, or make a workload with its options."""
    if target is None:
        raise UsageError("name a file, or a workload; `penstock run --list` lists the workloads")
    if target in WORKLOADS:
        given = dict(_pair(option) for option in options)
        try:
            read_options(target, given)
        except FlowError as error:
            raise UsageError(str(error)) from None
        return make_workload(target, given)
    if options:
        raise UsageError(f"-o is for workloads, and {target} is none; `penstock run --list` lists them")
    if target.isidentifier() or not (target.endswith(".py") or ":" in target or "/" in target):
        raise UsageError(f"there is no workload {target!r}; `penstock run --list` lists them. A file ends with .py")
    return load_flow(target)


def describe_workloads() -> list[str]:
    """Write two lines for each workload: its name and what it is, then its options."""
    lines = []
    for name in sorted(WORKLOADS):
        maker = find(name)
        options = " ".join(f"-o {each.name}={each.default}" for each in options_of(maker).values())
        lines.append(f"{name:24} {(inspect.getdoc(maker) or '').splitlines()[0]}")
        lines.append(f"{'':24} {options or 'no options'}")
    return lines


def _pair(option: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not equals:
        raise UsageError(f"-o {option} has no value; write -o {option}=VALUE")
    return name, value


def load_flow(target: str) -> Flow:
    """Load `FILE.py` or `FILE.py:name`; `name` is a flow, or a function that returns one."""
    file, name = split_target(target)
    module = load_module(file)
    return named_flow(module, file, name) if name else only_flow(module, file)


def split_target(target: str) -> tuple[Path, str | None]:
    """Split `FILE.py:name`; a colon elsewhere belongs to the path."""
    head, colon, tail = target.rpartition(":")
    if colon and tail.isidentifier() and head.endswith(".py"):
        return Path(head), tail
    return Path(target), None


def load_module(file: Path) -> ModuleType:
    """Run a file as a module, with its directory first on the path, as `python FILE.py` has it."""
    if file.suffix != ".py":
        raise UsageError(f"{file} is no Python file; give FILE.py, or FILE.py:name")
    if not file.is_file():
        raise UsageError(f"there is no file {file}")
    file = file.resolve()
    name = file.stem
    if "." in name:
        raise UsageError(f"{file.name} cannot be imported by that name; rename it without the inner dot")
    known = sys.modules.get(name)
    if name in sys.stdlib_module_names or (known is not None and not _is_file(known, file)):
        raise UsageError(f"{file.name} has the name of the module {name!r}, and would hide it; rename the file")
    directory = str(file.parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    LOADING.append(str(file))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        LOADING.pop()
    return module


def only_flow(module: ModuleType, file: Path) -> Flow:
    """Return the one flow of a file: a variable, or else what a function annotated `-> Flow` returns."""
    values = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    flows = {name: value for name, value in values.items() if isinstance(value, Flow)}
    if len({id(flow) for flow in flows.values()}) == 1:
        return next(iter(flows.values()))
    makers = {name: value for name, value in values.items() if not flows and _makes_flow(value, module)}
    if len(makers) == 1:
        return named_flow(module, file, next(iter(makers)))
    names = [*flows, *makers]
    if names:
        choice = "\n".join(f"  penstock run {file}:{name}" for name in names)
        raise UsageError(f"{file} has several flows; name one of them:\n{choice}")
    raise UsageError(
        f"{file} defines no flow; assign a penstock.Flow to a variable, or write a function that returns one "
        f"and name it: {file}:function"
    )


def named_flow(module: ModuleType, file: Path, name: str) -> Flow:
    """Return the flow of a name, calling it if it is a function."""
    if not hasattr(module, name):
        raise UsageError(f"{file} has no {name!r}")
    value = getattr(module, name)
    flow = value() if callable(value) and not isinstance(value, Flow) else value
    if isinstance(flow, Flow):
        return flow
    hint = f"; it is a stream, so end it with .sink(...) and use {name}.flow" if isinstance(flow, Stream) else ""
    what = "returns" if flow is not value else "is"
    raise UsageError(f"{name!r} of {file} {what} a {type(flow).__name__}, not a penstock.Flow{hint}")


def _makes_flow(value: Any, module: ModuleType) -> bool:
    """Tell whether a function of the file says that it returns a flow, and needs no arguments."""
    if not isinstance(value, FunctionType) or value.__module__ != module.__name__:
        return False
    code = value.__code__
    required = code.co_argcount - len(value.__defaults__ or ())
    required += code.co_kwonlyargcount - len(value.__kwdefaults__ or {})
    returns = value.__annotations__.get("return")
    # With `from __future__ import annotations` the annotation is text.
    return required == 0 and (returns is Flow or str(returns).strip("'\"").split(".")[-1] == "Flow")


def _is_file(module: ModuleType, file: Path) -> bool:
    known = getattr(module, "__file__", None)
    return known is not None and Path(known).resolve() == file
