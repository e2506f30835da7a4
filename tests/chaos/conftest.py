"""Count the kills of a session, and say how many there were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.reporting import reported


@pytest.fixture
def count_kills(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Return a function that takes note of kills."""

    def count(victim: str, kills: int) -> None:
        request.node.user_properties.append(("kills", (victim, kills)))  # reaches whoever reports, in any process

    return count


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report the kills."""
    counter: Counter[str] = Counter()
    for victim, kills in reported(terminalreporter, "kills"):
        counter[victim] += kills
    if counter:
        parts = ", ".join(f"{kills} {victim}s" for victim, kills in sorted(counter.items()))
        terminalreporter.write_line(f"{counter.total()} kills: {parts}")
