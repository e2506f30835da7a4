"""Run controllers by name, record each decision as a line of JSON, and replay a log to see that they decide the same.

A `Recorded` is a controller with its state, under a name of its own ("pe0/thread_level"). What it logs:

- one line when it starts: which controller, its settings, its state;
- for each step one line for each action, or one `hold` line if there was none: steps that change nothing
  teach the controller too, and a replay needs them. The first line of a step carries the statistics that it
  saw.

Replaying feeds those statistics to controllers made from the start lines and compares what they decide.

The log must be read by other programs and replayed after an upgrade, so it holds plain JSON and names no Python class:
dataclasses are turned into JSON values and back by their annotations, and the controller tells which to expect.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from penstock.elastic.base import Action, Actions, Controller, Figures, ShardTable, Value
from penstock.elastic.batch_size import BatchSize, BatchWork
from penstock.elastic.climb import WaitingConcurrency
from penstock.elastic.core_allocation import CoreAllocation
from penstock.elastic.epoch_rows import EpochRows
from penstock.elastic.epoch_tasks import EpochTasks
from penstock.elastic.epochs import EpochWait, ExecutorCount, OneTask
from penstock.elastic.rebinding import Rebinding
from penstock.elastic.replicas import Replicas
from penstock.elastic.shard_balance import ShardBalance
from penstock.elastic.thread_level import ThreadLevel
from penstock.elastic.utilization_pool import UtilizationPool

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
        if unknown := set(value) - set(hints):
            raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
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


CONTROLLERS: dict[str, type[Controller[Any, Any]]] = {}
"""Every controller that may appear in a log, by its name there."""


def register(*kinds: type[Controller[Any, Any]]) -> None:
    """Let logs of these controllers be replayed."""
    CONTROLLERS.update({kind.name: kind for kind in kinds})


register(BatchSize, BatchWork, CoreAllocation, EpochRows, EpochTasks, EpochWait, ExecutorCount, OneTask, Rebinding)
register(Replicas, ShardBalance, ThreadLevel, UtilizationPool, WaitingConcurrency)

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
    numbers: Figures = ()
    """What the reason was weighed by."""
    tables: tuple[ShardTable, ...] = ()
    """The task of each shard from now on, by operator, where that changes."""

    def action(self) -> Action:
        return Action(**{name: getattr(self, name) for name in _ACTION})


_ACTION = tuple(field.name for field in dataclasses.fields(Action))
"""What a line has of the action that it logs."""
# `from` is a word of Python's own, and `seen` is shorter than what it names.
_NAMES = {"before": "from", "after": "to", "statistics": "seen"}
_LINE = ("time", "epoch", "controller", "step", "what", "target", "before", "after", "why")
_KEPT = set(_LINE) - {"time", "epoch"}


def to_json(decision: Decision) -> str:
    """Write a decision as one line of JSON; what is optional is left out where there is none of it."""
    values = {name: plain(getattr(decision, name)) for name in _LINE}
    values["numbers"] = {name: plain(value) for name, value in decision.numbers} or None
    values["tables"] = {table.operator: list(table.tasks) for table in decision.tables} or None
    values["statistics"] = decision.statistics
    kept = {_NAMES.get(name, name): value for name, value in values.items() if value is not None or name in _KEPT}
    return json.dumps(kept, allow_nan=False, ensure_ascii=False)


def from_json(line: str) -> Decision:
    back = {there: here for here, there in _NAMES.items()}
    values = {back.get(key, key): value for key, value in json.loads(line).items()}
    seen = values.pop("statistics", None)
    values["numbers"] = list(values.get("numbers", {}).items())
    values["tables"] = [{"operator": name, "tasks": tasks} for name, tasks in values.get("tables", {}).items()]
    return replace(build(Decision, values), statistics=seen)


@dataclass(frozen=True, slots=True)
class Recorded(Generic[State, Statistics]):
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
    ) -> tuple[Recorded[State, Statistics], Decision]:
        """Return a controller at its start, and the line that says so."""
        begun = Recorded(name, controller, controller.start())
        settings = {
            "type": controller.name,
            "version": version_of(controller),
            "settings": plain(controller),
            "state": plain(begun.state),
        }
        why = f"{controller.name} starts"
        return begun, Decision(name, 0, START, why=why, time=time, epoch=epoch, statistics=settings)

    def step(
        self, statistics: Statistics, time: float | None = None, epoch: int | None = None
    ) -> tuple[Recorded[State, Statistics], Actions, tuple[Decision, ...]]:
        """Return what it is then, what to do, and the lines to log."""
        state, actions = self.controller.step(self.state, statistics)
        number = self.steps + 1
        after = replace(self, state=state, steps=number)
        lines = tuple(
            Decision(self.name, number, **{name: getattr(each, name) for name in _ACTION}, time=time, epoch=epoch)
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
    older: tuple[str, ...] = ()
    """The controllers that decided by other rules when the log was written: they cannot decide again."""

    @property
    def same(self) -> bool:
        return not self.differences


def version_of(controller: Any) -> int:
    """Return by which rules a controller decides: another version may decide otherwise from the same statistics."""
    return getattr(controller, "version", 1)


def replay(log: Iterable[Decision]) -> Replay:
    """Feed the recorded statistics to the controllers and compare what they decide.

    Controllers whose rules have changed since are left out, and named. Logs from before versions were written have
    other words for the same reasons: there only what was decided is compared.
    """
    running: dict[str, _Running] = {}
    older: set[str] = set()
    steps = actions = 0
    differences = []
    for lines in _steps(log):
        first = lines[0]
        if first.what == START:
            restarted = _restart(first)
            (older.discard if restarted else older.add)(first.controller)
            if restarted:
                running[first.controller] = restarted
            continue
        if first.controller in older:
            continue
        if first.controller not in running:
            raise ValueError(f"step {first.step} of {first.controller} has no start line before it")
        now = running[first.controller]
        now.state, decided = now.controller.step(now.state, build(now.statistics, first.statistics))
        logged = tuple(line.action() for line in lines if line.what != HOLD)
        steps, actions = steps + 1, actions + len(logged)
        # A log holds plain JSON: the decided actions are compared as they would be logged.
        again = tuple(build(Action, plain(action)) for action in decided)
        if list(map(now.compared, logged)) != list(map(now.compared, again)):
            differences.append(Difference(first.controller, first.step, logged, decided))
    return Replay(steps, actions, tuple(differences), tuple(sorted(older)))


@dataclass(slots=True)
class _Running:
    controller: Any
    state: Any
    statistics: type[Any]
    worded: bool
    """Whether the log has the reasons as they are worded now."""

    def compared(self, action: Action) -> Action:
        return action if self.worded else replace(action, why="", numbers=())


def _restart(line: Decision) -> _Running | None:
    """Make a controller and its state from a start line; None where it decides by other rules by now."""
    kind = CONTROLLERS.get(line.statistics["type"])
    if kind is None:
        raise ValueError(
            f"{line.controller}: there is no controller {line.statistics['type']!r}; those that the papers compare "
            "with are there once penstock.lab is imported"
        )
    version = line.statistics.get("version")
    if (version or 1) != version_of(kind):
        return None
    types = get_type_hints(kind.step)
    state = build(types["state"], line.statistics["state"])
    return _Running(build(kind, line.statistics["settings"]), state, types["statistics"], version is not None)


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
        self._controllers: dict[str, Recorded[Any, Any]] = {}
        # How many lines are gone, the chapter before, and this one. One reference, so that who reads it while a chapter
        # ends sees all of it as of one moment.
        self._book: tuple[int, list[Decision], list[Decision]] = (0, [], [])
        self._since = self._bytes = 0

    @property
    def decisions(self) -> list[Decision]:
        """Return what was decided, oldest first; chapters before the last two are gone."""
        return self.decisions_since(0)[0]

    def decisions_since(self, known: int) -> tuple[list[Decision], int]:
        """Return what was decided after so many decisions, as far as it is kept, and how many there are by now."""
        dropped, before, chapter = self._book
        kept = [*before, *chapter]
        return kept[max(0, known - dropped) :], dropped + len(kept)

    def begin(self, name: str, controller: Controller[Any, Any], moment: int, time: float | None = None) -> None:
        self._controllers[name], line = Recorded.begin(name, controller, *_stamp(moment, time))
        self._book[2].append(line)

    def has(self, name: str) -> bool:
        return name in self._controllers

    def end(self, name: str) -> None:
        """Let a controller go: later chapters begin without it."""
        self._controllers.pop(name, None)

    def state(self, name: str) -> Any:
        return self._controllers[name].state

    def step(
        self,
        name: str,
        statistics: Any,
        moment: int,
        time: float | None = None,
        *,
        detailed: Callable[[Any], Any] = lambda seen: seen,
    ) -> Actions:
        """Let a controller decide; return what to do.

        Where it changes something it decides by what `detailed` makes of the statistics: the same, with what is too
        long to log where nothing changes.
        """
        if moment - self._since >= KEPT or self._bytes >= MOST_BYTES:
            self._turn(moment, time)
        known, actions, lines = self._controllers[name].step(statistics, *_stamp(moment, time))
        if any(action.after is not None for action in actions) and (full := detailed(statistics)) is not statistics:
            known, actions, lines = self._controllers[name].step(full, *_stamp(moment, time))
        self._controllers[name] = known
        self._book[2].extend(lines)
        self._bytes += len(json.dumps(lines[0].statistics)) + _LINE_BYTES * len(lines)
        return actions

    def _turn(self, moment: int, time: float | None) -> None:
        dropped, before, chapter = self._book
        starts = []
        for name, known in self._controllers.items():
            _, line = Recorded.begin(name, known.controller, *_stamp(moment, time))
            why = f"{known.controller.name} goes on"
            seen = {**line.statistics, "state": plain(known.state)}
            starts.append(replace(line, step=known.steps, why=why, statistics=seen))
        self._book, self._since, self._bytes = (dropped + len(before), chapter, starts), moment, 0


def _stamp(moment: int, time: float | None) -> tuple[float | None, int | None]:
    """Return the time and the epoch of a line: a period has the one, an epoch the other."""
    return (None, moment) if time is None else (time, None)
