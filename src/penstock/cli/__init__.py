"""The `penstock` command. Each command is a file of this package with HELP, `add_arguments` and `run`.

Exit codes: 0 done, 1 the flow failed (or the doctor found something broken), 2 wrong usage, 130 stopped by Ctrl-C
(143 by SIGTERM). `bench` passes on the code of the benchmark.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class UsageError(Exception):
    """Refuse a command line that cannot be carried out, saying what to type instead."""


def commands() -> dict[str, ModuleType]:
    """Find the commands: every module here that has the three names; helpers lack them."""
    modules = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        if all(hasattr(module, name) for name in ("HELP", "add_arguments", "run")):
            modules[info.name] = module
    return modules


def make_parser() -> argparse.ArgumentParser:
    from penstock import __version__

    parser = argparse.ArgumentParser(
        prog="penstock",
        description="Elastic, order-preserving stream processing for Python, on Spark.",
        epilog="exit codes: 0 done, 1 the flow failed, 2 wrong usage, 130 stopped by Ctrl-C",
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in commands().items():
        command = parsers.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    from penstock.cli.displays import explain

    args = make_parser().parse_args(arguments)
    try:
        code: int = args.run(args)
        return code
    except UsageError as error:
        print(f"penstock {args.command}: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe has gone; Python would complain again at exit
        return DONE
    except Exception as error:
        print("\n".join(explain(error)), file=sys.stderr)
        return FAILED
