"""Listing directories that others write to meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pyarrow import fs

from penstock.connectors import paths


def test_a_directory_that_goes_while_it_is_listed_is_gone_and_hidden_ones_are_not_looked_at(tmp_path, monkeypatch):
    for name in ("a/1", "b/2", "_penstock/staging/3", "a/.hidden/4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("row")
    looked, selector = [], fs.FileSelector

    def select(directory: str, **options: Any) -> fs.FileSelector:
        looked.append(Path(directory).name)
        if looked[-1] == "b":
            shutil.rmtree(directory)
        return selector(directory, **options)

    monkeypatch.setattr(fs, "FileSelector", select)
    assert [Path(found.path).name for found in paths.list_files(str(tmp_path))] == ["1"]
    assert sorted(looked) == sorted([tmp_path.name, "a", "b"])
