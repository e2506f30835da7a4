"""Record every decision as a line of JSON, and replay a log to check that the controllers decide the same.

A `Pilot` is a controller with its state, under a name of its own ("pe0/thread_level"). What it logs:

- one line when it starts: which controller, its settings, its state;
- for each step one line for each action, or one `hold` line if there was none: steps that change nothing
  teach the controller too, and a replay needs them. The first line of a step carries the statistics that it
  saw.

Replaying feeds those statistics to controllers made from the start lines and compares what they decide.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from penstock.elastic.base import Action, Actions, Controller, Value
from penstock.elastic.catalogue import CONTROLLERS
from penstock.elastic.codec import Json, build, plain

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
    ) -> "tuple[Pilot[State, Statistics], Decision]":
        """Return a controller at its start, and the line that says so."""
        pilot = Pilot(name, controller, controller.start())
        settings = {"type": controller.name, "settings": plain(controller), "state": plain(pilot.state)}
        why = f"{controller.name} starts"
        return pilot, Decision(name, 0, START, why=why, time=time, epoch=epoch, statistics=settings)

    def step(
        self, statistics: Statistics, time: float | None = None, epoch: int | None = None
    ) -> "tuple[Pilot[State, Statistics], Actions, tuple[Decision, ...]]":
        """Return the next pilot, what to do, and the lines to log."""
        state, actions = self.controller.step(self.state, statistics)
        number = self.steps + 1
        after = replace(self, state=state, steps=number)
        lines = tuple(
            Decision(self.name, number, each.what, each.target, each.before, each.after, each.why, time, epoch)
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
