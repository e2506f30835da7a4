"""Give the bottleneck operator one more replica (C-Stream, section 4.2), and take back what does not help.

An operator is a bottleneck if its input is congested and its output is not (algorithm 9): it is slow itself,
and not merely held back from below. Congestion is the fraction of the period that a port's buffer was full.
Once a period the most congested bottleneck gets one replica more. Beyond the paper:

- a replica that raised the operator's throughput by less than the sensitivity is taken back, and the operator
  is black-listed at that size until its throughput shows another load;
- partitioned operators take part, up to one replica a shard; the engine moves the shards and their state;
- nothing is done or judged while the operators are short of threads, which another controller then adds;
- an operator whose input stays free, and whose replicas would still not be full with one fewer, gives one
  back; if that proves too few, the replica returns and that size is remembered.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.elastic.base import Action, Actions, percent

STATELESS, PARTITIONED, STATEFUL = "stateless", "partitioned", "stateful"


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """Report one period of an operator and its replicas."""

    name: str
    input_blocked: tuple[float, ...]
    """For each replica, the fraction of time that its input buffer was full."""
    output_blocked: float
    """The largest such fraction among the input ports that it writes to."""
    throughput: float
    """Rows a second, over all replicas."""
    busy: float = 1.0
    """The fraction of time that a replica ran, mean over replicas."""
    kind: str = STATELESS
    shards: int = 1
    inputs: int = 1
    outputs: int = 1

    @property
    def replicas(self) -> int:
        """Return the number of replicas."""
        return len(self.input_blocked)

    @property
    def congestion(self) -> float:
        """Return the mean congestion of the replicas' input ports."""
        return sum(self.input_blocked) / len(self.input_blocked)


@dataclass(frozen=True, slots=True)
class ReplicaStatistics:
    """Report all operators, upstream ones first."""

    operators: tuple[OperatorStatistics, ...]
    short_of_threads: bool = False
    """The threads are all busy and more may still come: a replica could not show yet what it gains."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Keep what an operator did before its last change, until one period shows what the change did."""

    before: int
    after: int
    throughput: float


@dataclass(frozen=True, slots=True)
class OperatorMemory:
    """Keep what was learned about one operator under its present load."""

    name: str
    trial: Trial | None = None
    at_most: int = 0
    """The size beyond which it did not gain; 0 if unknown."""
    at_least: int = 1
    throughput: float = 0.0
    """The throughput under which the limits were learned."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """Hold the memory of every operator that was changed."""

    operators: tuple[OperatorMemory, ...] = ()


@dataclass(frozen=True, slots=True)
class Replicas:
    """Hold the settings: C-Stream's congestion threshold, and Streams' for gain and change of load."""

    name: ClassVar[str] = "replicas"

    high: int = 1
    congestion: float = 0.01
    sensitivity: float = 0.05
    load_change: float = 0.2
    full: float = 0.9
    """A replica is given back only if the others would then be no busier than this."""

    def start(self) -> ReplicaState:
        """Begin without memory."""
        return ReplicaState()

    def step(self, state: ReplicaState, statistics: ReplicaStatistics) -> tuple[ReplicaState, Actions]:
        """Judge the changes of the last period, then make at most one more of each direction."""
        if statistics.short_of_threads:
            return state, ()
        memory = {each.name: each for each in state.operators}
        actions: list[Action] = []
        settled = []
        for operator in statistics.operators:
            own = self._recheck_load(memory.get(operator.name, OperatorMemory(operator.name)), operator)
            own, undo = self._judge(own, operator)
            memory[operator.name] = own
            if undo is not None:
                actions.append(undo)
            else:
                settled.append(operator)
        # One operator grows at a time: two at once could not be told apart by what they gain.
        growing = max(
            (each for each in settled if self._bottleneck(each, memory[each.name])),
            key=lambda each: each.congestion,
            default=None,
        )
        if growing is not None:
            memory[growing.name], action = self._grow(memory[growing.name], growing)
            actions.append(action)
        for operator in settled:
            if operator is not growing and self._idle(operator, memory[operator.name]):
                memory[operator.name], action = self._shrink(memory[operator.name], operator)
                actions.append(action)
        kept = tuple(each for each in memory.values() if each != OperatorMemory(each.name))
        return ReplicaState(kept), tuple(actions)

    def _limit(self, operator: OperatorStatistics) -> int:
        if operator.kind == STATEFUL or operator.inputs != 1 or operator.outputs != 1:
            return 1
        return min(self.high, operator.shards) if operator.kind == PARTITIONED else self.high

    def _bottleneck(self, operator: OperatorStatistics, own: OperatorMemory) -> bool:
        limit = min(self._limit(operator), own.at_most or self.high)
        return self._slow_itself(operator) and operator.replicas < limit

    def _slow_itself(self, operator: OperatorStatistics) -> bool:
        return operator.congestion >= self.congestion and operator.output_blocked < self.congestion

    def _idle(self, operator: OperatorStatistics, own: OperatorMemory) -> bool:
        replicas = operator.replicas
        if replicas <= max(1, own.at_least) or own.trial is not None or operator.congestion >= self.congestion:
            return False
        return operator.busy * replicas / (replicas - 1) <= self.full

    def _recheck_load(self, own: OperatorMemory, operator: OperatorStatistics) -> OperatorMemory:
        """Forget the limits when the throughput shows that they belong to another load."""
        learned = own.throughput
        if learned > 0 and abs(operator.throughput - learned) > self.load_change * learned:
            return replace(own, at_most=0, at_least=1, throughput=0.0)
        return own

    def _judge(self, own: OperatorMemory, operator: OperatorStatistics) -> tuple[OperatorMemory, Action | None]:
        """Keep the last change if it did what it was for, else take it back and remember."""
        trial = own.trial
        if trial is None or trial.after != operator.replicas:
            return replace(own, trial=None), None
        own = replace(own, trial=None)
        gain = operator.throughput / trial.throughput - 1 if trial.throughput > 0 else float("inf")
        slow_itself = self._slow_itself(operator)
        if trial.after > trial.before:
            # Held back from below, it cannot show its gain yet: the bottleneck has moved on, which is
            # success.
            if gain >= self.sensitivity or not slow_itself:
                return own, None
            why = f"replica {trial.after} gained {percent(gain)}, not {percent(self.sensitivity)}: black-listed"
            learned = replace(own, at_most=trial.before, throughput=operator.throughput)
            return learned, Action("replicas", operator.name, trial.after, trial.before, why)
        if not slow_itself:
            return own, None
        why = f"its input is full {percent(operator.congestion)} of the time with {trial.after}: one too few"
        learned = replace(own, at_least=trial.before, throughput=trial.throughput)
        return learned, Action("replicas", operator.name, trial.after, trial.before, why)

    def _grow(self, own: OperatorMemory, operator: OperatorStatistics) -> tuple[OperatorMemory, Action]:
        replicas = operator.replicas
        why = (
            f"its input is full {percent(operator.congestion)} of the time and its output "
            f"{percent(operator.output_blocked)}, with {percent(self.congestion)} as the limit: a bottleneck"
        )
        if operator.kind == PARTITIONED:
            why += f"; its {operator.shards} shards are spread over one replica more, state with them"
        trial = Trial(replicas, replicas + 1, operator.throughput)
        return replace(own, trial=trial), Action("replicas", operator.name, replicas, replicas + 1, why)

    def _shrink(self, own: OperatorMemory, operator: OperatorStatistics) -> tuple[OperatorMemory, Action]:
        replicas = operator.replicas
        left = operator.busy * replicas / (replicas - 1)
        why = f"its input is free and {replicas - 1} would be {percent(left)} busy, not {percent(self.full)}"
        trial = Trial(replicas, replicas - 1, operator.throughput)
        return replace(own, trial=trial), Action("replicas", operator.name, replicas, replicas - 1, why)
