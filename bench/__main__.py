"""List the benchmarks, run one, compare a saved result with a new one, or draw results.

    python -m bench list
    python -m bench run NAME [--json] [--save FILE or DIRECTORY] [--seed N] [options; see: run NAME --help]
    python -m bench compare SAVED [OTHER]
    python -m bench plot SAVED [SAVED ...] [--figures 'NAME*' ...] [--output FILE.png]

`python -m bench NAME` is `run NAME`. `compare` with one file runs its command again.
"""

import argparse
import importlib
import importlib.util
import json
import pkgutil
import shlex
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import bench
from bench import plots, results
from bench.machine import describe
from bench.results import Result, ResultError


def discover() -> dict[str, ModuleType]:
    """Find the benchmarks: every module of this package that has DESCRIPTION, add_arguments and run.

    Helpers lack those names, so a new benchmark is one file dropped into the package.
    """
    found = {}
    for info in pkgutil.iter_modules(bench.__path__):
        module = None if info.ispkg or info.name.startswith("_") else load(info.name)
        if module is not None:
            found[info.name] = module
    return found


def load(name: str) -> ModuleType | None:
    """Import one benchmark, and not those whose imports may turn a GIL on; None where the name is of none."""
    if importlib.util.find_spec(f"bench.{name}") is None:
        return None
    module = importlib.import_module(f"bench.{name}")
    return module if all(hasattr(module, each) for each in ("DESCRIPTION", "add_arguments", "run")) else None


def parser_of(name: str, module: ModuleType) -> argparse.ArgumentParser:
    """Make the parser of one benchmark: the common options, then its own."""
    parser = argparse.ArgumentParser(prog=f"python -m bench run {name}", description=module.DESCRIPTION)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object, last")
    parser.add_argument("--save", type=Path, metavar="PATH", help="write the result to this file, or in this directory")
    parser.add_argument("--seed", type=int, default=1, help="seed of the data and of the bootstrap")
    module.add_arguments(parser)
    return parser


def show(result: dict[str, Any], indent: str = "") -> None:
    """Print a result for a reader, one figure a line."""
    for key, value in result.items():
        if isinstance(value, dict):
            print(f"{indent}{key}:")
            show(value, indent + "  ")
        elif isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            for number, each in enumerate(value, start=1):
                print(f"{indent}{key} {number}:")
                show(each, indent + "  ")
        else:
            print(f"{indent}{key}: {readable(value) if isinstance(value, float) else value}")


def readable(value: float) -> str:
    """Write a number as a reader likes it."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}"


def list_all() -> int:
    """Print the benchmarks, one a line."""
    benchmarks = discover()
    width = max(map(len, benchmarks), default=0)
    for name, module in benchmarks.items():
        print(f"{name:<{width}}  {module.DESCRIPTION}")
    return 0


def measure(name: str, rest: list[str]) -> tuple[Result, argparse.Namespace]:
    """Run a benchmark; return its result with machine, versions, command and seed, and the options."""
    module = load(name)
    if module is None:
        raise ResultError(f"no benchmark {name!r}; there are: {', '.join(discover())}")
    args = parser_of(name, module).parse_args(rest)
    # A run that is told to end still stops what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # Before the run: the load average is then of the others on the machine, not of the benchmark.
    machine = describe()
    result = {
        "benchmark": name,
        "command": shlex.join(["python", "-m", "bench", "run", name, *rest]),
        "seed": args.seed,
        "machine": machine,
        **module.run(args),
    }
    return result, args


def run(arguments: list[str]) -> int:
    """Run a benchmark, and print and save what it measured."""
    if not arguments:
        raise ResultError("name a benchmark; `python -m bench list` lists them")
    result, args = measure(arguments[0], arguments[1:])
    if args.save is not None:
        print(f"saved in {results.save(result, args.save)}", file=sys.stderr)
    if args.json:
        print(json.dumps(result), flush=True)
    else:
        show(result)
    return 0


def compare(arguments: list[str]) -> int:
    """Compare a saved result with another one, or with what its command measures now."""
    parser = argparse.ArgumentParser(prog="python -m bench compare", description=compare.__doc__)
    parser.add_argument("saved", type=Path)
    parser.add_argument("other", type=Path, nargs="?", help="default: run the command of the saved one again")
    args = parser.parse_args(arguments)
    before = results.load(args.saved)
    now = again(before) if args.other is None else results.load(args.other)
    for line in results.changed_surroundings(before, now):
        print(f"not the same: {line}")
    # Settings are among the figures; those that are the same say nothing.
    found = [each for each in results.compare(before, now) if each.verdict or each.before.value != each.now.value]
    width = max((len(each.name) for each in found), default=0)
    print(f"{'figure':<{width}}  {'before':>12}  {'now':>12}  {'ratio':>7}")
    for each in found:
        ratio = "" if each.ratio is None else f"{each.ratio:.3f}"
        values = f"{readable(each.before.value):>12}  {readable(each.now.value):>12}  {ratio:>7}"
        print(f"{each.name:<{width}}  {values}  {each.verdict}".rstrip())
    return 0


def again(before: Result) -> Result:
    """Run the command of a result once more."""
    words = [word for word in shlex.split(before["command"])[3:] if word != "run"]
    for option, follows in (("--json", 0), ("--save", 1)):
        if option in words:
            del words[words.index(option) : words.index(option) + 1 + follows]
    result, _ = measure(words[0], words[1:])
    # Compared as if it had been typed in the same way.
    return {**json.loads(json.dumps(result)), "command": before["command"]}


def plot(arguments: list[str]) -> int:
    """Draw saved results of one benchmark as a PNG."""
    parser = argparse.ArgumentParser(prog="python -m bench plot", description=plot.__doc__)
    parser.add_argument("saved", type=Path, nargs="+")
    parser.add_argument("--figures", nargs="+", default=[], metavar="NAME", help="only these; * stands for anything")
    parser.add_argument("--output", type=Path, help="default: the first file, with .png")
    args = parser.parse_args(arguments)
    output = args.output or args.saved[0].with_suffix(".png")
    plots.draw([results.load(path) for path in args.saved], args.figures, output)
    print(output)
    return 0


def main(arguments: list[str]) -> int:
    """Run the command line."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    try:
        if command in ("-h", "--help"):
            print(__doc__)
            return list_all()
        if command == "list":
            return list_all()
        commands = {"run": run, "compare": compare, "plot": plot}
        return commands[command](rest) if command in commands else run(arguments)
    except ResultError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
