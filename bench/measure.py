"""Compare sides by interleaved rounds: medians and median ratios with bootstrap intervals.

Pure: what is measured is passed in as functions, the bootstrap's seed as a number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")

RESAMPLES = 5_000


@dataclass(frozen=True)
class Estimate:
    """A median with its confidence interval and the number of samples behind it."""

    median: float
    low: float
    high: float
    n: int

    def as_dict(self) -> dict[str, float | int]:
        """Return the fields as JSON likes them."""
        return {"median": self.median, "low": self.low, "high": self.high, "n": self.n}


def interleave(sides: Mapping[str, Callable[[], T]], rounds: int, warmup: int = 0) -> dict[str, list[T]]:
    """Call every side once a round, A B A B ..., and return what each gave, warm-up rounds left out.

    Alternating spreads the machine's slow drift over all sides alike: a pair taken close
    together shares it, so it cancels in the pair's ratio.
    """
    samples: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(warmup + rounds):
        for name, measure in sides.items():
            sample = measure()
            if number >= warmup:
                samples[name].append(sample)
    return samples


def median(values: Sequence[float], confidence: float = 0.95, seed: int = 0) -> Estimate:
    """Return the median of the values with a percentile-bootstrap confidence interval."""
    if not values:
        raise ValueError("no values to take the median of")
    data = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, len(data), size=(RESAMPLES, len(data)))
    medians = np.median(data[picks], axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Estimate(float(np.median(data)), float(low), float(high), len(data))


def ratio(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = 0.95, seed: int = 0
) -> Estimate:
    """Return the median over pairs of numerator / denominator, with its interval.

    The i-th numerator belongs to the i-th denominator: whole pairs are resampled.
    """
    if len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} numerators do not pair with {len(denominators)} denominators")
    return median([a / b for a, b in zip(numerators, denominators, strict=True)], confidence, seed)
