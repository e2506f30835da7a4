"""Save, load, compare and draw results, and the command line around it."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import plots, results
from bench.__main__ import again, main
from bench.results import ResultError


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Put back what the command line does on SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def result(**figures: Any) -> results.Result:
    machine = {"cores": 2, "python": "3.11.7", "load_1min": 0.5, "versions": {"numpy": "2.0"}}
    return {"benchmark": "b", "command": "python -m bench run b", "seed": 1, "machine": machine, **figures}


def measured(speed: float, spread: float) -> dict[str, Any]:
    interval = {"median": speed, "low": speed - spread, "high": speed + spread, "n": 5}
    return {"side_rows_s": speed, "intervals": {"side": interval}}


def test_a_saved_result_is_loaded_as_it_was(tmp_path: Path) -> None:
    made = result(**measured(100.0, 5.0))
    assert results.load(results.save(made, tmp_path / "deep" / "one.json")) == made
    in_directory = results.save(made, tmp_path / "many")
    assert in_directory.parent == tmp_path / "many"
    assert results.load(in_directory) == made


def test_what_was_printed_is_a_result_too(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("warming\n" + json.dumps(result(x=1)) + "\n")
    assert results.load(tmp_path / "log")["x"] == 1


@pytest.mark.parametrize(("text", "problem"), [("", "is no result; make one"), ('{"x": 1}', "it has no 'benchmark'")])
def test_other_files_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(ResultError, match=problem):
        results.load(tmp_path / "f")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="cannot be read: No such file"):
        results.load(tmp_path / "none")


def test_experiments_are_named_by_what_tells_them_apart() -> None:
    runs = [{"experiment": "calm", "vehicles": 7, "side": side, "mean_ms": 1.0, "best": "never"} for side in ("a", "b")]
    found = results.figures(result(runs=runs))
    assert [figure.full_name for figure in found if figure.name == "mean_ms"] == [
        "calm, a: mean_ms",
        "calm, b: mean_ms",
    ]
    same_texts = [{"graph": "g", "microseconds": weight, "ratio": 2.0} for weight in (20, 500)]
    found = results.figures(result(experiments=same_texts))
    assert [f.full_name for f in found if f.name == "ratio"] == [
        "g, microseconds 20: ratio",
        "g, microseconds 500: ratio",
    ]


@pytest.mark.parametrize(
    ("speed", "verdict"), [(100.0, "within noise"), (109.0, "within noise"), (120.0, "higher"), (80.0, "lower")]
)
def test_a_difference_counts_only_beyond_the_noise(speed: float, verdict: str) -> None:
    (found,) = results.compare(result(**measured(100.0, 5.0)), result(**measured(speed, 5.0)))
    assert found.verdict == verdict
    assert found.ratio == pytest.approx(speed / 100)


def test_figures_without_interval_have_no_verdict() -> None:
    (found,) = results.compare(result(x=0), result(x=2))
    assert (found.verdict, found.ratio) == ("", None)


def test_different_benchmarks_are_not_compared() -> None:
    with pytest.raises(ResultError, match="b cannot be compared with c"):
        results.compare(result(), {**result(), "benchmark": "c"})


def test_what_is_not_the_same_is_said() -> None:
    other = {**result(), "seed": 2, "machine": {"cores": 4, "python": "3.11.7", "load_1min": 9, "versions": {}}}
    assert results.changed_surroundings(result(), other) == ["seed: 1 -> 2", "cores: 2 -> 4", "numpy: 2.0 -> none"]


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="MATPLOTLIB IS NOT INSTALLED: pip install 'penstock[bench]'")
    one, other = result(**measured(100.0, 5.0), setting=7), result(**measured(120.0, 5.0))
    assert list(plots.chosen(one, [])) == ["rows/s"]
    plots.draw([one, other], [], tmp_path / "b.png")
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ResultError, match="no figures to draw that are called z"):
        plots.draw([one], ["z*"], tmp_path / "c.png")
    with pytest.raises(ResultError, match="do not go in one picture"):
        plots.draw([one, {**one, "benchmark": "c"}], [], tmp_path / "c.png")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a benchmark that is short: it runs, is saved, compared with itself run again, and drawn."""
    saved = tmp_path / "r.json"
    options = ["--files", "1", "--file-rows", "300", "--rounds", "2", "--warmup", "0"]
    assert main(["list"]) == 0
    assert "four cheap" in capsys.readouterr().out
    assert main(["w2_threads", *options, "--json", "--save", str(saved)]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed == results.load(saved)
    assert printed["command"].startswith("python -m bench run w2_threads --files 1")
    assert {"cores", "python", "versions"} <= printed["machine"].keys()
    assert main(["compare", str(saved)]) == 0
    shown = capsys.readouterr().out
    assert "penstock_rows_s" in shown
    assert "not the same" not in shown
    assert main(["plot", str(saved), "--output", str(tmp_path / "r.png")]) == 0
    assert (tmp_path / "r.png").stat().st_size > 1_000


def test_wrong_commands_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "no benchmark 'nothing'; there are" in capsys.readouterr().err
    assert main(["run"]) == 2
    assert main(["compare", str(tmp_path / "none")]) == 2


def test_a_command_is_run_again_without_what_it_printed_or_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    import bench.__main__ as command_line

    asked: list[Any] = []

    def measure(name: str, rest: list[str]) -> tuple[results.Result, None]:
        asked.append((name, rest))
        return result(), None

    monkeypatch.setattr(command_line, "measure", measure)
    again({**result(), "command": "python -m bench run b --json --save x.json --rows 5"})
    again({**result(), "command": "python -m bench b --rows 5"})
    assert asked == [("b", ["--rows", "5"])] * 2
