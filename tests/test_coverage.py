"""What `make coverage` runs is what its floor is of."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_rooms_that_are_measured_are_those_whose_tests_run():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]
    (rooms,) = re.findall(r"^COVERED := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(settings["run"]["source"]) == sorted(f"src/penstock/{room}" for room in rooms.split())
    for room in rooms.split():
        assert (ROOT / "src" / "penstock" / room).is_dir()
        assert (ROOT / "tests" / room).is_dir()
    assert settings["run"]["branch"]
    assert settings["report"]["fail_under"] > 0
