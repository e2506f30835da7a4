"""Rows that a driver writes once, because nothing can bring them back: whoever sleeps through it does no harm."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.store.checkpoint import Checkpoint
from penstock.store.keeper import Keeper
from penstock.store.lease import Lease
from penstock.store.objects import LocalStore, Store
from penstock.store.remote import ObjectStore

from ..spark.running import Crash

NAME = "sources/events/000000000007"
Start = Callable[[], Keeper]


@pytest.fixture(params=["disk", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "disk":
        return LocalStore(str(tmp_path))
    memory = pytest.importorskip("obstore.store").MemoryStore()
    return ObjectStore("memory://", memory)


@pytest.fixture
def start(store: Store) -> Start:
    """Start drivers, each on a machine of its own and so late that the one before counts as dead."""
    started: list[Keeper] = []

    def begin() -> Keeper:
        number = len(started)
        lease = Lease(store, machine=f"m{number}", clock=lambda: 1000.0 * number, renewing=False)
        started.append(Keeper(Checkpoint("", store), lease))
        started[-1].acquire()
        return started[-1]

    return begin


def writes(store: Store, *names: str) -> Callable[[str], None]:
    """Return what writes files as Spark does, which gives other names to the same rows each time."""

    def write(path: str) -> None:
        for name in (*names, "_SUCCESS"):
            store.put(f"{path.strip('/')}/{name}", name.encode())

    return write


def nothing(path: str) -> None:
    raise AssertionError("these rows are there already")


def seen(store: Store) -> list[str]:
    """Return the files of the source, as a reader finds them."""
    batches = [name for name in store.names(os.path.dirname(NAME)) if not name.startswith("_")]
    return [f for name in batches for f in store.names(f"{os.path.dirname(NAME)}/{name}") if not f.startswith("_")]


def test_rows_are_written_once(store, start):
    keeper = start()
    keeper.keep(NAME, writes(store, "part-0-a", "part-1-a"))
    keeper.keep(NAME, nothing)
    start().keep(NAME, nothing)
    assert seen(store) == ["part-0-a", "part-1-a"]
    assert not [name for name in store.names(os.path.dirname(NAME)) if name.startswith("_0")]


def test_a_driver_that_sleeps_while_it_writes_changes_nothing(store, start):
    first = start()

    def write(path: str) -> None:
        writes(store, "part-0-a")(path)
        start().keep(NAME, writes(store, "part-0-b"))
        writes(store, "part-1-a")(path)

    with pytest.raises(ps.LeaseError):
        first.keep(NAME, write)
    assert seen(store) == ["part-0-b"]


def test_not_even_when_the_rows_were_used_and_removed(store, start):
    first = start()

    def write(path: str) -> None:
        heir = start()
        heir.keep(NAME, writes(store, "part-0-b"))
        heir.forget(NAME)
        writes(store, "part-0-a")(path)

    with pytest.raises(ps.LeaseError):
        first.keep(NAME, write)
    assert seen(store) == []


def test_what_was_noted_and_not_shown_is_shown_by_the_next(store, start, monkeypatch):
    first = start()

    def crash(*_: object) -> bool:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "publish", crash)
        with pytest.raises(Crash):
            first.keep(NAME, writes(store, "part-0-a"))
    assert seen(store) == []
    start().keep(NAME, nothing)
    assert seen(store) == ["part-0-a"]


def test_what_an_earlier_version_has_written_in_place_stays(store, start):
    writes(store, "part-0-a")(NAME)
    start().keep(NAME, nothing)
    assert seen(store) == ["part-0-a"]


def test_rows_that_are_gone_are_named(store, start):
    keeper = start()
    keeper.keep(NAME, writes(store, "part-0-a"))
    store.delete(NAME)
    with pytest.raises(ps.CheckpointError, match=rf"{NAME} is gone"):
        keeper.keep(NAME, nothing)
