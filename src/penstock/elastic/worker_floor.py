"""Keep as many workers as a latency target needs, while the flow keeps up with its sources.

Workers run whatever has work, so all of them are one executor of Elasticutor's model, to which batches arrive: the
fewest that meet the target are the cores that it would be given. Measured rates waver, so two of the last periods must
have asked for more before there are more, and none of them for as many before there are fewer.
"""

from dataclasses import dataclass

from penstock.elastic.core_allocation import AllocationStatistics, ExecutorLoad, allocate

_REMEMBERED = 30
"""Periods for which it is known how many workers the target needed."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The fewest workers that are kept for the target, and what they were found from."""

    workers: int = 1
    needed: tuple[int, ...] = ()
    """The fewest workers that were expected to meet the target, in each of the last periods."""
    latency: float = 0.0
    """What they were expected to give in the last one, in seconds."""
    missed: bool = False
    """Whether no number of workers was expected to meet the target."""


@dataclass(frozen=True, slots=True)
class WorkerFloor:
    """Hold the target in seconds, and the bounds of the number of workers."""

    target: float
    low: int
    high: int

    def observe(self, floor: Floor, batches: float, work: float) -> Floor:
        """Take a period in which so many batches a second came, each of so many seconds of work."""
        if min(batches, work) <= 0:
            return floor
        load = ExecutorLoad("workers", batches, 1 / work)
        plan = allocate(AllocationStatistics(batches, (load,), self.high), self.target)
        needed = (*floor.needed, *plan.cores)[-_REMEMBERED:]
        workers = max(sorted(needed)[-2], min(floor.workers, max(needed))) if len(needed) > 1 else self.low
        return Floor(workers, needed, plan.latency, plan.problem is not None)

    def why(self, floor: Floor, batches: float, work: float) -> str:
        load = f"{batches:.4g} batches/s of {work:.3g} s each"
        return f"{load} need {floor.workers} workers for the target of {self.target} s"

    def why_missed(self, floor: Floor) -> str:
        """Say why no number of workers meets the target."""
        return (
            f"{floor.needed[-1]} workers are expected to give {floor.latency:.3g} s and more do not help; "
            f"the target is {self.target} s"
        )
