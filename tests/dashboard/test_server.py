"""Who may see the page and change something; what every answer says to the browser."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator

import pytest
import uvicorn

from penstock.dashboard.guard import is_loopback
from penstock.dashboard.server import PageServer
from penstock.errors import PenstockError

from ..patience import PATIENCE
from .made_up import MadeUpPage, made_up_graph, made_up_sample

GRAPH = made_up_graph(3, 2)
CHANGE = json.dumps({"action": "cancel", "query": "operator 5"})


@pytest.fixture
def page() -> MadeUpPage:
    return MadeUpPage(GRAPH, made_up_sample(GRAPH, shards=8, tasks=2))


@pytest.fixture
def server(page: MadeUpPage) -> Iterator[PageServer]:
    served = PageServer(page, port=0)
    yield served
    served.close()


@pytest.fixture
def elsewhere(page: MadeUpPage) -> Iterator[PageServer]:
    """A page that is not for this machine alone; it listens here all the same."""
    served = PageServer(page, host="0.0.0.0", port=0, token="right-token")
    yield served
    served.close()


def ask(server: PageServer, path: str, method: str = "GET", body: str | None = None, **headers: str):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, {name.lower(): value for name, value in answer.getheaders()}


def test_it_listens_on_loopback_unless_told(server):
    assert server.address == f"http://127.0.0.1:{server.port}/"
    assert [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "10.0.0.1", "a.example")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("path", ["/", "/assets/main.js", "/assets/style.css", "/api/page", "/metrics", "/nothing"])
def test_every_answer_has_the_headers_that_protect_it(server, path):
    _, _, headers = ask(server, path)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_files_are_those_of_the_package_and_no_others(server):
    assert ask(server, "/")[0] == 200
    status, text, headers = ask(server, "/assets/main.js")
    assert (status, headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert "EventSource" in text
    for path in ("/assets/../app.py", "/assets/%2e%2e/app.py", "/assets/index.html", "/assets/app.py"):
        assert ask(server, path)[0] == 404


def test_a_site_that_points_its_name_here_is_turned_away(server):
    assert ask(server, "/api/page", Host="evil.example")[0] == 403
    assert ask(server, "/api/page", Host="[::1")[0] == 403
    assert ask(server, "/api/page", Host="localhost:99")[0] == 200


def test_changes_need_the_token_in_a_header_and_the_pages_own_origin(server, page):
    here = f"http://127.0.0.1:{server.port}"
    token = {"x_penstock_token": server.token}
    assert ask(server, "/api/queries", "POST", CHANGE)[0] == 403
    assert ask(server, "/api/queries", "POST", CHANGE, x_penstock_token="wrong")[0] == 403
    assert ask(server, f"/api/queries?token={server.token}", "POST", CHANGE)[0] == 403
    assert ask(server, "/api/queries", "POST", CHANGE, **token, Origin="http://evil.example")[0] == 403
    assert ask(server, "/api/queries", "POST", CHANGE, **token, Sec_Fetch_Site="cross-site")[0] == 403
    assert page.run.changes == []
    status, text, _ = ask(server, "/api/queries", "POST", CHANGE, **token, Origin=here, Sec_Fetch_Site="same-origin")
    assert (status, json.loads(text)) == (200, {"batch": 7})
    assert page.run.changes == [("cancel", "operator 5")]


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", '{"action": "drop", "query": "a"}', '{"action": "add", "query": 3}', "x" * 5000]
)
def test_a_change_that_makes_no_sense_is_refused(server, page, body):
    assert ask(server, "/api/queries", "POST", body, x_penstock_token=server.token)[0] == 400
    assert page.run.changes == []


def test_a_change_that_cannot_be_made_says_why(server):
    body = json.dumps({"action": "add", "query": "unknown"})
    assert ask(server, "/api/queries", "POST", body, x_penstock_token=server.token)[:2] == (
        409,
        "there is no such query",
    )


@pytest.mark.parametrize("path", ["/", "/api/page", "/api/events", "/assets/main.js", "/metrics"])
def test_elsewhere_everything_needs_the_token(elsewhere, path):
    assert ask(elsewhere, path)[0] == 401
    assert ask(elsewhere, path, Cookie="penstock_token=wrong")[0] == 401
    assert ask(elsewhere, f"{path}?token=wrong")[0] == 401


def test_elsewhere_the_printed_address_lets_in_by_a_cookie_that_scripts_cannot_read(elsewhere):
    assert elsewhere.address.endswith("/?token=right-token")
    status, _, headers = ask(elsewhere, "/?token=right-token")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert ask(elsewhere, "/api/page", Cookie="penstock_token=right-token")[0] == 200
    assert ask(elsewhere, "/metrics", Authorization="Bearer right-token")[0] == 200
    # A cookie goes along with requests of other sites' making, so it is not enough for a change.
    assert ask(elsewhere, "/api/queries", "POST", CHANGE, Cookie="penstock_token=right-token")[0] == 403


def test_samples_come_as_server_sent_events(server, page):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.request("GET", "/api/events")
    answer = connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    assert answer.readline() == b"retry: 1000\n"
    for number in range(3):
        page.send({"number": number})
    found: list[object] = []
    while len(found) < 3:
        line = answer.readline()
        if line.startswith(b"data: "):
            found.append(json.loads(line[6:]))
    assert found == [{"number": 0}, {"number": 1}, {"number": 2}]
    connection.close()


def test_the_server_sleeps_until_it_is_asked(page, monkeypatch):
    ticked: list[int] = []
    monkeypatch.setattr(uvicorn.Server, "on_tick", lambda self, counter: ticked.append(counter))
    served = PageServer(page, port=0)
    try:
        status, _, headers = ask(served, "/api/page")
        assert (status, "date" in headers) == (200, False)  # nobody would keep it up to date
    finally:
        served.close()
    assert ticked == []
    assert not served._thread.is_alive()


def test_a_server_that_is_closed_at_once_ends(page):
    served = PageServer(page, port=0)
    served.close()
    assert not served._thread.is_alive()


def test_a_port_that_is_taken_is_said(page):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PenstockError, match="give another port"):
            PageServer(page, port=taken.getsockname()[1])


def test_moments_and_decisions_that_are_not_there(server):
    assert json.loads(ask(server, "/api/sample?at=5")[1])["at"] == 1_800_000_000.0 - 59
    assert ask(server, "/api/sample?at=now")[0] == 400
    assert ask(server, "/api/sample")[0] == 400
    assert ask(server, "/api/decisions/12")[0] == 404
    assert ask(server, "/api/decisions?after=x")[0] == 400
