"""`penstock graph`: each form, to the terminal and to a file."""

import pytest

from penstock.cli import main

from .support import NUMBERS, write


@pytest.fixture
def file(tmp_path):
    return str(write(tmp_path, "numbers_graph.py", NUMBERS))


def test_text_is_the_default(file, capsys):
    assert main(["graph", file]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["in", "double", "out"]


def test_other_forms(file, capsys):
    assert main(["graph", file, "--format", "mermaid"]) == 0
    assert capsys.readouterr().out.startswith("flowchart LR\n")
    assert main(["graph", file + ":flow", "--format", "svg"]) == 0
    assert capsys.readouterr().out.startswith("<svg ")


def test_a_file_tells_the_form_by_its_name(file, tmp_path, capsys):
    assert main(["graph", file, "--output", str(tmp_path / "a.svg")]) == 0
    assert (tmp_path / "a.svg").read_text().startswith("<svg ")
    assert main(["graph", file, "--output", str(tmp_path / "a.png")]) == 2
    assert "tells no format" in capsys.readouterr().err
    assert main(["graph", file, "--output", str(tmp_path / "none" / "a.svg")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_file_that_is_not_there(capsys):
    assert main(["graph", "nowhere.py"]) == 2
    assert "there is no file nowhere.py" in capsys.readouterr().err
