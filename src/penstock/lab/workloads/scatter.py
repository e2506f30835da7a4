"""Scatter integers: random to the eye, the same in every process; any row can be made without those before it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


def scatter(number: npt.NDArray[np.integer], *salt: int) -> Numbers:
    """Mix integers (the finalizer of SplitMix64); each salt, such as a seed, gives other numbers."""
    start = 1
    for each in salt:
        start = int(_mix(np.array([start + each], np.uint64) * _GOLDEN)[0])
    return _mix((number.astype(np.uint64) + np.uint64(start)) * _GOLDEN)


def unit(noise: Numbers, shift: int = 0, bits: int = 16) -> Floats:
    """Make numbers in [0, 1) of some bits of each: one draw serves several purposes."""
    mask = np.uint64((1 << bits) - 1)
    return ((noise >> np.uint64(shift)) & mask).astype(np.float64) / (1 << bits)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(mixed: Numbers) -> Numbers:
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
