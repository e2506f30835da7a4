"""Stores: absent is told from failed, of several who put a name one wins, again is no harm; on disk, S3 and HDFS."""

from __future__ import annotations

import builtins
import errno
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

import penstock as ps
from penstock.errors import CheckpointError, StorageError
from penstock.store import objects, remote
from penstock.store.lease import Lease
from penstock.store.objects import LocalStore, Store, open_store
from penstock.store.publication import last_visible

from ..jars import Unreachable
from ..spark.running import make_rows, read_back, run_inline, sequential, two_sinks, write_files
from . import hdfs


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Serve S3 on loopback; return a bucket's address."""
    moto = pytest.importorskip("moto.moto_server.werkzeug_app")
    serving = pytest.importorskip("werkzeug.serving")
    pytest.importorskip("obstore")
    settings = {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application, lock = moto.DomainDispatcherApplication(moto.create_backend_app), threading.Lock()

    def one_at_a_time(environ: Any, start_response: Any) -> list[bytes]:
        """S3 does a conditional put in one step; this stand-in looks first, and then writes."""
        with lock:
            return list(application(environ, start_response))

    server = serving.make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    settings["AWS_ENDPOINT_URL"] = settings["AWS_ENDPOINT"] = f"http://127.0.0.1:{port}"
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        host = f"127.0.0.1:{port}"
        fs.S3FileSystem(endpoint_override=host, scheme="http", allow_bucket_creation=True).create_dir("bucket")
        yield "s3://bucket"
    finally:
        server.shutdown()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@pytest.fixture(scope="module")
def hadoop(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve HDFS on loopback; return its address. It is reached through Spark."""
    try:
        with hdfs.serve(tmp_path_factory.mktemp("hdfs")) as address:
            yield address
    except Unreachable as problem:
        pytest.skip(f"no HDFS to test against: {problem}")


@pytest.fixture(params=["local", "s3", pytest.param("hadoop", marks=pytest.mark.spark)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store(str(tmp_path / "store"))
    return open_store(f"{request.getfixturevalue(request.param)}/{tmp_path.name}")


class TestEveryStore:
    def test_what_is_put_is_there_and_what_is_not_is_absent(self, store):
        assert store.get("a/b.json") is None
        assert store.names("a") == []
        assert not store.exists("a")
        store.delete("a/b.json")
        store.put("a/b.json", b"1")
        store.put("a/b.json", b"2")
        store.put("a/bc.json", b"3")
        assert store.get("a/b.json") == b"2"
        assert store.names("a") == ["b.json", "bc.json"]
        assert store.names("") == ["a"]
        assert store.exists("a")
        assert store.exists("a/b.json")
        store.delete("a/b.json")
        assert store.names("a") == ["bc.json"]
        store.delete("a")
        assert store.names("a") == []

    def test_of_many_who_put_a_name_one_wins(self, store):
        for turn in range(5):
            wins: list[int] = []
            barrier = threading.Barrier(6)

            def put(number: int, turn: int = turn, wins: list[int] = wins, barrier: Any = barrier) -> None:
                barrier.wait()
                if store.put_new(f"names/{turn}", b"%d" % number):
                    wins.append(number)

            threads = [threading.Thread(target=put, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(wins) == 1
            assert store.get(f"names/{turn}") == b"%d" % wins[0]
            assert store.put_new(f"names/{turn}", b"%d" % wins[0])  # one's own, reported as failed the first time
            assert not store.put_new(f"names/{turn}", b"another")

    def test_of_two_drivers_one_gets_the_lease(self, store):
        outcomes: list[int | None] = []
        barrier = threading.Barrier(2)

        def take() -> None:
            lease = Lease(store, renewing=False)
            barrier.wait()
            try:
                lease.acquire()
                outcomes.append(lease.fence)
            except ps.LeaseError:
                outcomes.append(None)

        threads = [threading.Thread(target=take) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes, key=str) == [1, None]

    def test_partitions_are_looked_through_for_the_last_epoch(self, store):
        assert last_visible(store) == 0
        store.put("_penstock/staging/epoch=000000009.1/k=1/part-000000009-00000.csv", b"waits")
        store.put("epoch=000000002/part-00000.csv", b"of before there were partitions")
        assert last_visible(store) == 2
        store.put("k=1/day=a%20b/part-000000007-00000.csv", b"seen")
        store.put("k=2/part-000000004-00000.csv", b"seen")
        assert last_visible(store) == 7

    def test_publishing_again_is_no_harm(self, store):
        for name in ("part-0", "part-1", ".part-0.left-over"):
            store.put(f"staging/e/{name}", name.encode())
        for _ in range(2):
            assert store.publish("staging/e", "e", ["part-0", "part-1"])
            assert store.names("e", hidden=True) == ["part-0", "part-1"]
            assert not store.exists("staging/e")
        assert store.get("e/part-1") == b"part-1"
        assert not store.publish("staging/other", "other", ["part-0"])

    def test_what_readers_remove_of_what_was_published_stays_removed(self, store):
        for name in ("part-0", "part-1"):
            store.put(f"staging/e/{name}", name.encode())
        assert store.publish("staging/e", "e", ["part-0", "part-1"])
        store.delete("e/part-0")
        assert store.publish("staging/e", "e", ["part-0", "part-1"])
        assert store.names("e") == ["part-1"]


@pytest.mark.spark
def test_a_name_node_that_does_not_answer_is_not_an_empty_place(spark, monkeypatch):
    """Arrow's file system says "not found" there."""
    monkeypatch.setattr("penstock.store.objects._FIRST_PAUSE", 100.0)  # longer than anyone is patient
    with socket.socket() as taken:  # nobody listens
        taken.bind(("127.0.0.1", 0))
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        hadoop.set("ipc.client.connect.max.retries", "0")
        away = open_store(f"hdfs://127.0.0.1:{taken.getsockname()[1]}/place")
        for ask in (away.get, away.names, away.exists, away.delete):
            with pytest.raises(ps.StorageError, match=r"hdfs://127\.0\.0\.1.*ConnectException"):
                ask("lease")


class Flaky(LocalStore):
    """A disk that fails for a while."""

    def __init__(self, root: str, times: int, number: int = errno.EIO, **options: Any) -> None:
        super().__init__(root, **options)
        self.left, self._number = times, number

    def _get(self, name: str) -> bytes | None:
        if self.left > 0:
            self.left -= 1
            raise OSError(self._number, "it failed")
        return super()._get(name)


class TestFailures:
    def test_one_is_tried_again_and_never_absent(self, tmp_path):
        LocalStore(str(tmp_path)).put("a", b"1")
        pauses: list[float] = []
        assert Flaky(str(tmp_path), 3, sleep=pauses.append).get("a") == b"1"
        assert pauses == sorted(pauses)
        assert len(pauses) == 3

    @pytest.mark.parametrize(
        ("place", "system", "ask", "answer"),
        [
            (builtins, "open", lambda store: store.get("in/a"), b"1"),
            (os, "listdir", lambda store: store.names("in"), ["a"]),
            (os, "stat", lambda store: store.exists("in/a"), True),
            (os, "unlink", lambda store: (store.delete("in/a"), os.path.exists(store.path("in/a")))[1], False),
            (os, "link", lambda store: (store.put_new("in/b", b"2"), store.get("in/b"))[1], b"2"),
            (os, "rename", lambda store: (store.move("in/a", "in/b"), store.get("in/b"))[1], b"1"),
        ],
        ids=["get", "names", "exists", "delete", "put_new", "move"],
    )
    def test_a_disk_that_fails_is_neither_empty_nor_done(self, tmp_path, monkeypatch, place, system, ask, answer):
        """What the system itself answers: nothing below may take its failure for an answer."""
        store, real, left = LocalStore(str(tmp_path), sleep=lambda _: None), getattr(place, system), 2
        store.put("in/a", b"1")

        def fails(*args: Any, **options: Any) -> Any:
            nonlocal left
            if left and str(args[0]).startswith(str(tmp_path)):
                left -= 1
                raise OSError(errno.EIO, "it failed")
            return real(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(place, system, fails)
            found = ask(store)
        assert (found, left) == (answer, 0)

    def test_patience_ends(self, tmp_path):
        now = [0.0]

        def sleep(pause: float) -> None:
            now[0] += pause

        store = Flaky(str(tmp_path), 1 << 30, clock=lambda: now[0], sleep=sleep)
        with pytest.raises(StorageError, match=rf"reading {tmp_path}/a failed \d+ times.*it failed"):
            store.get("a")
        assert now[0] <= objects.PATIENCE_SECONDS

    def test_what_trying_again_does_not_change_is_told_at_once(self, tmp_path):
        store = Flaky(str(tmp_path), 1 << 30, errno.ENOSPC, sleep=lambda _: pytest.fail("it waited"))
        with pytest.raises(StorageError, match=r"reading .*/a failed"):
            store.get("a")

    def test_a_damaged_document_is_neither_absent_nor_whole(self, tmp_path):
        store = LocalStore(str(tmp_path))
        assert store.read("a") is None
        store.write("a", {"x": 1})
        (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-4])
        with pytest.raises(objects.DamagedError, match="a is damaged"):
            store.read("a")


class TestWhereACheckpointMayBe:
    def test_a_store_that_cannot_tell_who_was_first_is_refused(self):
        with pytest.raises(CheckpointError, match=r"wasbs://x/y.*only one can commit; use .*s3://"):
            open_store("wasbs://x/y")

    def test_what_is_missing_is_named(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "obstore", None)
        with pytest.raises(CheckpointError, match=r"needs obstore.*pip install 'penstock\[s3\]'.*shared disk"):
            remote.open_remote("s3a://bucket/ck")


class Uri(str):
    def __truediv__(self, other: object) -> Uri:
        return Uri(f"{self}/{other}")


def test_a_run_with_checkpoint_and_sinks_on_s3_goes_on_there(s3, tmp_path):
    write_files(tmp_path / "data", make_rows(60), 10)
    place = Uri(f"{s3}/{tmp_path.name}")
    build: Callable[[], ps.Flow] = lambda: two_sinks(tmp_path / "data", place)  # type: ignore[arg-type] # noqa: E731
    run_inline(build(), place / "ck", epoch_rows=20, end=False)  # type: ignore[arg-type]
    run_inline(build(), place / "ck", epoch_rows=20)  # type: ignore[arg-type]
    system, inside = fs.FileSystem.from_uri(place)
    fs.copy_files(f"{inside}/scanned", str(tmp_path / "scanned"), source_filesystem=system)
    expected = sequential(build())
    assert read_back(tmp_path / "scanned") == [tuple(row) for row in expected.results["scanned"]]
    found = [tuple(row.values()) for row in ps.read.sink(place / "scanned")]
    assert found == [tuple(row) for row in expected.results["scanned"]]
    assert ps.state.values(place / "ck", "running") == expected.state("running")


@pytest.mark.parametrize("call", ["fsync", "replace", "link"])
def test_a_disk_that_is_full_does_not_become_fuller(tmp_path, monkeypatch, call):
    """What was written of a file that could not be finished goes, though the driver may try again and again."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = LocalStore(str(tmp_path))
    store.put("place/old", b"old")
    monkeypatch.setattr(os, call, full)
    for put in (store.put, store.put_new):
        for name in ("place/old", "place/new"):
            with suppress(StorageError):
                put(name, b"new" * 1000)
    assert {path.name for path in (tmp_path / "place").iterdir()} <= {"old", "new"}
