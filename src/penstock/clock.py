"""The clocks that durations are measured with: every engine takes them from here, and a test can stretch them all.

With the environment variable PENSTOCK_CLOCK_STRETCH=4 each measured duration looks four times as long, as on a slower
machine; with 0.25, a quarter, as on a faster one. It is read once, when a process starts, and Spark's workers get it
too. Waiting stays real, and so do times that people or other processes read: a lease, a log. Without the variable these
are the functions of the standard library themselves.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

VARIABLE = "PENSTOCK_CLOCK_STRETCH"


def read_stretch(environment: Mapping[str, str]) -> float:
    """Return how many times as long durations are to look."""
    text = environment.get(VARIABLE) or "1"
    try:
        stretch = float(text)
    except ValueError:
        stretch = 0.0
    if not 0 < stretch < float("inf"):
        raise ValueError(f"{VARIABLE} is {text!r}; set it to a number above 0, such as 4 or 0.25, or unset it")
    return stretch


def stretched(clock: Callable[[], float], stretch: float) -> Callable[[], float]:
    """Return a clock whose differences are `stretch` times as long; the clock itself for 1."""
    if stretch == 1:
        return clock
    return lambda: clock() * stretch


STRETCH = read_stretch(os.environ)
monotonic = stretched(time.monotonic, STRETCH)
perf_counter = stretched(time.perf_counter, STRETCH)
process_time = stretched(time.process_time, STRETCH)
thread_time = stretched(time.thread_time, STRETCH)
shared_time = stretched(time.time, STRETCH)
"""For durations from one process to another. While it is stretched it is no time of day: only differences count."""
time_of_day = time.time
"""For rows whose time is when they arrive; never stretched."""
waiting_time = time.monotonic
"""For the ends of real waits; never stretched."""


def as_measured(seconds: float) -> float:
    """Return a duration that others have measured as it looks by the clocks here."""
    return seconds * STRETCH


def as_real(seconds: float) -> float:
    """Return how long a duration by the clocks here really is."""
    return seconds / STRETCH
