"""A real browser for the page: Chromium from the system's packages, driven by Playwright, with a fresh profile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from .visiting import FLAGS, MISSING, Visit

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
_skipped = False


@pytest.fixture(scope="package")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start the browser once for all tests of this directory."""
    global _skipped
    found = shutil.which("chromium")
    if found is None:
        _skipped = True
        pytest.skip(MISSING)
    # Stopped behind these tests: while it is there, the main thread seems to be in an event loop.
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")),
            executable_path=found,
            args=FLAGS,
            headless=True,
            viewport={"width": 1440, "height": 900},
        )
        yield context
        context.close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Visit]:
    """Open pages, and fail the test where one of them writes an error to its console."""
    visit = Visit(chromium)
    yield visit
    visit.close()
    assert visit.problems == []


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say it where nobody can overlook it."""
    if _skipped:
        terminalreporter.write_sep("!", MISSING, red=True)
