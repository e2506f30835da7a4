"""Write W1 as a bare Python loop over the same files: one thread, a dict of states, no engine."""

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.sides import Epoch
from bench.workload import Event, State, running

make_event = partial(tuple.__new__, Event)


class LoopSide:
    """Read an epoch's files and call the user's function for every row, outputs into a list.

    The cyclic garbage collector walks the growing list again and again, at 1,000,000 rows for some 40 % of
    the time: `collector=False` is the loop without it, so that a ratio does not hide that setting.
    """

    def __init__(
        self,
        epochs: Sequence[Sequence[Path]],
        collector: bool = True,
        function: Callable[[State, Event], tuple[State, Any]] = running,
    ) -> None:
        self._epochs, self._function = iter(epochs), function
        self._collector = collector
        self._states: dict[int, State] = {}

    def start(self) -> None:
        """Do nothing: a loop needs no setting up."""

    def run_epochs(self, n: int) -> list[Epoch]:
        """Loop over the next `n` epochs."""
        if not self._collector:
            gc.disable()
        try:
            return [self._run(next(self._epochs)) for _ in range(n)]
        finally:
            gc.enable()

    def _run(self, paths: Sequence[Path]) -> Epoch:
        """Loop over the files of one epoch."""
        began = time.perf_counter()
        states, function = self._states, self._function
        outputs: list[Any] = []
        for path in paths:
            table = pq.read_table(path, use_threads=False)
            columns = [column.to_numpy().tolist() for column in table.columns]
            for row in map(make_event, zip(*columns, strict=True)):
                states[row.key], output = function(states.get(row.key, (0, 0.0)), row)
                outputs.append(output)
        return len(outputs), time.perf_counter() - began

    def stop(self) -> None:
        """Forget the states."""
        self._states.clear()
