"""A file that runs its flow while it is loaded is refused, with the fix."""

from __future__ import annotations

from penstock.cli import main

TEXT = "import penstock as ps\nflow = ps.Flow('x').source('in', [1]).sink('out')\nps.run(flow, on=ps.Sequential())\n"


def test_it_is_refused(tmp_path, capsys):
    file = tmp_path / "runs_itself.py"
    file.write_text(TEXT)
    assert main(["run", str(file), "--engine", "sequential"]) == 1
    assert 'under `if __name__ == "__main__":`' in capsys.readouterr().err
