"""Give the bottleneck operator one more replica (C-Stream, section 4.2), and take back what does not help.

An operator is a bottleneck if its input is congested and its output is not (algorithm 9): it is slow itself,
and not merely held back from below. Congestion is the fraction of the period that a port's buffer was full.
The most congested bottleneck gets one replica more, and no other does until it is known what that gained.
Beyond the paper:

- a replica that raised the operator's throughput by less than the sensitivity is taken back, and the operator
  is black-listed at that size until its throughput shows another load;
- throughput is noisy, so means are compared: of as many samples as the noise calls for, which is learned from
  them, and a gain counts if it exceeds the sensitivity by two standard errors. At a noise of 0.1 these are ten
  samples before and 16 after, and gains above 13 %: where each replica adds as much as the first, six to eight are
  found; a larger gain shows in fewer;
- only samples in which the operator is the bottleneck show what it can do. While its input is not full, or its
  output holds it back, the replica did what it was for; it stays on trial until the operator is slow again;
- another load is more than `noise_limit` samples in a row that are off by more than noise is, all to one side;
- partitioned operators take part, up to one replica a shard; the engine moves the shards and their state;
- while operators are short of threads, which another controller then adds, a replica cannot show what it gains:
  a caller that knows says so (`short_of_threads`), and nothing is done or judged;
- one worker gains nothing by a second replica, nor one replica by a second worker: who waits for the other waits for
  ever. So while the number of workers is being searched (`workers`), every operator has as many replicas as there are
  workers, and they are judged together; once that has settled, replicas that are idle are given back one by one;
- every operator whose input stays free, and whose replicas would still not be full with one fewer, gives one
  back; if that proves too few, the replica returns and that size is remembered.
"""

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

from penstock.elastic.base import Action, Actions, Figures, in_words, percent, things
from penstock.elastic.costs import Calm, CalmState
from penstock.elastic.noise import NOISE_WIDTH, Coming, LevelRecord, Noise, Usual, in_a_row, standard_error, threshold

STATELESS, PARTITIONED, STATEFUL = "stateless", "partitioned", "stateful"

# So many samples, at least, before the first trial, to know the noise; and at each size, so that each trial teaches it.
_FIRST_SAMPLES = 3
_SAMPLES = 2
# A gain is clear if it is so many standard errors away from the sensitivity; a look before all samples are in must
# show more, or the many looks would find what is not there.
_CLEAR = 2.0
_CLEAR_EARLY = 3.0


@dataclass(frozen=True, slots=True)
class OperatorStatistics:
    name: str
    input_blocked: tuple[float, ...]
    """For each replica, the fraction of time that its input buffer was full."""
    output_blocked: float
    """The largest such fraction among the input ports that it writes to."""
    throughput: float
    """Rows per second, over all replicas."""
    busy: float = 1.0
    """The fraction of time that a replica ran, mean over replicas."""
    kind: str = STATELESS
    _: KW_ONLY
    shards: int = 1
    inputs: int = 1
    outputs: int = 1

    @property
    def replicas(self) -> int:
        return len(self.input_blocked)

    @property
    def congestion(self) -> float:
        return sum(self.input_blocked) / len(self.input_blocked)


@dataclass(frozen=True, slots=True)
class ReplicaStatistics:
    """Report all operators, upstream ones first."""

    operators: tuple[OperatorStatistics, ...]
    short_of_threads: bool = False
    """The threads are all busy and more may still come: a replica could not show yet what it gains.

    The simulator says so. The threads engine gives `workers` instead.
    """
    workers: int | None = None
    """The workers, while their number is being searched; None where it stands still."""
    at: float = 0.0
    """Seconds of a clock that never goes back."""


@dataclass(frozen=True, slots=True)
class ReplicaTrial:
    """Keep what an operator did before its last change, until it is shown what the change did."""

    before: int
    after: int
    base: LevelRecord
    """Its throughput before: as the bottleneck if it grew, as an idle one if it shrank."""


@dataclass(frozen=True, slots=True)
class OperatorMemory:
    """Keep what was learned about one operator under its present load."""

    name: str
    trial: ReplicaTrial | None = None
    at_most: int = 0
    """The size beyond which it did not gain; 0 if unknown."""
    at_least: int = 1
    throughput: float = 0.0
    """The throughput under which the limits were learned; 0 if there are none."""
    suspects: int = 0
    """Samples in a row that differ from that on one side; negative when they are below."""
    _: KW_ONLY
    slow: LevelRecord | None = None
    """Its samples at its present size as the bottleneck, since anything was changed."""
    idle: LevelRecord | None = None
    """Its last samples in a row in which it could do with one replica fewer."""
    noise: Noise = field(default_factory=Noise)
    kept: int = 0
    """Periods in a row in which it was no bottleneck."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    operators: tuple[OperatorMemory, ...] = ()
    calm: CalmState = field(default_factory=CalmState)
    usual: Usual = field(default_factory=Usual)
    """What all operators give together."""
    coming: Coming = field(default_factory=Coming)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Hold the settings: C-Stream's congestion threshold, and Streams' for gain and change of load."""

    name: ClassVar[str] = "replicas"
    version: ClassVar[int] = 2

    high: int = 1
    congestion: float = 0.01
    sensitivity: float = 0.05
    load_change: float = 0.2
    full: float = 0.9
    """A replica is given back only if the others would then be no busier than this."""
    noise_limit: int = 5
    """More samples in a row than this must differ to mean another load."""
    _: KW_ONLY
    most_samples: int = 20
    """Samples of one size that are taken, at most, however noisy they are."""
    calm: Calm | None = None
    """When the run is settled: then only periods in a row show a bottleneck, some time after the last change, and no
    replica is given back until the load is another one. Where more comes than did, the run is young again."""

    def start(self) -> ReplicaState:
        return ReplicaState()

    def step(self, state: ReplicaState, statistics: ReplicaStatistics) -> tuple[ReplicaState, Actions]:
        """Judge what is on trial, then let one operator grow and those that are idle shrink."""
        if statistics.short_of_threads:
            return state, ()
        if self.calm is None:
            return self._decide(state, statistics, patient=False)
        at, calm = statistics.at, self.calm.begin(state.calm, statistics.at)
        together = sum(each.throughput for each in statistics.operators)
        usual, other = state.usual.add(together, self.load_change, self.noise_limit)
        keeps_up = not any(self._slow_itself(each) for each in statistics.operators)
        coming = state.coming.add(together, 1.0, keeps_up, self.load_change, self.noise_limit)
        grew = coming.grew(1.0, self.load_change, _SAMPLES)
        if other or statistics.workers is not None or grew:
            calm = self.calm.begin_again(calm, at)
        patient = not self.calm.young(calm, at)
        after, actions = self._decide(state, statistics, patient=patient, quiet=self.calm.quiet(calm, at), grew=grew)
        calm = self.calm.change(calm, at) if actions else calm
        if actions and not patient:
            calm = self.calm.begin_again(calm, at)  # what one gained is shown before the next one comes
        return replace(after, calm=calm, usual=Usual() if actions else usual, coming=coming), actions

    def _decide(
        self,
        state: ReplicaState,
        statistics: ReplicaStatistics,
        *,
        patient: bool,
        quiet: bool = True,
        grew: bool = False,
    ) -> tuple[ReplicaState, Actions]:
        """Where the load `grew`, a replica that seems to help need not prove it: rows wait meanwhile."""
        if statistics.workers is not None:
            return self._follow(state, statistics, statistics.workers)
        memory = {each.name: each for each in state.operators}
        actions: list[Action] = []
        settled = []
        for operator in statistics.operators:
            own = self._observe(memory.get(operator.name, OperatorMemory(operator.name)), operator)
            own = self._keeps_up(own, operator, patient) if self.calm is not None else own
            own, undo = self._judge(own, operator, grew)
            memory[operator.name] = own
            if undo is not None:
                actions.append(undo)
            else:
                settled.append(operator)
        # One operator grows at a time: two at once could not be told apart by what they gain.
        growing = None
        undecided = any(self._undecided(memory[each.name], each) for each in settled)
        if not undecided and (quiet or not patient):
            times = 0 if grew else 5 if patient else 1
            growing = max(
                (each for each in settled if self._bottleneck(memory[each.name], each, times)),
                key=lambda each: each.congestion,
                default=None,
            )
        if growing is not None:
            memory[growing.name], action = self._grow(memory[growing.name], growing)
            actions.append(action)
        for operator in settled:
            if not patient and operator is not growing and self._idle(memory[operator.name], operator):
                memory[operator.name], action = self._shrink(memory[operator.name], operator)
                actions.append(action)
        if actions:
            # What one has gained may show in another: samples from before and after are not of one kind.
            memory = {name: replace(own, slow=None, idle=None, noise=own.noise.apart()) for name, own in memory.items()}
        return ReplicaState(tuple(memory.values())), tuple(actions)

    def _keeps_up(self, own: OperatorMemory, operator: OperatorStatistics, patient: bool) -> OperatorMemory:
        """Count the periods in which an operator is no bottleneck: a replica that made it so has shown its use."""
        if self._slow_itself(operator):
            return replace(own, kept=0)
        own = replace(own, kept=own.kept + 1)
        trial = own.trial
        if trial is not None and trial.before < trial.after == operator.replicas and own.kept > self.noise_limit:
            own = replace(own, trial=None)
        return replace(own, slow=None) if patient and own.trial is None else own

    def _follow(self, state: ReplicaState, statistics: ReplicaStatistics, workers: int) -> tuple[ReplicaState, Actions]:
        """Have as many replicas as workers, and forget what was learned with another number of them."""
        known = {each.name: each for each in state.operators}
        actions = []
        for operator in statistics.operators:
            wanted = max(1, min(workers, self._limit(operator)))
            if operator.replicas != wanted:
                why = f"{workers} workers are tried, and as many replicas with them: neither can show its gain alone"
                actions.append(_change(operator.name, operator.replicas, wanted, why))
            own = known.get(operator.name, OperatorMemory(operator.name))
            known[operator.name] = OperatorMemory(operator.name, noise=own.noise.apart())
        return ReplicaState(tuple(known.values())), tuple(actions)

    def _limit(self, operator: OperatorStatistics) -> int:
        if operator.kind == STATEFUL or operator.inputs != 1 or operator.outputs != 1:
            return 1
        return min(self.high, operator.shards) if operator.kind == PARTITIONED else self.high

    def _slow_itself(self, operator: OperatorStatistics) -> bool:
        return operator.congestion >= self.congestion and operator.output_blocked < self.congestion

    def _could_spare(self, operator: OperatorStatistics) -> bool:
        replicas = operator.replicas
        if replicas < 2 or operator.congestion >= self.congestion:
            return False
        return operator.busy * replicas / (replicas - 1) <= self.full

    def _observe(self, own: OperatorMemory, operator: OperatorStatistics) -> OperatorMemory:
        """Add the period to what is known, and forget the limits where it shows another load."""
        size, throughput = operator.replicas, operator.throughput
        if own.trial is not None and size not in (own.trial.before, own.trial.after):
            own = replace(own, trial=None)
        if any(record is not None and record.level != size for record in (own.slow, own.idle)):
            own = replace(own, slow=None, idle=None, noise=own.noise.apart())
        if throughput <= 0:
            # Nothing flowed: no evidence for or against any size.
            return own
        slow = _added(own.slow, size, throughput) if self._slow_itself(operator) else own.slow
        idle = _added(own.idle, size, throughput) if self._could_spare(operator) else None
        # What sources give, where it keeps up, may be steadier than what replicas can do.
        tells = self.calm is None or self._slow_itself(operator)
        noise = self._listen(own.noise, throughput) if tells else own.noise.apart()
        return replace(self._recheck_load(replace(own, noise=noise), throughput), slow=slow, idle=idle)

    def _listen(self, noise: Noise, throughput: float) -> Noise:
        """Learn the noise from successive samples, between which nothing was changed."""
        # Once it is known, one jump may be the load itself, and must not hide it.
        known = noise.pairs >= self.most_samples
        return noise.add(throughput, 2 * max(noise.part, self.load_change / NOISE_WIDTH) if known else math.inf)

    def _recheck_load(self, own: OperatorMemory, throughput: float) -> OperatorMemory:
        """Forget the limits when samples in a row show that they belong to another load."""
        if own.throughput <= 0:
            return own
        deviation = throughput / own.throughput - 1
        if abs(deviation) <= threshold(own.noise.part, self.load_change):
            return replace(own, suspects=0)
        suspects = in_a_row(own.suspects, deviation)
        if abs(suspects) <= self.noise_limit:
            return replace(own, suspects=suspects)
        # That a replica was given back under another load says nothing against doing so; that one was added must still
        # show its use.
        trial = own.trial if own.trial is not None and own.trial.after > own.trial.before else None
        return replace(own, trial=trial, at_most=0, at_least=1, throughput=0.0, suspects=0)

    def _wanted(self, own: OperatorMemory) -> int:
        """Return how many samples of a size can be told from those of another."""
        if own.noise.pairs < _FIRST_SAMPLES - 1:
            return _FIRST_SAMPLES
        wanted = min(float(self.most_samples), own.noise.samples(self.sensitivity / _CLEAR))
        return max(_SAMPLES, math.ceil(wanted))

    def _judge(
        self, own: OperatorMemory, operator: OperatorStatistics, grew: bool
    ) -> tuple[OperatorMemory, Action | None]:
        """Keep the last change if it did what it was for, else take it back and remember."""
        trial, now = own.trial, own.slow
        # Not in force yet, or not the bottleneck: it cannot show its gain now, and nothing is amiss.
        if trial is None or operator.replicas != trial.after or now is None or not self._slow_itself(operator):
            return own, None
        if trial.after < trial.before:
            why = f"its input is full {percent(operator.congestion)} of the time with {trial.after}: one too few"
            return self._back(replace(own, at_least=trial.before), trial, why)
        gain = now.mean / trial.base.mean - 1
        margin = standard_error(now, trial.base, own.noise.part)
        # Few pairs of samples may be alike by luck, and what is black-listed is not tried for long.
        lucky = self.calm is not None and own.noise.pairs < self.most_samples
        complete = now.count >= max(self._wanted(own), self.most_samples // 2 if lucky else 0)
        clear = margin * (_CLEAR if complete else _CLEAR_EARLY)
        if self.calm is not None and (grew or complete):
            # One replica too many costs little beside one that helped and is black-listed.
            clear = 0.0 if complete else margin
        if gain >= self.sensitivity + clear and now.count >= _SAMPLES:
            return replace(own, trial=None), None
        if not complete:
            return own, None
        why = (
            f"replica {trial.after} gained {percent(gain)}, give or take {percent(margin)}, "
            f"not {percent(self.sensitivity)}: black-listed"
        )
        return self._back(replace(own, at_most=trial.before), trial, why)

    def _back(self, own: OperatorMemory, trial: ReplicaTrial, why: str) -> tuple[OperatorMemory, Action]:
        learned = replace(own, trial=None, throughput=trial.base.mean, suspects=0)
        return learned, _change(own.name, trial.after, trial.before, why)

    def _undecided(self, own: OperatorMemory, operator: OperatorStatistics) -> bool:
        """Say whether an operator is just showing what its last replica gained."""
        trial = own.trial
        grown = trial is not None and trial.before < trial.after == operator.replicas
        return grown and self._slow_itself(operator)

    def _bottleneck(self, own: OperatorMemory, operator: OperatorStatistics, times: int) -> bool:
        limit = min(self._limit(operator), own.at_most or self.high)
        # Half of the most will do to begin with: large gains show early, and nothing else grows meanwhile.
        enough = min(self._wanted(own), max(_FIRST_SAMPLES, self.most_samples // 2))
        measured = own.slow is not None and own.slow.count >= (enough * times or _SAMPLES)
        return measured and self._slow_itself(operator) and operator.replicas < limit

    def _idle(self, own: OperatorMemory, operator: OperatorStatistics) -> bool:
        return own.idle is not None and own.idle.count >= self._wanted(own) and operator.replicas > own.at_least

    def _grow(self, own: OperatorMemory, operator: OperatorStatistics) -> tuple[OperatorMemory, Action]:
        assert own.slow is not None
        replicas = operator.replicas
        why = (
            f"its input is full {percent(operator.congestion)} of the time and its output "
            f"{percent(operator.output_blocked)}, with {percent(self.congestion)} as the limit: a bottleneck"
        )
        if operator.kind == PARTITIONED:
            why += f"; its {operator.shards} shards are spread over one replica more, state with them"
        trial = ReplicaTrial(replicas, replicas + 1, own.slow)
        figures = (("input_full", operator.congestion), ("output_full", operator.output_blocked))
        return replace(own, trial=trial), _change(operator.name, replicas, replicas + 1, why, figures)

    def _shrink(self, own: OperatorMemory, operator: OperatorStatistics) -> tuple[OperatorMemory, Action]:
        assert own.idle is not None
        replicas = operator.replicas
        left = operator.busy * replicas / (replicas - 1)
        why = f"its input is free and {replicas - 1} would be {percent(left)} busy, not {percent(self.full)}"
        trial = ReplicaTrial(replicas, replicas - 1, own.idle)
        learned = replace(own, trial=trial, throughput=own.idle.mean, suspects=0)
        return learned, _change(operator.name, replicas, replicas - 1, why, (("busy", operator.busy),))


def _added(record: LevelRecord | None, size: int, throughput: float) -> LevelRecord:
    return record.add(throughput) if record is not None else LevelRecord(size, throughput, throughput)


def _change(name: str, before: int, after: int, why: str, figures: Figures = ()) -> Action:
    changed = f"{things(after, 'replica')} of {name} instead of {in_words(before)}"
    return Action("replicas", name, before, after, f"{changed}: {why}", figures)
