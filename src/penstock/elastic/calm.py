"""Weigh a change against what it costs, so that noise changes nothing and a real gain is taken at once.

What staying costs is added up from epoch to epoch, as a debt in seconds; what staying saves pays it back, and it never
falls below nothing. A change is due when the debt has reached what the change itself costs: state that follows its
shards, workers that compile and fill their memory anew. A large gain reaches that within an epoch, a small one takes
its time, and what is only noise is paid back before.

A run that is young changes its mind cheaply, because nothing is known yet. Later each change that follows the one
before within the patience must save twice as much as that, and giving back what is held waits out the patience: it is
never urgent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class CalmState:
    """Hold when it began, when the last change was, how many came close to each other, and the debt in seconds."""

    began: float | None = None
    changed: float | None = None
    streak: int = 0
    debt: float = 0.0


@dataclass(frozen=True, slots=True)
class Calm:
    """Hold what a change costs, and the times: all in seconds."""

    change_seconds: float = 0.3
    """What a change costs."""
    settling: float = 45.0
    """How long a run is young."""
    patience: float = 300.0
    """How long nothing is given back after a change, and how far apart changes must be to count as single ones."""
    eagerness: float = 0.03
    """The part of a change's cost that counts at the very beginning; it rises until the run is settled."""

    def young(self, state: CalmState, at: float) -> bool:
        """Tell whether the run is still settling."""
        return state.began is None or at - state.began < self.settling

    def weigh(self, state: CalmState, at: float, regret: float) -> CalmState:
        """Add what staying costs in an epoch; less than nothing is what it saves."""
        began = at if state.began is None else state.began
        return replace(state, began=began, debt=max(0.0, state.debt + regret))

    def cost(self, state: CalmState, at: float) -> float:
        """Return the debt that makes a change due."""
        age = 0.0 if state.began is None else at - state.began
        part = min(1.0, max(self.eagerness, age / self.settling)) if self.settling > 0 else 1.0
        return self.change_seconds * part * 2.0 ** min(state.streak, 20)

    def due(self, state: CalmState, at: float, *, more: bool = True) -> bool:
        """Tell whether a change is due; `more` is one that takes more instead of giving back."""
        if state.debt < self.cost(state, at):
            return False
        return more or self.young(state, at) or self.quiet(state, at)

    def quiet(self, state: CalmState, at: float) -> bool:
        """Tell whether the last change is longer ago than the patience."""
        return state.changed is None or at - state.changed >= self.patience

    def change(self, state: CalmState, at: float) -> CalmState:
        """Note that something was changed: the debt is paid."""
        alone = self.young(state, at) or self.quiet(state, at)
        began = at if state.began is None else state.began
        return CalmState(began, at, 0 if alone else state.streak + 1)
