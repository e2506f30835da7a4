"""Steer a running flow by a binding policy: look at the operators every so often, and rebind what it says."""

import threading
from typing import Any

import penstock as ps
from penstock.elastic.rebinding import BindingStatistics, OperatorLoad


class Steersman(threading.Thread):
    """Step a policy while a flow of the bound model runs."""

    def __init__(self, run: ps.Run, policy: Any, workers: int, period: float) -> None:
        super().__init__(daemon=True)
        self._run, self._policy, self._workers, self._period = run, policy, workers, period
        self._state = policy.start()
        self._done = threading.Event()
        self._before: dict[str, tuple[int, float]] = {}
        self.moves = 0

    def run(self) -> None:
        """Step until the flow ends."""
        while not self._done.wait(self._period):
            self._state, actions = self._policy.step(self._state, self._statistics())
            model = self._model()
            for action in actions:
                if action.target in model.bindings():  # its query may have been cancelled meanwhile
                    model.rebind(action.target, action.after)
                    self.moves += 1

    def stop(self) -> None:
        """End it."""
        self._done.set()
        self.join()

    def _model(self) -> Any:
        return self._run._engine.element.model

    def _statistics(self) -> BindingStatistics:
        stats, bindings = self._run.stats, self._model().bindings()
        loads = []
        for operator in stats.operators:
            if operator.name not in bindings:
                continue
            batches, wall = self._before.get(operator.name, (0, 0.0))
            done = operator.batches - batches
            seconds = (operator.wall - wall) / done if done else 0.0
            self._before[operator.name] = operator.batches, operator.wall
            # Every operator gets every batch, so what is in the element and not done waits for it.
            pending = max(0, stats.batches_in - stats.batches_out - max(0, operator.batches - stats.batches_out))
            loads.append(OperatorLoad(operator.name, bindings[operator.name], pending, seconds, done))
        return BindingStatistics(self._workers, tuple(loads))
