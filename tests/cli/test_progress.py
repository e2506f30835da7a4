"""How progress is written: on a terminal, in a log, for machines."""

import io
import json
import sys

import pytest

from penstock.cli.displays import JsonDisplay, LiveDisplay, PlainDisplay, Progress, count, duration, make_display, size
from penstock.errors import OperatorError
from penstock.statistics import FlowStats, OperatorStats


def stats(epoch=1, rows=1000, out=900, seconds=0.25, backlog=0):
    op = OperatorStats(name="op", state_bytes=10)
    return FlowStats(
        0.0, seconds, rows, {"out": out}, operators={"op": op}, backlog=backlog, tasks=2, attempts=1, epoch=epoch
    )


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    """Say that it is a terminal."""

    def isatty(self):
        return True


class TestProgress:
    def test_before_the_first_epoch(self):
        assert Progress(0.0).line() == "waiting for the first epoch"

    def test_line(self):
        progress = Progress(0.0)
        progress.take(stats(), 5.5)
        progress.take(stats(2, 3000, 2700, 1.5, 8000), 7.25)
        assert progress.line() == (
            "epoch 2 in 1.5 s | 4,000 rows in, 3,600 out | 2,000 rows/s | lag 8,000 rows (4.0 s)"
        )

    def test_the_rate_is_that_of_the_last_seconds(self):
        progress = Progress(0.0)
        for second in range(1, 61):
            progress.take(stats(second, 100 if second < 50 else 1000), float(second))
        assert progress.rate() == pytest.approx(1000)

    @pytest.mark.parametrize(("backlog", "text"), [(None, "unknown"), (0, "0"), (500, "500 rows (125 ms)")])
    def test_lag(self, backlog, text):
        progress = Progress(0.0)
        progress.take(stats(backlog=backlog), 1.0)
        assert progress.lag() == text

    def test_total(self):
        progress = Progress(0.0)
        progress.take(stats(), 1.0)
        assert progress.total(2.0) == "1 epoch, 1,000 rows in, 900 out, 1.2 s, 800 rows/s"

    def test_the_start_of_the_command_does_not_count(self):
        progress = Progress(0.0)
        progress.take(stats(rows=3), 20.0)
        progress.take(stats(2, rows=0), 30.0)
        assert progress.total(30.0).endswith("10.2 s, 0.29 rows/s")
        assert "| 0.29 rows/s |" in progress.line()

    def test_a_lag_that_is_not_known_is_left_out(self):
        progress = Progress(0.0)
        progress.take(stats(backlog=None), 1.0)
        assert progress.line() == "epoch 1 in 250 ms | 1,000 rows in, 900 out | 4,000 rows/s"

    def test_total_of_nothing(self):
        assert Progress(0.0).total(0.0) == "0 epochs, 0 rows in, 0 out, 0 ms"


class TestWriting:
    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(0.0421, "42 ms"), (1.25, "1.2 s"), (119, "119.0 s"), (125, "2 min 5 s"), (7300, "2 h 1 min")],
    )
    def test_duration(self, seconds, text):
        assert duration(seconds) == text

    @pytest.mark.parametrize(("amount", "text"), [(12, "12 B"), (4200, "4.2 KB"), (3e9, "3.0 GB"), (5e15, "5000.0 TB")])
    def test_size(self, amount, text):
        assert size(amount) == text

    def test_count(self):
        assert (count(1, "epoch"), count(1200, "epoch")) == ("1 epoch", "1,200 epochs")


class TestDisplays:
    def test_plain_writes_at_most_one_line_a_second(self):
        err, clock = io.StringIO(), Clock()
        display = PlainDisplay(Progress(0.0), err, clock)
        for number in range(1, 21):
            clock.now = number * 0.25
            display.epoch(stats(number))
        lines = err.getvalue().splitlines()
        assert [line.split(" | ")[0].split(" ", 1)[1] for line in lines] == [
            f"epoch {number} in 250 ms" for number in (1, 5, 9, 13, 17)
        ]
        assert "\r" not in err.getvalue()

    def test_json_writes_each_epoch(self):
        err, clock = io.StringIO(), Clock()
        display = JsonDisplay(Progress(0.0), err, clock)
        for number in (1, 2):
            clock.now = float(number)
            display.epoch(stats(number, rows=10))
        display.fail(OperatorError("op", "ValueError: a\nb", "f.py:3", "Row(1)"))
        first, second, failed = map(json.loads, err.getvalue().splitlines())
        assert (first["event"], first["epoch"], first["rows_in"], first["state_bytes"]) == ("epoch", 1, 10, 10)
        assert second["total_rows_in"] == 20
        assert (failed["event"], failed["operator"], failed["where"]) == ("failed", "op", "f.py:3")

    def test_live_makes_room_for_what_the_flow_prints(self, monkeypatch):
        terminal = Terminal()  # both streams, as they meet on a screen
        monkeypatch.setattr(sys, "stdout", terminal)
        display = LiveDisplay(Progress(0.0), terminal, Clock())
        display.tick()
        print("a row")
        print("half", end="")
        display.tick()
        print(" a row")
        display.tick()
        display.close()
        line = "\r\x1b[Kwaiting for the first epoch"
        assert terminal.getvalue() == f"{line}\r\x1b[Ka row\nhalf a row\n{line}\r\x1b[K"
        assert sys.stdout is terminal

    def test_the_choice(self, monkeypatch):
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        assert isinstance(make_display(None, Progress(0.0), io.StringIO()), PlainDisplay)
        assert isinstance(make_display("plain", Progress(0.0), Terminal()), PlainDisplay)
        assert isinstance(make_display("json", Progress(0.0), Terminal()), JsonDisplay)
        live = make_display(None, Progress(0.0), Terminal())
        assert isinstance(live, LiveDisplay)
        live.close()
