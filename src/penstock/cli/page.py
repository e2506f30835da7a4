"""Show the page of a run that has ended, from the history that it left.

RUN_DIR is the run's checkpoint, the directory of the flow's runs (.penstock/<flow name>), of which the newest is shown,
or that of one run; each has what the page showed while the flow ran, thinned out with age, and every decision. Ctrl-C
ends it.
"""

from __future__ import annotations

import argparse
import threading
from urllib.parse import urlsplit

from penstock.annotated import options_of
from penstock.cli import DONE
from penstock.cli.displays import Interrupts
from penstock.cli.loading import add_flags
from penstock.options import Options

HELP = "show the page of a finished run"


PAGE_FLAGS = ("page", "page_host", "page_token")


def page_line(address: str, port: int | bool | None) -> str:
    """Say where the page is, and why not at the usual port if it was not free; nothing touches the address."""
    from penstock.dashboard.server import PORT

    taken = (port is None or port is True) and urlsplit(address).port != PORT
    return f"{f'port {PORT} is taken; ' if taken else ''}page at {address}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", metavar="RUN_DIR", help="the run's checkpoint or history, or .penstock/<flow name>"
    )
    add_flags(parser, [option for name, option in options_of(Options).items() if name in PAGE_FLAGS])


def run(args: argparse.Namespace) -> int:
    from penstock.dashboard.history import Page, read_history
    from penstock.dashboard.server import PageServer

    page = Page(read_history(args.directory))
    where = Options(**{name: value for name, value in vars(args).items() if name in PAGE_FLAGS})
    port = None if where.page is True else where.page
    with Interrupts() as interrupts:
        server = PageServer(page, where.page_host, port, where.page_token)
        try:
            print(f"{page_line(server.address, port)}\nCtrl-C ends it", flush=True)
            ended = threading.Event()
            while not interrupts.count:
                ended.wait(0.2)
        finally:
            server.close()
    return DONE
