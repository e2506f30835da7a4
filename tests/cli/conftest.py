"""Leave no trace of the files that are loaded here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work where nobody else does: a run keeps its history in the directory that it is started in."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def clean_modules() -> Iterator[None]:
    """Forget the modules and the path that a loaded file added."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        # Libraries loaded on the way stay: they do not survive being loaded twice.
        if "/pytest-" in str(getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]
    sys.path[:] = path
