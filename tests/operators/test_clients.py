"""What `setup=` makes: once in a worker, given to the function, closed at the end; and what happens if it fails."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

import penstock as ps
from penstock.errors import FlowError, OperatorError
from penstock.operators import calls

from ..patience import PATIENCE

ENGINES = [ps.Sequential(), ps.Threads(), ps.Threads(model="manual")]


class Client:
    """Notes what happens to it."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        log.append("open")

    def ask(self, row: int) -> int:
        assert "close" not in self.log
        return row * 10

    def close(self) -> None:
        self.log.append("close")


def stream(rows: Any = range(40)) -> ps.Stream:
    return ps.Flow("clients").source("in", ps.read.items(list(rows)))


@pytest.mark.parametrize("on", ENGINES)
class TestLife:
    @pytest.mark.parametrize("options", [{}, {"waits": True}, {"retries": 1, "timeout": 100}])
    def test_of_a_plain_one(self, on: Any, options: Any) -> None:
        log: list[str] = []
        made = stream().map(lambda row, client: client.ask(row), setup=lambda: Client(log), **options)
        assert ps.run(made.sink("out"), on=on).results["out"] == [row * 10 for row in range(40)]
        assert log == ["open", "close"]

    def test_of_one_that_is_yielded(self, on: Any) -> None:
        log: list[str] = []

        def setup() -> Any:
            log.append("open")
            yield 3
            log.append("close")

        made = stream().flat_map(lambda row, n: [row] * n, setup=setup).filter(lambda row, n: row > n, setup=setup)
        assert len(ps.run(made.sink("out"), on=on).results["out"]) == 3 * 36
        assert sorted(log) == ["close", "close", "open", "open"]

    def test_of_one_in_the_event_loop(self, on: Any) -> None:
        import asyncio

        loops: list[Any] = []

        async def setup() -> Any:
            loops.append(asyncio.get_running_loop())
            yield loops
            loops.append(asyncio.get_running_loop())

        async def ask(row: int, client: Any) -> int:
            assert asyncio.get_running_loop() is client[0]
            await asyncio.sleep(0)
            return row

        assert ps.run(stream().map(ask, setup=setup).sink("out"), on=on).results["out"] == list(range(40))
        assert len(loops) == 2
        assert loops[0] is loops[1]

    def test_of_one_that_must_be_awaited(self, on: Any) -> None:
        log: list[str] = []

        class Session:
            async def aclose(self) -> None:
                log.append("close")

        async def setup() -> Session:
            log.append("open")
            return Session()

        async def ask(row: int, client: Any) -> Any:
            yield row

        assert ps.run(stream().flat_map(ask, setup=setup).sink("out"), on=on).results["out"] == list(range(40))
        assert log == ["open", "close"]

    def test_ends_also_where_the_flow_fails(self, on: Any) -> None:
        log: list[str] = []
        made = stream().map(lambda row, client: 1 // (row - 7), name="ask", setup=lambda: Client(log))
        with pytest.raises(OperatorError, match="ZeroDivision"):
            ps.run(made.sink("out"), on=on)
        assert log == ["open", "close"]

    def test_a_close_that_fails_fails_nothing(self, on: Any, caplog: Any) -> None:
        class Bad:
            def close(self) -> None:
                raise OSError("gone")

        assert ps.run(stream([1]).map(lambda r, _: r, name="ask", setup=Bad).sink("out"), on=on).results["out"] == [1]
        assert "operator 'ask': its client could not be closed" in caplog.text

    def test_a_close_that_hangs_is_given_up(self, on: Any, caplog: Any, monkeypatch: Any) -> None:
        class Client:
            async def aclose(self) -> None:
                await asyncio.sleep(3600)

        async def ask(row: int, client: Any) -> int:
            return row

        monkeypatch.setattr(calls, "CLOSING_SECONDS", 0.01)
        run = ps.run(stream().map(ask, name="ask", setup=Client).sink("out"), on=on)
        assert run.results["out"]
        assert "operator 'ask': its client could not be closed" in caplog.text

    @pytest.mark.parametrize("asynchronous", [False, True])
    @pytest.mark.parametrize("on_error", ["fail", "skip"])
    def test_a_set_up_that_fails_stops_the_flow(self, on: Any, asynchronous: bool, on_error: Any) -> None:
        tried: list[int] = []

        def connect() -> Any:
            tried.append(1)
            raise ConnectionError("refused")

        async def ask(row: int, client: Any) -> int:
            return row

        function: Any = ask if asynchronous else (lambda row, client: row)
        made = stream().map(function, name="ask", setup=connect, retries=3, on_error=on_error)
        with pytest.raises(ps.PenstockError) as caught:
            ps.run(made.sink("out"), on=on)
        said = str(caught.value)
        assert said.startswith("operator 'ask' failed")
        assert "its setup=connect failed at " in said
        assert "ConnectionError: refused; see that it works where the workers are" in said
        assert tried == [1]

    @pytest.mark.parametrize("way", ["nothing", "nothing awaited", "exit"])
    def test_a_set_up_that_gives_nothing_says_so(self, on: Any, way: str) -> None:
        def nothing() -> Any:
            yield from ()

        async def nothing_awaited() -> Any:
            for client in ():
                yield client

        async def ask(row: int, client: Any) -> int:
            return row

        setup: Any = {"nothing": nothing, "nothing awaited": nothing_awaited, "exit": lambda: sys.exit(3)}[way]
        function: Any = ask if way == "nothing awaited" else (lambda row, client: row)
        with pytest.raises(ps.PenstockError) as caught:
            ps.run(stream().map(function, name="ask", setup=setup).sink("out"), on=on)
        meant = "SystemExit: 3" if way == "exit" else "it yields nothing; yield the client, once"
        assert str(caught.value).startswith("operator 'ask' failed")
        assert meant in str(caught.value)


def test_one_for_each_thread() -> None:
    made, met = [], threading.Barrier(2, timeout=PATIENCE)

    def setup() -> int:
        made.append(threading.get_ident())
        return made[-1]

    def ask(row: int, client: int) -> int:
        met.wait()
        assert client == threading.get_ident()
        return row

    ps.run(stream(range(4)).map(ask, setup=setup, setup_per="thread", in_flight=2).sink("out"), on=ps.Threads())
    assert len(made) == len(set(made)) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"setup": 3}, "setup=3 is no function; give one without arguments"),
        ({"setup": dict, "setup_per": "task"}, 'use "process" or "thread"'),
        ({"setup_per": "thread"}, "setup_per='thread' without setup="),
        ({"setup": dict, "setup_per": "thread", "timeout": 1}, "do not go together"),
    ],
)
def test_refusals(options: Any, says: str) -> None:
    with pytest.raises(FlowError) as caught:
        stream().map(lambda row, client: row, name="ask", **options)
    assert "operator 'ask'" in str(caught.value)
    assert says in str(caught.value)


def test_refuses_to_await_where_nobody_does() -> None:
    async def setup() -> int:
        return 1

    with pytest.raises(FlowError, match="make both async def, or neither"):
        stream().map(lambda row, client: row, setup=setup)
