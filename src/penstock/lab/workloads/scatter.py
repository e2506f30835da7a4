"""Scatter integers: random to the eye, the same in every process; any row can be made without those before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mixed(bits: Any) -> Any:
    """Mix 64 bits (the finalizer of SplitMix64): one int, or an array of uint64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> shift)) * factor
        if isinstance(bits, int):  # arrays wrap by themselves
            bits &= MASK
    return bits ^ (bits >> 31)


def scatter(number: npt.NDArray[np.integer], *salt: int) -> Numbers:
    """Mix integers; each salt, such as a seed, gives other numbers."""
    start = 1
    for each in salt:
        start = mixed((start + each) * GOLDEN & MASK)
    return np.asarray(mixed((number.astype(np.uint64) + np.uint64(start)) * np.uint64(GOLDEN)), np.uint64)


def unit(noise: Numbers, shift: int = 0, bits: int = 16) -> Floats:
    """Make numbers in [0, 1) of some bits of each: one draw serves several purposes."""
    mask = np.uint64((1 << bits) - 1)
    return ((noise >> np.uint64(shift)) & mask).astype(np.float64) / (1 << bits)
