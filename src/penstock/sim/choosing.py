"""Let the shipped scheduling policies choose what simulated workers run.

A policy sees an operator as the engine would measure it: the cost and selectivity that it has shown so far,
what waits before and after it, and the flow equations of the graph.
"""

from collections.abc import Sequence
from random import Random

from penstock.policies import Moment, OperatorFlow, OperatorView, Policy, solve_flow
from penstock.sim.graphs import Graph
from penstock.sim.pe import PE


class PolicyChooser:
    """Ask a policy, with a view of each operator that could run."""

    def __init__(self, policy: Policy, graph: Graph, *, seed: int = 0, window: float = 1.0) -> None:
        """Prepare the flow equations; `window` is how long a policy's current window lasts, in seconds."""
        self._policy = policy
        self._random = Random(seed)
        self._window = window
        self._window_start = 0.0
        self._seconds_before = [0.0] * len(graph.operators)
        edges = [(str(i), str(to)) for i, operator in enumerate(graph.operators) for to in operator.outputs]
        # A split sends each batch to one output: of what comes out, each gets its part.
        selectivities = {
            str(i): operator.selectivity / (len(operator.outputs) if operator.split else 1)
            for i, operator in enumerate(graph.operators)
        }
        flow = solve_flow(selectivities, edges)
        self._flow: list[OperatorFlow] = [flow[str(i)] for i in range(len(graph.operators))]

    def choose(self, pe: PE, worker: int, candidates: Sequence[int]) -> int:
        """Return the operator that the policy picks."""
        now = pe.events.now
        if now >= self._window_start + self._window:
            self._window_start = now
            self._seconds_before = list(pe.seconds)
        moment = Moment(now, worker, self._random, pe.time_slice)
        return candidates[self._policy.choose([self._view(pe, operator) for operator in candidates], moment)]

    def _view(self, pe: PE, number: int) -> OperatorView:
        own, flow = pe.operators[number], self._flow[number]
        queue, seconds, processed = pe.ports.queues[number], pe.seconds[number], pe.processed[number]
        cost = seconds / processed if processed > 0 else None
        rate = processed / seconds if seconds > 0 else 0.0
        return OperatorView(
            name=str(number),
            order=flow.order,
            permits=pe.permits[number],
            workers=pe.running[number],
            queued=(round(sum(batch.rows for batch in queue)),),
            front_time=queue[0].born,
            front_number=queue[0].number,
            downstream=tuple(str(to) for to in own.outputs),
            downstream_queued=tuple(round(sum(batch.rows for batch in pe.ports.queues[to])) for to in own.outputs),
            downstream_room=tuple(max(0, pe.ports.room(to)) * pe.rows for to in own.outputs),
            last_run=pe.last_run[number],
            read_rates=(rate,),
            write_rates=(rate * own.selectivity,) * len(own.outputs),
            cost=cost,
            window_time=seconds - self._seconds_before[number],
            inflow=flow.inflow,
            outflow_share=flow.outflow_share,
        )
