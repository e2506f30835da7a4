"""Run the web server without its clock: it sleeps until somebody asks for something.

Uvicorn's own loop wakes ten times a second to look whether it is to end, and to write the date into headers. Each time
it takes the interpreter's lock from a flow in the same process.
"""

from __future__ import annotations

import asyncio

import uvicorn
from starlette.types import ASGIApp


class QuietServer(uvicorn.Server):
    """Answer requests; do nothing in between."""

    def __init__(self, app: ASGIApp) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,  # the user's own logging stays as it is
            log_level="critical",
            access_log=False,
            lifespan="off",
            loop="asyncio",
            http="h11",
            ws="none",
            timeout_graceful_shutdown=1,
            server_header=False,
            date_header=False,
        )
        super().__init__(config)
        self._awake: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def main_loop(self) -> None:
        """Wait until `end` is called."""
        self.server_state.default_headers = self.config.encoded_headers
        woken = asyncio.Event()
        self._awake = asyncio.get_running_loop(), woken
        if not self.should_exit:  # `end` may have come before there was anybody to wake
            await woken.wait()

    def end(self) -> None:
        """Stop answering; any thread may ask."""
        self.should_exit = True
        if self._awake is not None:
            loop, woken = self._awake
            loop.call_soon_threadsafe(woken.set)
