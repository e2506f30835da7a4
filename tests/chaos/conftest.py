"""Count the kills of a session, and say how many there were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

KILLS = pytest.StashKey[Counter[str]]()


@pytest.fixture
def count_kills(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Return a function that takes note of kills."""
    counter = request.config.stash.setdefault(KILLS, Counter())

    def count(victim: str, kills: int) -> None:
        counter[victim] += kills

    return count


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report the kills."""
    counter = config.stash.get(KILLS, None)
    if counter:
        parts = ", ".join(f"{kills} {victim}s" for victim, kills in sorted(counter.items()))
        terminalreporter.write_line(f"{counter.total()} kills: {parts}")
