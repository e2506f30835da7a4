"""Say where a workload's results go."""

from __future__ import annotations

import os

from penstock import write
from penstock.connectors.interfaces import Writer


def writer(out: str, name: str, shown: int = 5) -> Writer:
    """Write a sink's rows to a directory of its own in `out`; without `out` print so many of each batch or epoch."""
    return write.parquet(os.path.join(out, name)) if out else write.console(shown)
