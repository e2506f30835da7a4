"""Where short runs keep their checkpoints: in memory if possible, so that thousands of epochs wait for no disk."""

from __future__ import annotations

import tempfile

from ..in_memory import quick_place


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Make a directory that is removed at the end of a `with` block."""
    return tempfile.TemporaryDirectory(prefix="penstock-", dir=quick_place())
