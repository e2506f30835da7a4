"""`penstock run` with the sequential engine: what it prints, and how it ends."""

import json
import signal
from dataclasses import replace

import pytest

from penstock.cli import main
from penstock.cli import run as command
from penstock.dashboard.history import find_history, read_history
from penstock.options import Options, Threads
from penstock.run import Run

from .support import NUMBERS, spawn, wait_for, write

FAILING = """
    import penstock as ps

    def invert(n: int) -> float:
        return 1 / n

    flow = ps.Flow("inverse")
    flow.source("in", ps.read.items([2, 0, 1])).map(invert).sink("out", ps.write.console())
"""
ENDLESS = """
    import pyarrow as pa
    import penstock as ps

    def numbers(start, stop):
        return pa.table({"n": list(range(start, stop))})

    flow = ps.Flow("endless")
    flow.source("in", ps.read.generate(numbers, schema={"n": int})).sink("out", lambda rows, epoch: None)
"""
STUCK = """
    import sys, threading
    import penstock as ps

    def wait(n: int) -> int:
        print("inside", file=sys.stderr, flush=True)
        threading.Event().wait()
        return n

    flow = ps.Flow("stuck")
    flow.source("in", ps.read.items([1])).map(wait).sink("out", ps.write.console())
"""


def run(file, *options):
    return main(["run", str(file), "--engine", "sequential", *options])


class TestDone:
    def test_rows_go_to_the_output_and_the_log_to_the_error_stream(self, tmp_path, capsys):
        assert run(write(tmp_path, "plain_numbers.py", NUMBERS)) == 0
        out, err = capsys.readouterr()
        assert out.split() == ["2", "4", "6"]
        assert "done: 2 epochs, 3 rows in, 3 out" in err.splitlines()[-1]

    def test_with_a_quantum(self, tmp_path, capsys):
        file = write(tmp_path, "shared_numbers.py", NUMBERS)
        assert main(["run", str(file), "--engine", "threads", "--quantum", "5 ms", "--no-page"]) == 0
        assert capsys.readouterr().out.split() == ["2", "4", "6"]

    def test_json(self, tmp_path, capsys):
        assert run(write(tmp_path, "json_numbers.py", NUMBERS), "--log", "json", "--epoch-rows", "1", "--no-page") == 0
        events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert [event["event"] for event in events] == ["starting", *["epoch"] * 4, "done"]
        assert events[-1]["rows_in"] == 3

    def test_rows_kept_in_memory_are_warned_of(self, tmp_path, capsys):
        text = "import penstock as ps\nflow = ps.Flow('x').source('in', [1]).sink('kept')\n"
        assert run(write(tmp_path, "keeps.py", text)) == 0
        assert "sink 'kept' are kept in memory" in capsys.readouterr().err
        assert run(write(tmp_path, "keeps_two.py", text + "flow.source('more', [2]).sink('too')\n")) == 0
        warning, starting = capsys.readouterr().err.splitlines()[:2]
        assert "the sinks 'kept', 'too' are kept in memory" in warning
        assert "flow 'x'" in starting

    def test_the_end_says_how_to_see_the_run_again(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        file = write(tmp_path, "seen_again.py", NUMBERS)
        assert run(file) == 0
        assert capsys.readouterr().err.rstrip().endswith("; see it again: penstock page .penstock/numbers")
        assert run(file, "--history", "kept here") == 0
        assert capsys.readouterr().err.rstrip().endswith("; see it again: penstock page 'kept here'")

    def test_each_run_has_a_history_of_its_own(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        file = write(tmp_path, "run_twice.py", NUMBERS)
        assert run(file, "--no-page") == run(file, "--no-page") == 0
        first, second = sorted((tmp_path / ".penstock" / "numbers" / "history").iterdir())
        assert find_history(".penstock/numbers") == f".penstock/numbers/history/{second.name}"
        for each in (first, second):
            assert read_history(str(each)).latest()["state"] == "done"
            assert read_history(str(each)).latest()["totals"]["rows_in"] == 3


class TestThreads:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (["--workers", "utilization"], Options(on=Threads(workers="utilization"))),
            (
                ["--workers", "2", "--replicas", "double=3,f=g=2"],
                Options(on=Threads(workers=2, replicas={"double": 3, "f=g": 2})),
            ),
            (["--replicas", "auto"], Options(on=Threads(replicas="auto"))),
            (["--name-keys", "--latency", "3"], Options(on=Threads(), name_keys=True, latency=3.0)),
            (["--no-end", "--quantum", "5 ms"], Options(on=Threads(quantum="5 ms"), end=False)),
        ],
    )
    def test_options_reach_the_flow(self, tmp_path, monkeypatch, capsys, options, expected):
        monkeypatch.chdir(tmp_path)
        given: list[Options] = []
        monkeypatch.setattr(command, "Run", lambda flow, options: given.append(options) or Run(flow, options))
        named = NUMBERS.replace(".sink(", ".map(double, name='f=g').sink(")
        file = write(tmp_path, "with_threads.py", named)
        assert main(["run", str(file), "--engine", "threads", "--no-page", *options]) == 0
        assert [replace(each, on_epoch=None, history=None, page=None, progress=None) for each in given] == [expected]
        assert capsys.readouterr().out.split() == ["4", "8", "12"]

    def test_an_operator_that_is_not_there(self, tmp_path, capsys):
        file = write(tmp_path, "misnamed.py", NUMBERS)
        assert main(["run", str(file), "--engine", "threads", "--replicas", "doubel=2"]) == 2
        message = "there is no operator 'doubel'; did you mean 'double'? there are in, double, out"
        assert message in capsys.readouterr().err


class TestFailed:
    def test_an_error_of_a_function_is_short_and_its_last_line_says_it_all(self, tmp_path, capsys):
        file = write(tmp_path, "inverse.py", FAILING)
        assert run(file) == 1
        out, err = capsys.readouterr()
        lines = (out + err).splitlines()
        assert len(lines) <= 25
        assert lines[-1] == (
            f"OperatorError: operator 'invert' failed at {file}:5: ZeroDivisionError: division by zero; row: 0"
        )

    def test_a_file_that_fails_names_its_line(self, tmp_path, capsys):
        file = write(tmp_path, "broken.py", "import penstock as ps\n\nps.Flow('x').source('in', [1]).nothing()\n")
        assert run(file) == 1
        lines = capsys.readouterr().err.splitlines()
        assert f'File "{file}", line 3' in "\n".join(lines)
        assert lines[-1].startswith("AttributeError")
        assert len(lines) <= 25

    def test_a_flow_that_is_refused(self, tmp_path, capsys):
        file = write(tmp_path, "refused.py", "import penstock as ps\nflow = ps.Flow('x')\nflow.source('in', [1])\n")
        assert run(file) == 1
        assert "FlowError" in capsys.readouterr().err.splitlines()[-1]

    def test_a_sink_that_needs_spark_is_refused_before_any_row(self, tmp_path, capsys):
        text = "import penstock as ps\nflow = ps.Flow('x').source('in', [1]).sink('out', ps.write.frame(print))\n"
        assert run(write(tmp_path, "writes.py", text)) == 1
        assert "sink 'out' takes Spark DataFrames" in capsys.readouterr().err


class TestUsage:
    @pytest.mark.parametrize(
        "option", [("--tasks", "2"), ("--checkpoint", "x"), ("--every", "1"), ("--master", "local")]
    )
    def test_options_of_spark_need_spark(self, tmp_path, capsys, option):
        assert run(write(tmp_path, "usage.py", NUMBERS), *option) == 2
        assert f"{option[0]} needs --engine spark" in capsys.readouterr().err

    def test_a_file_that_is_not_there(self, tmp_path, capsys):
        assert run(tmp_path / "none.py") == 2
        assert "there is no file" in capsys.readouterr().err

    @pytest.mark.parametrize("arguments", [[], ["nothing"], ["run", "x.py", "--tasks", "0"]])
    def test_what_argparse_refuses(self, arguments):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["run"], "name a file, or a workload"),
            (["run", "no-such-workload"], "there is no workload 'no-such-workload'"),
            (["run", "x.py", "-o", "rows=3"], "-o is for workloads"),
            (["run", "x.py", "--replicas", "auto"], "--replicas needs --engine threads"),
            (["run", "x.py", "--workers", "utilization"], "--workers needs --engine threads"),
            (["run", "x.py", "--threads", "2", "--engine", "threads"], "--threads needs --engine spark"),
            (["run", "x.py", "--epoch-rows", "2", "--engine", "threads"], "needs --engine spark or sequential"),
            (["run", "x.py", "--latency", "2 s", "--engine", "sequential"], "--latency needs --engine spark or"),
            (["run", "x.py", "--page", "0", "--no-page"], "--no-page and --page"),
            (
                ["run", "x.py", "--workers", "utilization", "--engine", "threads", "--model", "manual"],
                "--workers utilization needs --model dynamic; --model manual has",
            ),
            (["run", "x.py", "--quantum", "5 ms"], "--quantum needs --engine threads"),
            (["run", "mobile-fraud", "-o", "calls=abc"], "'calls' of workload 'mobile-fraud' is of type int"),
            (["run", "mobile-fraud", "-o", "colls=3"], "has no option 'colls'"),
        ],
    )
    def test_what_cannot_be_run(self, capsys, arguments, message):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            (
                ("--replicas", "abc"),
                "'abc': give a whole number, 1 or more, or \"auto\", or numbers by operator",
            ),
            (("--replicas", "double=x"), "'double=x': give a whole number, 1 or more"),
            (("--replicas", "a=1,a=2"), "'a=1,a=2': give a whole number, 1 or more"),
            (("--workers", "many"), '\'many\': give a whole number, 1 or more, or "utilization", "streams-rules"'),
            (("--binding", "none"), '\'none\': give "static", "greedy", "barrier"'),
            (("--every", "soon"), "'soon': give a time such as \"500 ms\""),
            (("--latency", "0"), "'0': give a time such as \"500 ms\""),
            (("--tasks", "two"), "'two': give a whole number, 1 or more"),
            (("--page", "99999"), "'99999': give a whole number, 0 to 65,535"),
        ],
    )
    def test_what_argparse_refuses_says_what_to_give(self, capsys, option, message):
        with pytest.raises(SystemExit) as caught:
            main(["run", "x.py", *option])
        assert caught.value.code == 2
        assert message in capsys.readouterr().err

    def test_the_list_has_two_lines_a_workload(self, capsys):
        assert main(["run", "--list"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split()[0] == "failed-logins"
        assert lines[1].lstrip().startswith("-o ")
        assert {line[0] for line in lines[::2]}.isdisjoint(" ")
        assert {line[0] for line in lines[1::2]} == {" "}

    def test_help_tells_the_commands(self, capsys):
        with pytest.raises(SystemExit) as caught:
            main(["--help"])
        out = capsys.readouterr().out
        assert caught.value.code == 0
        assert "run " in out
        assert "state " in out


class TestInterrupt:
    def test_ctrl_c_stops_behind_the_epoch(self, tmp_path):
        write(tmp_path, "endless.py", ENDLESS)
        with spawn(tmp_path, "run", "endless.py", "--engine", "sequential", "--epoch-rows", "100") as process:
            wait_for(process, "epoch 1 ")
            process.send_signal(signal.SIGINT)
            lines = process.communicate()[1].splitlines()
        assert process.returncode == 130
        assert "stopped: " in lines[-1]
        assert "Traceback" not in "".join(lines)

    def test_sigterm_stops_too(self, tmp_path):
        write(tmp_path, "endless.py", ENDLESS)
        with spawn(tmp_path, "run", "endless.py", "--engine", "sequential", "--epoch-rows", "100") as process:
            wait_for(process, "epoch 1 ")
            process.send_signal(signal.SIGTERM)
            process.communicate()
        assert process.returncode == 143

    def test_a_second_ctrl_c_does_not_wait(self, tmp_path):
        write(tmp_path, "stuck.py", STUCK)
        with spawn(tmp_path, "run", "stuck.py", "--engine", "sequential") as process:
            wait_for(process, "inside")
            process.send_signal(signal.SIGINT)
            wait_for(process, "stopping after the epoch")
            process.send_signal(signal.SIGINT)
            process.communicate()
        assert process.returncode == 130
