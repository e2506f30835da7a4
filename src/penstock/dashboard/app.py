"""Answer browsers: the page's files, what it shows as JSON, samples as server-sent events, and Prometheus."""

from __future__ import annotations

import asyncio
import html
import json
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from penstock.dashboard.guard import Guard
from penstock.dashboard.history import Page
from penstock.dashboard.sampling import CONTENT_TYPE, write_metrics
from penstock.errors import PenstockError


class QuietServer(uvicorn.Server):
    """Answer requests; do nothing in between.

    Uvicorn's own loop wakes ten times a second to look whether it is to end, and to write the date into headers. Each
    time it takes the interpreter's lock from a flow in the same process.
    """

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


TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
MOST_WAITING = 4
"""Samples that wait for a slow browser; older ones are dropped, because each says all there is."""
PING_SECONDS = 15.0
CHANGE_SECONDS = 30.0
MOST_BODY = 4096


def make_app(page: Page, token: str, open_here: bool) -> ASGIApp:
    folder = resources.files("penstock.dashboard") / "assets"
    assets = {each.name: each.read_bytes() for each in folder.iterdir() if each.name.rpartition(".")[2] in TYPES}
    index = (folder / "index.html").read_text().replace("{token}", html.escape(token, quote=True))

    async def show(request: Request) -> Response:
        return Response(index, media_type="text/html")

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in assets:
            return PlainTextResponse("there is no such file", 404)
        return Response(assets[name], headers={"content-type": TYPES[name.rpartition(".")[2]]})

    async def document(request: Request) -> Response:
        return JSONResponse(page.document())

    async def decisions(request: Request) -> Response:
        try:
            return JSONResponse(page.history.marks_after(int(request.query_params.get("after", "0"))))
        except ValueError:
            return PlainTextResponse("after= takes the number of a decision", 400)

    async def decision(request: Request) -> Response:
        mark = page.history.mark(request.path_params["number"])
        return PlainTextResponse("it is not kept any more", 404) if mark is None else JSONResponse(mark)

    async def sample(request: Request) -> Response:
        try:
            at = float(request.query_params["at"])
        except (KeyError, ValueError):
            return PlainTextResponse("at= takes a time in seconds since 1970", 400)
        return Response(page.history.sample_at(at), media_type="application/json")

    async def events(request: Request) -> Response:
        return StreamingResponse(stream(page), media_type="text/event-stream")

    async def metrics(request: Request) -> Response:
        return Response(write_metrics(page.sample()), headers={"content-type": CONTENT_TYPE})

    async def query(request: Request) -> Response:
        try:
            action, name = await _read_change(request)
        except (ValueError, KeyError):
            return PlainTextResponse('a change is {"action": "add" or "cancel", "query": name}', 400)
        try:
            change = run_in_threadpool(page.change_query, action, name)
            batch = await asyncio.wait_for(change, CHANGE_SECONDS)
        except TimeoutError:
            return PlainTextResponse("asked for; it is made when the sources bring the next rows", 202)
        except PenstockError as error:
            return PlainTextResponse(str(error), 409)
        return JSONResponse({"batch": batch})

    routes = [
        Route("/", show),
        Route("/assets/{name}", asset),
        Route("/api/page", document),
        Route("/api/decisions", decisions),
        Route("/api/decisions/{number:int}", decision),
        Route("/api/sample", sample),
        Route("/api/events", events),
        Route("/api/queries", query, methods=["POST"]),
        Route("/metrics", metrics),
    ]
    return Guard(Starlette(routes=routes), token, open_here)


async def stream(page: Page) -> AsyncIterator[bytes]:
    """Yield each sample as a server-sent event, the newest one first of all."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[bytes] = asyncio.Queue(MOST_WAITING)

    def put(sample: bytes) -> None:
        if waiting.full():
            waiting.get_nowait()
        waiting.put_nowait(sample)

    def bring(sample: bytes) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(put, sample)

    leave = page.listen(bring)
    try:
        yield b"retry: 1000\n\n"
        while True:
            try:
                sample = await asyncio.wait_for(waiting.get(), PING_SECONDS)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            yield b"data: " + sample + b"\n\n"
    finally:
        leave()


async def _read_change(request: Request) -> tuple[str, str]:
    """Read what is to be changed; a body that is too long is not read to its end."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MOST_BODY:
            raise ValueError("too long")
    body: Any = json.loads(content)
    if not isinstance(body, dict):
        raise ValueError("no object")
    action, name = body["action"], body["query"]
    if action not in ("add", "cancel") or not isinstance(name, str):
        raise ValueError("no such change")
    return action, name
