"""Describe machines: cores, what sharing a core gives, what synchronization costs as more share it.

Every number is an input. What the papers state is cited. What they only show in figures that are not in their
text is calibrated: chosen so that the best thread levels fall where the text says that they were measured,
which `tests/lab/sim/test_calibration_sim.py` checks. A result obtained with these numbers is a check of the
controllers, not of the papers' claims.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Synchronization:
    """Hold what the scheduler costs, in seconds."""

    claim: float = 0.5e-6
    """Take an operator from the global list and give it back."""
    claim_sharing: float = 0.0
    """The same, added for each other thread that uses the list."""
    tuple_passing: float = 0.1e-6
    """Copy one tuple into a port's queue and out again."""
    passing_sharing: float = 0.0
    """The same, added for each other running thread: caches and memory are shared."""
    lock: float = 0.1e-6
    """Hold the lock of a port with many producers, or of its operator's state, for one tuple."""
    lock_waiter: float = 0.0
    """The part by which each waiting thread prolongs the lock's hold: the spinning disturbs the holder."""
    wake: float = 5e-6
    """Wake a thread that found no work."""


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    cores: int
    """Logical processors."""
    physical: int
    sharing: tuple[float, ...] = (1.0,)
    """What one physical core gives with 1, 2, ... threads on it, in units of one thread alone."""
    flops: float = 1e9
    """Floating-point operations a second of one thread that has its core to itself."""
    synchronization: Synchronization = Synchronization()
    context_switch: float = 0.1
    """The part of its time that a core loses when it has more threads than it runs at once."""

    def speed(self, threads: int) -> float:
        """Return the speed of each of so many running threads, in units of one thread alone."""
        if threads <= self.physical:
            return 1.0
        each = min(threads, self.cores) / self.physical
        whole = int(each)
        upper = self.sharing[min(whole, len(self.sharing) - 1)]
        lower = self.sharing[whole - 1]
        total = self.physical * (lower + (each - whole) * (upper - lower))
        if threads > self.cores:
            total *= 1 - self.context_switch
        return total / threads


XEON = Machine(
    name="xeon-176",
    # Streams, section 5: 4 processors of 22 cores at 2.2 GHz, two threads a core.
    cores=176,
    physical=88,
    # Calibrated: section 5.4 finds 72 to 132 threads alike on the pipeline, and 80 best on the mixed graph.
    sharing=(1.0, 1.08),
    flops=2.2e9,
    synchronization=Synchronization(
        claim=0.5e-6,
        claim_sharing=2e-9,
        tuple_passing=0.15e-6,
        passing_sharing=0.45e-9,
        # Calibrated: section 5.2 finds 8 to 10 threads best for 10,000 operations a tuple, and clearly fewer
        # at 16.
        lock=0.5e-6,
        lock_waiter=0.1,
    ),
)

POWER8 = Machine(
    name="power8-184",
    # Streams, section 5: 23 cores at 3 GHz (one of 24 is disabled), eight threads a core.
    cores=184,
    physical=23,
    # Calibrated: section 5.4 finds 128 to 160 best on the pipeline and all 184 on the mixed graph.
    sharing=(1.0, 1.5, 1.8, 2.0, 2.1, 2.2, 2.27, 2.3),
    flops=3e9,
    synchronization=Synchronization(
        claim=0.5e-6,
        claim_sharing=1e-9,
        tuple_passing=0.15e-6,
        passing_sharing=0.03e-9,
        # Calibrated: section 5.2 finds 16 to 24 best where XEON has 8 to 10, section 5.4 130 to 184 for ten
        # times the cost.
        lock=0.21e-6,
        lock_waiter=0.05,
    ),
)

CSTREAM_HOST = Machine(name="cstream-12", cores=12, physical=12)
"""C-Stream, section 5: two processors of 6 cores at 2 GHz."""

REBINDING_HOST = Machine(name="rebinding-24", cores=24, physical=12, sharing=(1.0, 1.25), flops=2.5e9)
"""Rebinding, section IV: 12 cores at 2.5 GHz, two threads a core; what the second thread adds is assumed."""
