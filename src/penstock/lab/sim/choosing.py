"""Let the shipped scheduling policies choose what simulated workers run.

A policy sees what the engine's policies see: the same object, filled by the same code, in virtual time.
"""

from collections.abc import Sequence
from random import Random

from penstock.lab.sim.pe import PE
from penstock.threads.policies import Moment, Policy


class PolicyChooser:
    """Ask a policy, with a view of each operator that could run."""

    def __init__(self, policy: Policy, *, seed: int = 0) -> None:
        self._policy = policy
        self._random = Random(seed)

    def choose(self, pe: PE, worker: int, candidates: Sequence[int]) -> int:
        moment = Moment(pe.measured.look(), worker, self._random, pe.time_slice)
        return candidates[self._policy.choose([pe.ports.operators[number] for number in candidates], moment)]
