"""Let the cycle collector look at rows less often while flows run."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT_EVERY = 100_000
"""Objects that may be made before the cycle collector looks at the young ones, while a flow runs."""
_collecting = threading.Lock()
_running: list[tuple[int, int, int]] = []
"""For each flow that runs in this process, the collector's settings from before all of them."""


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Let the cycle collector look at young objects less often while flows run.

    Rows are many and soon gone, and by default it looks at them every 700 of them.
    """
    with _collecting:
        _running.append(_running[0] if _running else gc.get_threshold())
        gc.set_threshold(max(_running[0][0], COLLECT_EVERY), *_running[0][1:])
    try:
        yield
    finally:
        with _collecting:
            before = _running.pop()
            if not _running:
                gc.set_threshold(*before)
