"""Show the page of a run that has ended, from the history that it left behind.

RUN_DIR is the run's checkpoint, the directory of the flow's runs (.penstock/<flow name>), of which the newest is shown,
or that of one run; each has what the page showed while the flow ran, thinned out with age, and every decision. Ctrl-C
ends it.
"""

from __future__ import annotations

import argparse
import os
import threading
from typing import Any
from urllib.parse import urlsplit

from penstock.cli import DONE
from penstock.cli.stopping import Interrupts

HELP = "show the page of a finished run"
LAST_PORT = 65_535


def add_address_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where a page is served."""
    parser.add_argument(
        "--page-host",
        metavar="HOST",
        default="127.0.0.1",
        help="the address to listen on (default: 127.0.0.1); elsewhere the page asks for a token",
    )
    parser.add_argument("--page-token", metavar="TOKEN", help="the token (default: a new one each time)")


def add_page_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that runs a flow."""
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument(
        "--page", type=_port, metavar="PORT", help="the port of the live page (default: 4147, or any that is free)"
    )
    wanted.add_argument("--no-page", action="store_true", help="serve no page")
    add_address_arguments(parser)
    parser.add_argument(
        "--name-keys",
        action="store_true",
        help="name hot keys, which are values of your rows, in decisions, on the page and in the history",
    )
    parser.add_argument(
        "--history",
        metavar="DIR",
        help="keep what the page showed here (default: in the checkpoint, or for the last 20 runs without one in "
        ".penstock/<flow name>/history)",
    )


def _port(text: str) -> int:
    if text.isdecimal() and int(text) <= LAST_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: a port is 0 to {LAST_PORT}")


def page_line(address: str, args: argparse.Namespace) -> str:
    """Say where the page is, and why not at the usual port if it was not free; nothing touches the address."""
    from penstock.dashboard.server import PORT

    taken = args.page is None and urlsplit(address).port != PORT
    return f"{f'port {PORT} is taken; ' if taken else ''}page at {address}"


def page_options(args: argparse.Namespace, directory: str) -> dict[str, Any]:
    """Return the options of `penstock.start` for the page; the directory is the run's checkpoint, or its flow's."""
    from penstock.dashboard.run_directories import HISTORY, new_directory

    history = args.history
    if history is None:
        history = os.path.join(directory, HISTORY)
        if args.engine != "spark":  # what a checkpoint has goes on; other runs have nothing in common
            history = new_directory(history)
    return {
        "page": False if args.no_page else True if args.page is None else args.page,
        "page_host": args.page_host,
        "page_token": args.page_token,
        "history": history,
        "name_keys": args.name_keys,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "directory", metavar="RUN_DIR", help="the run's checkpoint or history, or .penstock/<flow name>"
    )
    parser.add_argument("--page", type=_port, metavar="PORT", help="the port (default: 4147, or any that is free)")
    add_address_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from penstock.dashboard.history import read_history
    from penstock.dashboard.page import FinishedPage
    from penstock.dashboard.server import PageServer

    page = FinishedPage(read_history(args.directory))
    with Interrupts() as interrupts:
        server = PageServer(page, args.page_host, args.page, args.page_token)
        try:
            print(f"{page_line(server.address, args)}\nCtrl-C ends it", flush=True)
            ended = threading.Event()
            while not interrupts.count:
                ended.wait(0.2)
        finally:
            server.close()
    return DONE
