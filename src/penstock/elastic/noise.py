"""Tell a change from noise: learn what samples differ by, and how far they may be from what is trusted.

All is relative to the throughput: a noise of 0.1 is a standard deviation of a tenth of it.
"""

import math

NOISE_WIDTH = 3.0
"""Deviations within so many times the usual one are taken for noise."""
# Up to a cap: without it, a spell of wild samples would blind the watch to any later change.
_WIDEST = 0.6
_WEIGHT = 0.1


def learn(noise: float, pairs: int, last: float, sample: float, most: float = math.inf) -> float:
    """Return the noise after one more pair of successive samples; `pairs` counts this one too.

    Successive samples tell it, because a change of load shows in few pairs only. No pair counts for more than `most`.
    """
    # Two samples differ by 1.13 standard deviations in the mean.
    difference = abs(sample - last) / ((sample + last) / 2) / 1.13
    return noise + (min(difference, most) - noise) * max(_WEIGHT, 1 / pairs)


def threshold(noise: float, load_change: float, tolerance: float = 0.0) -> float:
    """Return the deviation from the trusted throughput that is more than noise."""
    return min(_WIDEST, max(load_change, NOISE_WIDTH * noise, tolerance))


def in_a_row(run: int, deviation: float) -> int:
    """Return how many samples in a row deviate on one side, with this one; negative when they are below."""
    side = 1 if deviation > 0 else -1
    return run + side if run * side > 0 else side
