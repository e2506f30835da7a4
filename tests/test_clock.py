"""The clocks that engines measure with: the standard library's own, unless the suite stretches them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock import clock

NAMES = ["monotonic", "perf_counter", "process_time", "thread_time"]


def stretched_by(stretch: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own whose clocks are stretched."""
    environment = {**os.environ, clock.VARIABLE: stretch}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_without_a_stretch_they_are_the_standard_librarys_own():
    code = (
        f"import time; from penstock import clock; print(all(getattr(clock, n) is getattr(time, n) for n in {NAMES}))"
    )
    for unset in ("", "1"):
        assert stretched_by(unset, code).stdout.strip() == "True"


def test_differences_are_so_many_times_as_long():
    readings = iter([100.0, 100.5])
    stretched = clock.stretched(lambda: next(readings), 4)
    assert -stretched() + stretched() == 2.0


@pytest.mark.parametrize("stretch", ["4", "0.25"])
def test_the_variable_stretches_every_clock_but_that_of_waits(stretch):
    code = f"""
import time
from penstock import clock
for name in {NAMES}:
    low = getattr(time, name)()
    found = getattr(clock, name)()
    assert low * {stretch} <= found <= getattr(time, name)() * {stretch}, name
assert time.time() * {stretch} <= clock.shared_time() <= time.time() * {stretch}
assert clock.waiting_time is time.monotonic
assert clock.as_measured(2.0) == 2.0 * {stretch} and clock.as_real(clock.as_measured(2.0)) == 2.0
"""
    done = stretched_by(stretch, code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("wrong", ["fast", "0", "-1", "inf", "nan"])
def test_what_is_no_factor_is_refused(wrong):
    with pytest.raises(ValueError, match=r"PENSTOCK_CLOCK_STRETCH is .*set it to a number above 0"):
        clock.read_stretch({clock.VARIABLE: wrong})
