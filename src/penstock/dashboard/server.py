"""Listen, in a thread of its own, and answer until told to stop."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from contextlib import suppress

from penstock.dashboard.guard import is_loopback
from penstock.dashboard.history import Page
from penstock.errors import PenstockError

PORT = 4147
"""Where the page is, unless another is asked for; not where Spark has its own."""
START_SECONDS = 10.0


class PageServer:
    """The page of one run, at an address."""

    def __init__(self, page: Page, host: str = "127.0.0.1", port: int | None = None, token: str | None = None) -> None:
        try:
            from penstock.dashboard.app import QuietServer, make_app
        except ImportError as error:
            raise PenstockError(
                f"the page needs the package {error.name!r}; install penstock anew, or pip install uvicorn starlette"
            ) from None
        self._here = is_loopback(host)
        self._token = token or secrets.token_urlsafe(18)
        self._socket = listen(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._server = QuietServer(make_app(page, self._token, self._here))
        self._thread = threading.Thread(target=self._run, name="penstock-page", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError, KeyboardInterrupt):
            self._server.run(sockets=[self._socket])

    @property
    def address(self) -> str:
        """Return what to open in a browser; elsewhere than on this machine it has the token in it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        base = f"http://{host}:{self.port}/"
        return base if self._here else f"{base}?token={self._token}"

    @property
    def token(self) -> str:
        return self._token

    def close(self) -> None:
        self._server.end()
        self._thread.join(START_SECONDS)
        self._socket.close()


def listen(host: str, port: int | None) -> socket.socket:
    """Open the socket: the port that was asked for, or else the usual one, or any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in [port] if port is not None else [PORT, 0]:
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((host, wanted))
            opened.listen(64)
            return opened
        except OSError as error:
            opened.close()
            if wanted == 0 or port is not None:
                raise PenstockError(
                    f"the page cannot listen on {host}:{wanted} ({error.strerror}); give another port or address"
                ) from None
    raise AssertionError("there is always a port to try")
