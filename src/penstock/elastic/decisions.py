"""Record every decision as a line of JSON, and replay a log to check that the controllers decide the same.

A `Pilot` is a controller with its state, under a name of its own ("pe0/thread_level"). What it logs:

- one line when it starts: which controller, its settings, its state;
- for each step one line for each action, or one `hold` line if there was none: steps that change nothing
  teach the controller too, and a replay needs them. The first line of a step carries the statistics that it
  saw.

Replaying feeds those statistics to controllers made from the start lines and compares what they decide. A `Journal`
runs the controllers of a flow by name, and keeps what they decided for as long as it can be replayed and no longer.

The log must be read by other programs and replayed after an upgrade, so it holds plain JSON and names no Python class:
dataclasses are turned into JSON values and back by their annotations, and the controller tells which to expect.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock.elastic.assignment import Assignment, AssignmentStatistics
from penstock.elastic.base import Action, Actions, Controller, NoState, Value
from penstock.elastic.baselines import (
    GreedyRebinding,
    NaiveAssignment,
    ResourceCentric,
    RoundRobinBinding,
    RoundRobinState,
    RulesState,
    StreamsRules,
    TurnState,
)
from penstock.elastic.batch_size import BatchSize, BatchState, BatchStatistics, BatchWork, WorkDone
from penstock.elastic.core_allocation import AllocationStatistics, CoreAllocation
from penstock.elastic.epochs import (
    EpochState,
    EpochStatistics,
    EpochTasks,
    EpochWait,
    ExecutorCount,
    ExecutorState,
    ExecutorStatistics,
    OneTask,
    OneTaskState,
    PaceState,
    PaceStatistics,
    WorkStatistics,
)
from penstock.elastic.rebinding import BindingStatistics, Rebinding
from penstock.elastic.replicas import Replicas, ReplicaState, ReplicaStatistics
from penstock.elastic.shard_balance import ShardBalance, ShardState, ShardStatistics
from penstock.elastic.thread_level import ThreadLevel, ThreadState, ThreadStatistics
from penstock.elastic.utilization_pool import PoolState, PoolStatistics, UtilizationPool
from penstock.elastic.waiting import WaitingConcurrency, WaitingState, WaitingStatistics

T = TypeVar("T")
Json = Any  # What `json` reads and writes; a recursive alias helps neither mypy nor the reader.

# JSON has no infinities, and `json` would write tokens that other readers refuse.
_SPECIAL = {math.inf: "inf", -math.inf: "-inf"}
_HINTS: dict[type, dict[str, Any]] = {}


def plain(value: Any) -> Json:
    """Return a value as plain JSON: dataclasses become objects, tuples become lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return _SPECIAL.get(value, "nan")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} has no place in the decision log; use a dataclass, tuple or number")


def build(kind: type[T], value: Json) -> T:
    """Rebuild a value of the given type from plain JSON."""
    result: T = _build(kind, value)
    return result


def _hints(kind: type) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


def _build(kind: Any, value: Json) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _build_union(arguments, value)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_build(arguments[0], each) for each in value)
        return tuple(_build(each, part) for each, part in zip(arguments, value, strict=True))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        # A field that the log does not have takes its default: an old log replays on a newer controller.
        return kind(**{name: _build(hints[name], each) for name, each in value.items()})
    if kind is float:
        return float(value)
    if kind in (int, str, bool) and not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, found {value!r}")
    return value


def _build_union(kinds: tuple[Any, ...], value: Json) -> Any:
    if value is None:
        return None
    for kind in kinds:
        if kind in (int, float, str, bool) and type(value) is kind:
            return value
    errors = []
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _build(kind, value)
        except (TypeError, ValueError, AttributeError) as error:
            errors.append(str(error))
    raise TypeError(f"{value!r} fits none of {kinds}: {'; '.join(errors)}")


@dataclass(frozen=True, slots=True)
class Entry:
    """Tie a controller to the types that its log holds."""

    controller: type[Any]
    state: type[Any]
    statistics: type[Any]


_ENTRIES = (
    Entry(Assignment, NoState, AssignmentStatistics),
    Entry(BatchSize, BatchState, BatchStatistics),
    Entry(BatchWork, int, WorkDone),
    Entry(CoreAllocation, NoState, AllocationStatistics),
    Entry(EpochTasks, EpochState, EpochStatistics),
    Entry(EpochWait, PaceState, PaceStatistics),
    Entry(ExecutorCount, ExecutorState, ExecutorStatistics),
    Entry(GreedyRebinding, NoState, BindingStatistics),
    Entry(NaiveAssignment, TurnState, AssignmentStatistics),
    Entry(OneTask, OneTaskState, WorkStatistics),
    Entry(Rebinding, NoState, BindingStatistics),
    Entry(Replicas, ReplicaState, ReplicaStatistics),
    Entry(ResourceCentric, ShardState, ShardStatistics),
    Entry(RoundRobinBinding, RoundRobinState, BindingStatistics),
    Entry(ShardBalance, ShardState, ShardStatistics),
    Entry(StreamsRules, RulesState, ThreadStatistics),
    Entry(ThreadLevel, ThreadState, ThreadStatistics),
    Entry(UtilizationPool, PoolState, PoolStatistics),
    Entry(WaitingConcurrency, WaitingState, WaitingStatistics),
)

CONTROLLERS: dict[str, Entry] = {entry.controller.name: entry for entry in _ENTRIES}
"""Every controller that may appear in a log. `Static` decides nothing, so it has nothing to log."""


State = TypeVar("State")
Statistics = TypeVar("Statistics")

START, HOLD = "start", "hold"


@dataclass(frozen=True, slots=True)
class Decision:
    """Hold one line of the log."""

    controller: str
    step: int
    what: str
    target: str = ""
    before: Value = None
    after: Value = None
    _: KW_ONLY
    why: str = ""
    time: float | None = None
    epoch: int | None = None
    statistics: Json = None
    """What the step saw, as plain JSON; on its first line only."""

    def action(self) -> Action:
        """Return the line as the action that it logs."""
        return Action(self.what, self.target, self.before, self.after, self.why)


# `from` is a word of Python's own, and `seen` is shorter than what it names.
_NAMES = {"before": "from", "after": "to", "statistics": "seen"}
_LINE = ("time", "epoch", "controller", "step", "what", "target", "before", "after", "why", "statistics")
_OPTIONAL = ("time", "epoch", "statistics")


def to_json(decision: Decision) -> str:
    """Write a decision as one line of JSON; time, epoch and statistics are left out where there are none."""
    values = {name: plain(getattr(decision, name)) for name in _LINE if name != "statistics"}
    values["statistics"] = decision.statistics
    kept = {_NAMES.get(name, name): values[name] for name in _LINE if values[name] is not None or name not in _OPTIONAL}
    return json.dumps(kept, allow_nan=False, ensure_ascii=False)


def from_json(line: str) -> Decision:
    """Read a decision from one line of JSON."""
    back = {there: here for here, there in _NAMES.items()}
    values = {back.get(key, key): value for key, value in json.loads(line).items()}
    seen = values.pop("statistics", None)
    return replace(build(Decision, values), statistics=seen)


@dataclass(frozen=True, slots=True)
class Pilot(Generic[State, Statistics]):
    """Run one controller and log what it does; immutable, like the controller."""

    name: str
    controller: Controller[State, Statistics]
    state: State
    steps: int = 0

    @staticmethod
    def begin(
        name: str,
        controller: Controller[State, Statistics],
        time: float | None = None,
        epoch: int | None = None,
    ) -> tuple[Pilot[State, Statistics], Decision]:
        """Return a controller at its start, and the line that says so."""
        pilot = Pilot(name, controller, controller.start())
        settings = {"type": controller.name, "settings": plain(controller), "state": plain(pilot.state)}
        why = f"{controller.name} starts"
        return pilot, Decision(name, 0, START, why=why, time=time, epoch=epoch, statistics=settings)

    def step(
        self, statistics: Statistics, time: float | None = None, epoch: int | None = None
    ) -> tuple[Pilot[State, Statistics], Actions, tuple[Decision, ...]]:
        """Return the next pilot, what to do, and the lines to log."""
        state, actions = self.controller.step(self.state, statistics)
        number = self.steps + 1
        after = replace(self, state=state, steps=number)
        lines = tuple(
            Decision(
                self.name, number, each.what, each.target, each.before, each.after, why=each.why, time=time, epoch=epoch
            )
            for each in actions or (Action(HOLD, "", None, None, ""),)
        )
        return after, actions, (replace(lines[0], statistics=plain(statistics)), *lines[1:])


@dataclass(frozen=True, slots=True)
class Difference:
    """Say where a replay decided otherwise than the log."""

    controller: str
    step: int
    logged: Actions
    replayed: Actions


@dataclass(frozen=True, slots=True)
class Replay:
    """Report a replay: how many steps and actions it compared, and where they differ."""

    steps: int
    actions: int
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Say whether every decision was made again."""
        return not self.differences


def replay(log: Iterable[Decision]) -> Replay:
    """Feed the recorded statistics to the controllers and compare what they decide."""
    running: dict[str, tuple[Any, Any, type[Any]]] = {}
    steps = actions = 0
    differences = []
    for lines in _steps(log):
        first = lines[0]
        if first.what == START:
            running[first.controller] = _restart(first)
            continue
        if first.controller not in running:
            raise ValueError(f"step {first.step} of {first.controller} has no start line before it")
        controller, state, kind = running[first.controller]
        state, decided = controller.step(state, build(kind, first.statistics))
        running[first.controller] = (controller, state, kind)
        logged = tuple(line.action() for line in lines if line.what != HOLD)
        steps, actions = steps + 1, actions + len(logged)
        # A log holds plain JSON: the decided actions are compared as they would be logged.
        if logged != tuple(build(Action, plain(action)) for action in decided):
            differences.append(Difference(first.controller, first.step, logged, decided))
    return Replay(steps, actions, tuple(differences))


def _restart(line: Decision) -> tuple[Any, Any, type[Any]]:
    """Make a controller and its state from a start line."""
    entry = CONTROLLERS.get(line.statistics["type"])
    if entry is None:
        raise ValueError(f"{line.controller}: there is no controller {line.statistics['type']!r}")
    controller = build(entry.controller, line.statistics["settings"])
    return controller, build(entry.state, line.statistics["state"]), entry.statistics


def _steps(log: Iterable[Decision]) -> Iterator[list[Decision]]:
    """Gather the lines of each step; lines of other controllers may lie between them."""
    open_steps: dict[str, list[Decision]] = {}
    for line in log:
        lines = open_steps.get(line.controller)
        if lines is not None and line.statistics is None and line.step == lines[0].step:
            lines.append(line)
            continue
        if lines is not None:
            yield lines
        if line.statistics is None:
            raise ValueError(f"step {line.step} of {line.controller} begins without its statistics")
        open_steps[line.controller] = [line]
    yield from open_steps.values()


KEPT = 500
"""A chapter of the journal has as many epochs, or periods; the last two chapters are kept."""
MOST_BYTES = 8 << 20
"""A chapter that would be longer than this on disk ends sooner: a thousand operators have much to say, and what keeps
the newest part of it must find the beginning of a chapter in there."""
_LINE_BYTES = 250
"""About what a line takes without its statistics."""


class Journal:
    """The controllers of a run, each under its name, and their decisions.

    A moment is the number of an epoch, or of a period that has its `time` in seconds, too. A run may last for ever, so
    old decisions go. A chapter begins with a start line of every controller that holds the state it has by then: any
    chapter can be replayed without the ones before.
    """

    def __init__(self) -> None:
        self._pilots: dict[str, Pilot[Any, Any]] = {}
        # How many lines are gone, the chapter before, and this one. One reference, so that who reads it while a chapter
        # ends sees all of it as of one moment.
        self._book: tuple[int, list[Decision], list[Decision]] = (0, [], [])
        self._since = self._bytes = 0

    @property
    def decisions(self) -> list[Decision]:
        """Return what was decided, oldest first; chapters before the last two are gone."""
        return self.decisions_since(0)[0]

    def decisions_since(self, known: int) -> tuple[list[Decision], int]:
        """Return what was decided behind so many decisions, as far as it is kept, and how many there are by now."""
        dropped, before, chapter = self._book
        kept = [*before, *chapter]
        return kept[max(0, known - dropped) :], dropped + len(kept)

    def begin(self, name: str, controller: Controller[Any, Any], moment: int, time: float | None = None) -> None:
        self._pilots[name], line = Pilot.begin(name, controller, *_stamp(moment, time))
        self._book[2].append(line)

    def has(self, name: str) -> bool:
        """Tell whether a controller of that name decides."""
        return name in self._pilots

    def end(self, name: str) -> None:
        """Let a controller go: later chapters begin without it."""
        self._pilots.pop(name, None)

    def state(self, name: str) -> Any:
        return self._pilots[name].state

    def step(self, name: str, statistics: Any, moment: int, time: float | None = None) -> Actions:
        """Let a controller decide; return what to do."""
        if moment - self._since >= KEPT or self._bytes >= MOST_BYTES:
            self._turn(moment, time)
        self._pilots[name], actions, lines = self._pilots[name].step(statistics, *_stamp(moment, time))
        self._book[2].extend(lines)
        self._bytes += len(json.dumps(lines[0].statistics)) + _LINE_BYTES * len(lines)
        return actions

    def _turn(self, moment: int, time: float | None) -> None:
        """Begin a new chapter."""
        dropped, before, chapter = self._book
        starts = []
        for name, pilot in self._pilots.items():
            _, line = Pilot.begin(name, pilot.controller, *_stamp(moment, time))
            why = f"{pilot.controller.name} goes on"
            seen = {**line.statistics, "state": plain(pilot.state)}
            starts.append(replace(line, step=pilot.steps, why=why, statistics=seen))
        self._book, self._since, self._bytes = (dropped + len(before), chapter, starts), moment, 0


def _stamp(moment: int, time: float | None) -> tuple[float | None, int | None]:
    """Return the time and the epoch of a line: a period has the one, an epoch the other."""
    return (None, moment) if time is None else (time, None)
