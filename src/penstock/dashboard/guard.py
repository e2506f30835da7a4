"""Who may see the page, and what browsers may do with it.

On a loopback address anyone on this machine may open the page, and so change the run as it can, but only under a
loopback name: a web site that points its own name at 127.0.0.1 is turned away. Elsewhere every request needs the token.
To change something the page sends its token in a header, from its own origin: a form or a link of another site can send
neither.
"""

from __future__ import annotations

import hmac
import ipaddress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-penstock-token"
COOKIE = "penstock_token"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address stays on this machine."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _host_name(netloc: str) -> str:
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


class Guard:
    """Let requests through to the page that may see it, and give every answer the headers that protect it."""

    def __init__(self, app: ASGIApp, token: str, open_here: bool) -> None:
        self._app, self._token, self._open_here = app, token, open_here

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # there is nothing but HTTP here

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, protected)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self._open_here and not is_loopback(_host_name(headers.get("host", ""))):
            return PlainTextResponse("this page is for 127.0.0.1 only", 403)
        if not self._open_here and not self._knows_token(scope, headers):
            given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
            if scope["path"] == "/" and self._is_token(given):
                # Off the address bar, and out of what is shared with it.
                answer = RedirectResponse("/", 303)
                answer.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
                return answer
            return PlainTextResponse("this page needs its token: open the address that was printed", 401)
        if scope["method"] not in ("GET", "HEAD"):
            return self._refuse_change(headers)
        return None

    def _refuse_change(self, headers: Headers) -> Response | None:
        if not self._is_token(headers.get(TOKEN_HEADER, "")):
            return PlainTextResponse(f"a change needs the header {TOKEN_HEADER}", 403)
        origin = headers.get("origin")
        if origin is not None and _host_of(origin) != headers.get("host"):
            return PlainTextResponse("a change must come from the page itself", 403)
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return PlainTextResponse("a change must come from the page itself", 403)
        return None

    def _knows_token(self, scope: Scope, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(bearer.strip()):
            return True
        if self._is_token(headers.get(TOKEN_HEADER, "")):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value)

    def _is_token(self, given: str) -> bool:
        return bool(given) and hmac.compare_digest(given.encode(), self._token.encode())


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
