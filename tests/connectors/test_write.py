"""Where rows go."""

from __future__ import annotations

import pytest

import penstock as ps


@pytest.mark.parametrize("writer", [ps.write.parquet, ps.write.json, ps.write.csv])
def test_a_directory_means_the_same_everywhere(writer, tmp_path, monkeypatch):
    """Workers write it, and they stand where Spark was started, wherever the driver has gone since."""
    monkeypatch.chdir(tmp_path)
    assert writer("out").path == str(tmp_path / "out")
    assert writer("/data/out").path == "/data/out"
    assert writer("s3://bucket/out").path == "s3://bucket/out"
