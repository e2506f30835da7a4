"""Judge explorations, and print at the end of the test run how much each one saw."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.testing.explorer import Report
from tests.reporting import reported


@pytest.fixture
def sound(request: pytest.FixtureRequest) -> Callable[[Report], None]:
    """Assert that an exploration was complete and found nothing."""

    def judge(report: Report) -> None:
        note(request, report)
        assert report.violation is None, str(report.violation)
        assert report.complete, str(report)

    return judge


@pytest.fixture
def broken(request: pytest.FixtureRequest) -> Callable[[Report, str], None]:
    """Assert that an exploration found a planted bug by its symptom."""

    def judge(report: Report, symptom: str) -> None:
        note(request, report)
        assert report.violation is not None, "the planted bug was not found"
        assert symptom in report.violation.message, str(report.violation)

    return judge


def note(request: pytest.FixtureRequest, report: Report) -> None:
    """Take note of what an exploration saw, for whoever reports, in any process."""
    name = request.node.nodeid.split("test_explorer_")[-1]
    found = f"; found: {report.violation.message.splitlines()[0]}" if report.violation else ""
    request.node.user_properties.append(("explored", f"{name}: {report}{found}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = reported(terminalreporter, "explored")
    if lines:
        terminalreporter.section("explorer")
    for line in lines:
        terminalreporter.write_line(line)
