"""What is kept from one report of a flow in this process to the next."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Report:
    """What happened since the last report."""

    began: float
    number: int = 1
    rows_before: int = 0
    operators_before: dict[str, tuple[int, int]] = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)


def rows_since(rows: tuple[int, int], before: tuple[int, int] | None) -> tuple[int, int]:
    """Return the rows in and out that came behind those of an earlier report."""
    return rows if before is None else (rows[0] - before[0], rows[1] - before[1])
