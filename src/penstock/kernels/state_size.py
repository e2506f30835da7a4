"""How much memory state takes, about: a few keys are looked at."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from penstock.kernels.join_states import JoinStates
from penstock.kernels.state_columns import ColumnStates

SAMPLED_KEYS = 16
"""Keys that are looked at, in all states together, at least one in each."""
BUDGET = 64
"""Objects that are looked at for one key."""


def state_bytes(states: Iterable[Mapping[Any, Any]]) -> int | None:
    """Guess the bytes in memory of all states; None where they changed while they were looked at."""
    total = 0.0
    states = list(states)
    keys = max(1, SAMPLED_KEYS // max(1, len(states)))
    for state in states:
        if isinstance(state, ColumnStates) or (isinstance(state, JoinStates) and not state.by_rows):
            total += state.bytes
            continue
        try:
            sampled = list(islice(state.items(), keys))
        except RuntimeError:  # a worker added a key meanwhile
            return None
        if sampled:
            mean = sum(_size(key) + _size(value) for key, value in sampled) / len(sampled)
            total += sys.getsizeof(state) + len(state) * mean
    return round(total)


def _size(value: Any, budget: int = BUDGET) -> float:
    """Guess the bytes of a value; of long containers only the first elements are looked at."""
    own = float(sys.getsizeof(value, 64))
    if budget <= 1:
        return own
    inside: list[Any] = []
    count = 0
    try:
        if isinstance(value, dict):
            inside, count = [part for pair in islice(value.items(), 8) for part in pair], 2 * len(value)
        elif isinstance(value, (tuple, list, set, frozenset)):
            inside, count = list(islice(value, 8)), len(value)
        elif hasattr(value, "__dict__"):
            inside, count = list(islice(vars(value).values(), 8)), len(vars(value))
    except RuntimeError:  # a worker changed it meanwhile
        return own
    if not inside:
        return own
    return own + count / len(inside) * sum(_size(part, budget // len(inside)) for part in inside)
