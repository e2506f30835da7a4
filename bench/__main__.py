"""List the benchmarks, or run one: `python -m bench NAME [--json] [options]`."""

import argparse
import importlib
import json
import pkgutil
import shlex
import signal
import sys
from types import ModuleType
from typing import Any

import bench
from bench.machine import describe


def discover() -> dict[str, ModuleType]:
    """Find the benchmarks: every module of this package that has DESCRIPTION, add_arguments and run.

    Helpers lack those names, so a new benchmark is one file dropped into the package.
    """
    found = {}
    for info in pkgutil.iter_modules(bench.__path__):
        if info.ispkg or info.name.startswith("_"):
            continue
        module = importlib.import_module(f"bench.{info.name}")
        if all(hasattr(module, name) for name in ("DESCRIPTION", "add_arguments", "run")):
            found[info.name] = module
    return found


def parser_of(name: str, module: ModuleType) -> argparse.ArgumentParser:
    """Make the parser of one benchmark: the common options, then its own."""
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}", description=module.DESCRIPTION)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object, last")
    parser.add_argument("--seed", type=int, default=1, help="seed of the data and of the bootstrap")
    module.add_arguments(parser)
    return parser


def show(result: dict[str, Any], indent: str = "") -> None:
    """Print a result for a reader, one figure a line."""
    for key, value in result.items():
        if isinstance(value, dict):
            print(f"{indent}{key}:")
            show(value, indent + "  ")
        else:
            print(f"{indent}{key}: {value:,.4g}" if isinstance(value, float) else f"{indent}{key}: {value}")


def main(arguments: list[str]) -> int:
    """Run the command line."""
    benchmarks = discover()
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m bench NAME [--json] [--seed N] [options; see NAME --help]\n")
        width = max(map(len, benchmarks), default=0)
        for name, module in benchmarks.items():
            print(f"  {name:<{width}}  {module.DESCRIPTION}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in benchmarks:
        print(f"no benchmark {name!r}; there are: {', '.join(benchmarks)}", file=sys.stderr)
        return 2
    args = parser_of(name, benchmarks[name]).parse_args(rest)
    # A run that is told to end still stops what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # Before the run: the load average is then of the others on the machine, not of the benchmark.
    machine = describe()
    result = {
        "benchmark": name,
        "command": shlex.join(["python", "-m", "bench", *arguments]),
        "seed": args.seed,
        "machine": machine,
        **benchmarks[name].run(args),
    }
    if args.json:
        print(json.dumps(result), flush=True)
    else:
        show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
