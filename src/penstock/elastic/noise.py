"""What measurements differ by while nothing changes, and when they differ by more.

Noise is relative to what is measured: 0.1 is a standard deviation of a tenth of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

NOISE_WIDTH = 3.0
"""Deviations within so many times the usual one are taken for noise."""
# Up to a cap: without it, a spell of wild samples would blind the watch to any later change.
_WIDEST = 0.6
KNOWN = 4
"""Periods after which it is known what comes."""
SURE = 3
"""Periods in a row that a flow must fall behind, at least, to mean that more comes."""
_WEIGHT = 0.1


def threshold(noise: float, load_change: float, tolerance: float = 0.0) -> float:
    """Return the deviation from the trusted throughput that is more than noise."""
    return min(_WIDEST, max(load_change, NOISE_WIDTH * noise, tolerance))


def in_a_row(run: int, deviation: float) -> int:
    """Return how many samples in a row deviate on one side, with this one; negative when they are below."""
    side = 1 if deviation > 0 else -1
    return run + side if run * side > 0 else side


@dataclass(frozen=True, slots=True)
class Noise:
    """The standard deviation of a sample as a fraction of it, learned from successive samples.

    A change of load shows in few pairs of them only.
    """

    part: float = 0.0
    pairs: int = 0
    last: float = 0.0
    """What the next sample is compared with: the one before, or the mean at its level; 0 for nothing."""

    def add(self, sample: float, most: float = math.inf) -> Noise:
        """Return it after one more sample; no pair counts for more than `most`."""
        if self.last <= 0:
            return Noise(self.part, self.pairs, sample)
        pairs = self.pairs + 1
        # Two samples differ by 1.13 standard deviations in the mean.
        difference = abs(sample - self.last) / ((sample + self.last) / 2) / 1.13
        return Noise(self.part + (min(difference, most) - self.part) * max(_WEIGHT, 1 / pairs), pairs, sample)

    def apart(self, last: float = 0.0) -> Noise:
        """Return it where the next sample is not of a kind with the last one."""
        return Noise(self.part, self.pairs, last)

    def samples(self, difference: float) -> float:
        """Return the samples whose mean tells such a part: that of n deviates by 1/sqrt(n) of what one does."""
        return (self.part / difference) ** 2


@dataclass(frozen=True, slots=True)
class Usual:
    """What is usual while nothing is changed: the mean of what was seen, and by how much it differs."""

    mean: float = 0.0
    count: int = 0
    noise: float = 0.0
    last: float = 0.0
    suspects: int = 0
    """Samples in a row that differ on one side; negative when they are below."""

    def add(self, sample: float, load_change: float, limit: int) -> tuple[Usual, bool]:
        """Return it with one more sample, and whether more than `limit` in a row show another load."""
        if self.count == 0 or sample <= 0:
            return (Usual(sample, 1, self.noise, sample) if sample > 0 else self), False
        count = self.count + 1
        # One jump may be the load itself: it must not widen the threshold beyond its own size.
        most = 2 * max(self.noise, load_change / NOISE_WIDTH)
        noise = Noise(self.noise, self.count, self.last).add(sample, most).part
        if abs(sample / self.mean - 1) <= threshold(noise, load_change):
            mean = self.mean + (sample - self.mean) * max(_WEIGHT, 1 / count)
            return Usual(mean, count, noise, sample), False
        suspects = in_a_row(self.suspects, sample / self.mean - 1)
        if abs(suspects) > limit:
            return Usual(sample, 1, noise, sample), True
        return Usual(self.mean, count, noise, sample, suspects), False


@dataclass(frozen=True, slots=True)
class Coming:
    """What usually comes, by what is done while a flow keeps up, and whether more comes once it does not.

    What a hiccup left undone is done later, so that more is done than usually comes: but no more than was left undone.
    Where that is exceeded and the flow still does not keep up, it is the load that grew.
    """

    usual: Usual = field(default_factory=Usual)
    behind: int = 0
    """Periods in a row in which it did not keep up."""
    surplus: float = 0.0
    """What was done in them, less what would usually have come, in seconds of that."""

    def add(self, rate: float, seconds: float, keeps_up: bool, load_change: float, limit: int) -> Coming:
        """Take a period in which so much was done per second."""
        if keeps_up or self.usual.count == 0:
            return Coming(self.usual.add(rate, load_change, limit)[0] if keeps_up else self.usual)
        return Coming(self.usual, self.behind + 1, self.surplus + (rate / self.usual.mean - 1) * seconds)

    def grew(self, seconds: float, load_change: float, periods: int = SURE) -> bool:
        """Tell whether that means more, and no noise, after so many periods at least, of about so many seconds."""
        least = max(load_change / 2, NOISE_WIDTH * self.usual.noise * math.sqrt(self.behind))
        return self.usual.count >= KNOWN and self.behind >= periods and self.surplus > least * seconds


@dataclass(frozen=True, slots=True)
class LevelRecord:
    """Keep what was measured at one level: the first trusted throughput, the mean and the sample count."""

    level: int
    first: float
    mean: float
    count: int = 1

    def add(self, throughput: float) -> LevelRecord:
        count = self.count + 1
        return LevelRecord(self.level, self.first, self.mean + (throughput - self.mean) / count, count)


def standard_error(one: LevelRecord, other: LevelRecord, noise: float) -> float:
    """Return the standard error of the difference of two means, as a fraction."""
    return noise * math.sqrt(1 / one.count + 1 / other.count)
