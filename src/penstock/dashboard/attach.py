"""Tie a page and a history to a run: what `penstock.start` does where either is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dashboard.page import Page
from penstock.dashboard.recorder import Recorder
from penstock.run import Run

if TYPE_CHECKING:
    from penstock.dashboard.server import PageServer


class Watch:
    """A recorder, and a server where a page is wanted."""

    def __init__(
        self,
        run: Run,
        engine: str,
        *,
        page: bool | int | None,
        host: str = "127.0.0.1",
        token: str | None = None,
        history: str | None = None,
    ) -> None:
        self._recorder = Recorder(run, engine, history=history)
        self._recorder.tick()
        self._server: PageServer | None = None
        if page is not None and page is not False:
            from penstock.dashboard.server import PageServer

            port = None if page is True else page
            self._server = PageServer(Page(self._recorder.seen, self._recorder), host, port, token)
        self._recorder.start()

    @property
    def address(self) -> str | None:
        """Return the page's address, if there is a page."""
        return None if self._server is None else self._server.address

    @property
    def token(self) -> str | None:
        """Return the token of the page, if there is one."""
        return None if self._server is None else self._server.token

    def finish(self, state: str) -> None:
        """Take the last sample when the flow has ended; the page stays, and shows it."""
        self._recorder.finish(state)

    def close(self) -> None:
        """Take the page away."""
        if self._server is not None:
            self._server.close()
            self._server = None
