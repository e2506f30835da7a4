"""Read what tests noted for the end of the run: the processes that run them send it along with their results."""

from __future__ import annotations

from typing import Any


def reported(terminalreporter: Any, name: str) -> list[Any]:
    """Return what tests noted under a name, in the order in which they ended."""
    return [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for key, value in report.user_properties
        if key == name
    ]
