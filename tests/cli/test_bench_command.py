"""`penstock bench`: the benchmarks of a checkout, and what to do outside of one."""

import subprocess

import pytest

from penstock.cli import bench, main


def test_it_lists_the_benchmarks_of_this_checkout(capfd):
    assert main(["bench"]) == 0
    assert "w1_threads" in capfd.readouterr().out


def test_arguments_and_exit_codes_go_through(monkeypatch):
    calls = []

    def run(command, **options):
        calls.append((command, options))
        return subprocess.CompletedProcess(command, 7)

    monkeypatch.setattr(subprocess, "run", run)
    assert main(["bench", "w1_threads", "--json", "--rows", "10"]) == 7
    command, options = calls[0]
    assert command[1:] == ["-m", "bench", "w1_threads", "--json", "--rows", "10"]
    assert str(bench.checkout()) in options["env"]["PYTHONPATH"]


def test_outside_of_a_checkout_it_says_what_to_do(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "lib" / "penstock" / "cli" / "bench.py"))
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "w1_threads"]) == 2
    assert "Clone it" in capsys.readouterr().err
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "__main__.py").touch()
    (tmp_path / "src" / "penstock").mkdir(parents=True)
    (tmp_path / "src" / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "src" / "deep")
    assert bench.checkout() == tmp_path


@pytest.mark.parametrize("command", ["bench", "doctor", "graph", "new", "sim", "state", "run"])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert f"usage: penstock {command}" in capsys.readouterr().out
