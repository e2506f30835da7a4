"""Say where a workload's results go."""

from __future__ import annotations

import os

from penstock import write
from penstock.connectors.writer import Writer

SHOWN = 5
"""How many rows of a sink are printed an epoch."""


def writer(out: str, name: str) -> Writer:
    """Write the rows of a sink to a directory of its own in `out`; print some of them where there is no `out`."""
    return write.parquet(os.path.join(out, name)) if out else write.console(SHOWN)
