"""What the driver knows of a source: where it stands, and how the same rows are read again."""

from __future__ import annotations

import json
import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.connectors.files import FileFeed
from penstock.connectors.interfaces import Feed, Reader, Slice, cut_splits, read_split

from ..conformance.inline import InlineBackend
from .running import Crash, make_rows, run_inline, write_files


def numbers(reader: Any, found: Slice | None) -> list[int]:
    """Read a slice: the field n of each row, or the row itself."""
    assert found is not None
    row = reader.row_type("in")
    out: list[Any] = []
    for split in found.splits:
        for piece in read_split(reader, row, split, "in"):
            out += piece.rows if piece.columns is None else piece.columns.column(0).to_pylist()
    return out


def logged(value: Any) -> Any:
    """Take what a slice logs through the log."""
    return json.loads(json.dumps(value))


def drain(feed: Feed, reader: Any, limit: int) -> list[int]:
    """Read all that a feed has."""
    out: list[int] = []
    while (found := feed.poll(limit)) is not None:
        out += numbers(reader, found)
    assert feed.exhausted()
    return out


@pytest.mark.parametrize("replay", [False, True], ids=["committed", "begun"])
class TestAfterARestart:
    """Any epoch can be the last one that was committed, and the one after it may have been begun."""

    def check(self, make: Callable[[], Reader], count: int, limit: int, replay: bool) -> None:
        for stop in range(1, 4):
            reader = make()
            feed = reader.feed("in", lambda: 0.0)
            committed = [feed.poll(limit) for _ in range(stop)]
            begun = feed.poll(limit)
            done = [n for found in committed for n in numbers(reader, found)]
            feed.close()
            reader = make()
            feed = reader.feed("in", lambda: 0.0)
            for found in committed:
                assert found is not None
                feed.restore(logged(found.offset))
            if replay:
                assert begun is not None
                done += numbers(reader, feed.replay(logged(begun.logged), logged(begun.offset)))
                feed.restore(logged(begun.offset))
            assert done + drain(feed, reader, limit + 1) == list(range(count))

    def test_items(self, replay):
        self.check(lambda: ps.read.items(list(range(50))), 50, 7, replay)

    def test_items_that_can_be_read_once_only(self, replay):
        self.check(lambda: ps.read.items(iter(range(50))), 50, 7, replay)

    def test_generated(self, replay):
        def make(start: int, stop: int) -> pa.Table:
            return pa.table({"n": range(start, stop)})

        self.check(lambda: ps.read.generate(make, schema={"n": int}, rows=50), 50, 7, replay)

    @pytest.mark.parametrize("limit", [5, 10, 13, 20])
    def test_parquet_files(self, tmp_path, replay, limit):
        write_files(tmp_path, make_rows(100), 10)
        self.check(lambda: ps.read.parquet(str(tmp_path)), 100, limit, replay)

    def test_text_files(self, tmp_path, replay):
        for number in range(10):
            path = tmp_path / f"{number}.json"
            path.write_text("".join(json.dumps({"n": number * 5 + i}) + "\n" for i in range(5)))
            os.utime(path, (number, number))
        self.check(lambda: ps.read.json(str(tmp_path)), 50, 2, replay)


class TestItems:
    def test_an_iterable_that_became_shorter_is_refused(self):
        feed = ps.read.items([1, 2]).feed("in", lambda: 0.0)
        feed.restore({"taken": 5})
        with pytest.raises(ps.SourceError, match=r"'in': 5 rows were processed .* now has 2"):
            feed.poll(1)
        with pytest.raises(ps.SourceError, match="no longer has the rows 1 to 4"):
            feed.replay({"start": 1, "stop": 4}, {"taken": 4})


class TestGenerated:
    def test_a_rate_is_kept_and_goes_on_where_it_stood(self):
        now = [100.0]
        reader = ps.read.rate(10)
        feed = reader.feed("in", lambda: now[0])
        assert feed.poll(1000) is None
        now[0] += 2
        found = feed.poll(5)
        assert found is not None
        assert (found.rows, found.backlog) == (5, 15)
        assert not feed.exhausted()
        second = reader.feed("in", lambda: now[0])
        second.restore(found.offset)
        assert second.poll(1000) is None  # the time that no driver ran is not made up for
        now[0] += 1
        again = second.poll(1000)
        assert again is not None
        assert (again.splits[0].start, again.splits[0].stop) == (5, 15)


class TestFiles:
    def feed(self, path: Path, **options: Any) -> Feed:
        return ps.read.parquet(str(path), schema={"n": int}, **options).feed("in", lambda: 0.0)

    def test_order_is_that_of_times_of_change_and_then_of_names(self, tmp_path):
        write_files(tmp_path, make_rows(40), 10)
        for name, moment in [("0000", 5), ("0001", 3), ("0002", 3), ("0003", 1)]:
            os.utime(tmp_path / f"{name}.parquet", (moment, moment))
        reader = ps.read.parquet(str(tmp_path))
        found = self.feed(tmp_path).poll(100)
        assert numbers(reader, found) == [*range(30, 40), *range(10, 30), *range(10)]

    def test_what_comes_later_comes_behind_whatever_its_time(self, tmp_path):
        write_files(tmp_path, make_rows(20), 10, first=5)
        feed = self.feed(tmp_path, follow=True)
        first = feed.poll(15)
        write_files(tmp_path, make_rows(30)[20:], 10, first=0)
        assert first is not None
        assert [split.path for split in first.splits] == [f"{tmp_path}/0005.parquet", f"{tmp_path}/0006.parquet"]
        for feed_now in (feed, self.feed(tmp_path, follow=True)):
            if feed_now is not feed:
                feed_now.restore(first.offset)
            rest = [feed_now.poll(5), feed_now.poll(10)]
            assert [[split.path[-12:-8] for split in found.splits if split.path] for found in rest if found] == [
                ["0006"],
                ["0000"],
            ]
            assert feed_now.poll(1) is None
            assert not feed_now.exhausted()

    def test_aligned_slices_end_with_a_row_group(self, tmp_path):
        for name in ("a", "b"):
            table = pa.table({"n": list(range(100))})
            pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=30)
        feed = ps.read.parquet(str(tmp_path)).feed("in", lambda: 0.0, aligned=True)
        slices = []
        while (found := feed.poll(50)) is not None:
            slices.append([(split.start, split.stop) for split in found.splits])
            assert found.rows == sum(stop - start for start, stop in slices[-1])
        assert slices == [[(0, 60)], [(60, 100), (0, 30)], [(30, 90)], [(90, 100)]]
        assert feed.exhausted()

    def test_hidden_and_empty_files_are_left_out(self, tmp_path):
        write_files(tmp_path, make_rows(10), 10)
        write_files(tmp_path / "_more", make_rows(10), 10)
        (tmp_path / ".part").write_text("half of")
        (tmp_path / "empty.parquet").touch()
        found = self.feed(tmp_path).poll(100)
        assert found is not None
        assert [split.path for split in found.splits] == [f"{tmp_path}/0000.parquet"]

    def test_an_offset_that_needs_no_other_holds_after_a_replay_too(self, tmp_path):
        write_files(tmp_path, make_rows(30), 10)
        first = self.feed(tmp_path)
        begun = first.poll(14)
        assert begun is not None
        second = self.feed(tmp_path)
        second.replay(logged(begun.logged), logged(begun.offset))
        second.restore(logged(begun.offset))
        third = self.feed(tmp_path)
        third.restore(logged(second.full_offset()))
        assert drain(third, ps.read.parquet(str(tmp_path)), 100) == list(range(14, 30))

    def test_a_begun_file_that_is_gone_is_named(self, tmp_path):
        write_files(tmp_path, make_rows(20), 10)
        first = self.feed(tmp_path).poll(14)
        assert first is not None
        (tmp_path / "0001.parquet").unlink()
        feed = self.feed(tmp_path)
        feed.restore(first.offset)
        with pytest.raises(ps.SourceError, match=r"0001\.parquet is gone, of which 4 rows .* restore it"):
            feed.poll(100)

    def test_a_file_that_is_no_parquet_is_named(self, tmp_path):
        write_files(tmp_path, make_rows(10), 10)
        whole = (tmp_path / "0000.parquet").read_bytes()
        (tmp_path / "0001.parquet").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ps.SourceError, match=r"0001\.parquet cannot be read as parquet.*move it in when"):
            self.feed(tmp_path).poll(100)

    def test_a_file_of_a_begun_epoch_that_is_gone_is_named(self, tmp_path):
        write_files(tmp_path, make_rows(10), 10)
        reader = ps.read.parquet(str(tmp_path))
        found = self.feed(tmp_path).poll(100)
        (tmp_path / "0000.parquet").unlink()
        assert found is not None
        with pytest.raises(ps.SourceError, match=r"0000\.parquet is gone"):
            next(read_split(reader, ps.read.items([{"n": 1}]).row_type("in"), found.splits[0], "in"))

    @pytest.mark.parametrize("pieces", [1, 2, 3, 7, 40])
    def test_splits_are_cut_without_loss_and_in_order(self, tmp_path, pieces):
        write_files(tmp_path, make_rows(95), 10)
        reader = ps.read.parquet(str(tmp_path))
        found = self.feed(tmp_path).poll(87)
        assert found is not None
        groups = cut_splits(found.splits, pieces)
        assert len(groups) <= pieces
        whole = Slice(tuple(split for group in groups for split in group), {}, {}, None)
        assert numbers(reader, whole) == list(range(87))


class Server:
    """Serve lines on 127.0.0.1 to one client after the other."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(30)
        self.port = self._listening.getsockname()[1]
        self._client: socket.socket | None = None

    def accept(self) -> None:
        self._client, _ = self._listening.accept()

    def send(self, text: str) -> None:
        assert self._client is not None
        self._client.sendall(text.encode())

    def hang_up(self) -> None:
        if self._client is not None:
            self._client.close()

    def close(self) -> None:
        self.hang_up()
        self._listening.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


class TestSocket:
    def wait_for(self, feed: Any, rows: int) -> None:
        """Wait until the feed has received as many lines."""
        with feed._lines.not_empty:
            assert feed._lines.not_empty.wait_for(lambda: len(feed._lines.queue) >= rows, 30)

    def test_lines_in_order_until_the_server_hangs_up(self, server):
        reader = ps.read.socket("127.0.0.1", server.port)
        feed = reader.feed("in", lambda: 0.0)
        assert feed.poll(10) is None
        server.accept()
        server.send("a\nb\r\nhalf")
        self.wait_for(feed, 2)
        first = feed.poll(10)
        assert first is not None
        assert (first.logged, first.offset) == ({"start": 0, "lines": ["a", "b"]}, {"taken": 2})
        server.send(" done\nc")
        server.hang_up()
        self.wait_for(feed, 3)
        second = feed.poll(1)
        assert second is not None
        assert (second.logged["lines"], second.backlog) == (["half done"], 2)
        third = feed.poll(10)
        assert third is not None
        assert third.logged["lines"] == ["c"]
        assert feed.poll(10) is None
        assert feed.exhausted()
        feed.close()

    def test_the_log_has_the_lines_so_that_they_come_back_without_a_server(self, server):
        reader = ps.read.socket("127.0.0.1", server.port)
        feed = reader.feed("in", lambda: 0.0)
        feed.poll(1)
        server.accept()
        server.send("a\nb\n")
        self.wait_for(feed, 2)
        begun = feed.poll(10)
        assert begun is not None
        feed.close()
        server.close()
        again = reader.feed("in", lambda: 0.0).replay(logged(begun.logged), logged(begun.offset))
        assert pickle.loads(again.splits[0].payload or b"") == [("a",), ("b",)]
        assert again.offset == begun.offset

    def test_a_server_that_does_not_answer_is_named(self, server):
        server.close()
        feed = ps.read.socket("127.0.0.1", server.port).feed("in", lambda: 0.0)
        with pytest.raises(ps.SourceError, match=rf"'in': no server answers at 127\.0\.0\.1:{server.port}"):
            feed.poll(1)

    def test_a_flow_goes_on_with_what_was_received_before_a_crash(self, server, tmp_path):
        def build() -> ps.Flow:
            flow = ps.Flow("lines")
            lines = flow.source("in", ps.read.socket("127.0.0.1", server.port))
            lines.scan(lambda n, row: (n + 1, {"n": n, "line": row.value}), 0, name="numbered").sink(
                "out", ps.write.json(str(tmp_path / "out"))
            )
            return flow

        def serve(text: str) -> None:
            server.accept()
            server.send(text)
            server.hang_up()

        class Dying(InlineBackend):
            def run(self, spec: Any, frame: Any) -> Any:
                raise Crash

        serving = threading.Thread(target=serve, args=["a\n"])
        serving.start()
        with pytest.raises(Crash):
            run_inline(build(), tmp_path / "ck", backend=Dying(1, 0))
        serving.join()
        serving = threading.Thread(target=serve, args=["b\nc\n"])
        serving.start()
        run_inline(build(), tmp_path / "ck")
        serving.join()
        files = sorted((tmp_path / "out").glob("epoch=*/*.json"))
        written = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        assert written == [{"n": 0, "line": "a"}, {"n": 1, "line": "b"}, {"n": 2, "line": "c"}]


def test_all_files_that_were_read_are_put_together_only_for_an_epoch_that_logs_them(tmp_path, monkeypatch):
    """Of a hundred thousand files that takes a tenth of a second."""
    write_files(tmp_path / "data", make_rows(40), 10)
    flow = ps.Flow("files")
    flow.source("rows", ps.read.parquet(str(tmp_path / "data"))).sink("out", ps.write.memory())
    original, asked = FileFeed.full_offset, []

    def counted(feed: FileFeed) -> Any:
        asked.append(feed)
        return original(feed)

    monkeypatch.setattr(FileFeed, "full_offset", counted)
    run_inline(flow, tmp_path / "ck", epoch_rows=10)
    assert len(asked) == 1  # by the first epoch


@pytest.mark.parametrize("form", ["text", "parquet"])
def test_a_file_that_grows_after_it_was_read_is_told_once(tmp_path, caplog, form):
    """Its new rows are never read; a file that is merely removed, or was there at a restart, is nothing to tell."""
    data = tmp_path / "data"
    data.mkdir()

    def write(name: str, rows: int) -> None:
        if form == "text":
            (data / name).write_text("line\n" * rows)
        else:
            pq.write_table(pa.table({"n": range(rows)}), data / name)

    read = ps.read.text if form == "text" else ps.read.parquet
    for name in ("a", "b", "c"):
        write(name, 3)
    reader = read(str(data), follow=True)
    feed: Any = reader.feed("rows", lambda: 0.0)
    first = feed.poll(100)
    assert len(first.splits) == 3
    assert feed.poll(100) is None
    assert not caplog.records
    write("b", 5)
    (data / "c").unlink()
    assert [feed.poll(100) for _ in range(3)] == [None] * 3
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"source 'rows': the file {data / 'b'} has changed after its rows were taken, and is not")
    again: Any = reader.feed("rows", lambda: 0.0)
    again.restore(logged(feed.full_offset()))
    assert again.poll(100) is None
    assert len(caplog.records) == 1
