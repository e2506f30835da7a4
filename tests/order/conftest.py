"""Judge explorations, and print at the end of the test run how much each one saw."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.testing.explorer import Report

_seen: list[tuple[str, Report]] = []


@pytest.fixture
def sound(request: pytest.FixtureRequest) -> Callable[[Report], None]:
    """Assert that an exploration was complete and found nothing."""

    def judge(report: Report) -> None:
        _seen.append((request.node.nodeid.split("test_explorer_")[-1], report))
        assert report.violation is None, str(report.violation)
        assert report.complete, str(report)

    return judge


@pytest.fixture
def broken(request: pytest.FixtureRequest) -> Callable[[Report, str], None]:
    """Assert that an exploration found a planted bug by its symptom."""

    def judge(report: Report, symptom: str) -> None:
        _seen.append((request.node.nodeid.split("test_explorer_")[-1], report))
        assert report.violation is not None, "the planted bug was not found"
        assert symptom in report.violation.message, str(report.violation)

    return judge


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _seen:
        terminalreporter.section("explorer")
    for name, report in _seen:
        found = f"; found: {report.violation.message.splitlines()[0]}" if report.violation else ""
        terminalreporter.write_line(f"{name}: {report}{found}")
