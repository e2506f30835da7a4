"""Make a project: a flow that runs, a test that passes, and a note on what to do next.

penstock new payments          makes the directory payments
cd payments
penstock run flow.py           runs the flow
python -m pytest               runs its test
"""

from __future__ import annotations

import argparse
import keyword
import re
from importlib import resources
from pathlib import Path
from string import Template

from penstock.cli import DONE, UsageError

HELP = "make a project from a template"
FILES = {
    "flow.py.template": "flow.py",
    "test_flow.py.template": "test_flow.py",
    "payments.jsonl.template": "data/payments.jsonl",
    "README.md.template": "README.md",
    "gitignore.template": ".gitignore",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIRECTORY", help="where; its last part is the flow's name")


def run(args: argparse.Namespace) -> int:
    directory = Path(args.directory)
    name = directory.resolve().name
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) or keyword.iskeyword(name):
        raise UsageError(f"{name!r} makes no name for a flow; use letters, digits, - and _, a letter first")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is there already, and not empty; name a new directory")
    templates = resources.files("penstock.cli") / "template"
    for template, target in FILES.items():
        path = directory / target
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template((templates / template).read_text()).substitute(name=name))
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    print(f"made {directory}: read its README.md, then\n  cd {directory}\n  penstock run flow.py\n  python -m pytest")
    return DONE
