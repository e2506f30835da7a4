"""Operators with state at work: one worker at a time has all of it, and may put aside what takes long."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping
from typing import Any

import numpy as np

from penstock.clock import thread_time
from penstock.kernels.failures import Failures
from penstock.kernels.keyed import KeyedRunner
from penstock.kernels.marks import Steps, arrival, closed_ports, closings, watermark
from penstock.kernels.pausing import InSteps, PausingRunner
from penstock.kernels.row_keys import key_shards
from penstock.kernels.running import new_states
from penstock.kernels.shards import Forgetting, HotKeys, Partitions, Shard, settle
from penstock.kernels.state_columns import ColumnStates
from penstock.plan.graph import KeyedNode
from penstock.plan.plan import takes_marks
from penstock.rows.chunk import Chunk, Ints
from penstock.threads.batch import Batch, Header
from penstock.threads.ports import PAUSE, KeepGoing, Outputs
from penstock.threads.stations import Group, Rows, Station, Surroundings

PartRows = tuple[int, Chunk, Ints]
"""Rows of one input port, with the partition of each."""


class StatefulStation(Station):
    """Run a keyed operator as a whole, one batch after the other."""

    node: KeyedNode

    def __init__(self, node: KeyedNode, around: Surroundings) -> None:
        super().__init__(node, around)
        operator = node.operator
        self._operator = operator
        # Without timers all partitions may share one dict: they have no key in common, and no need to be told apart.
        # Columns are one worker's at a time, so each partition has its own.
        states = new_states(node)
        self._one_dict = operator.logic.emits != "timed" and not isinstance(states, ColumnStates)
        self._have(self._make_shards(1, states))
        self._shape = around.plan.layout.shapes[node.name]
        self._marked = takes_marks(node)
        self._no_marks = Steps([np.empty(0, np.int64)] * self._shape.width, np.empty(0, np.int64))
        self._lone = all(around.plan.readers[port] == 1 for port in node.inputs)
        """Whether nothing else reads what comes here."""
        self.hot: HotKeys | None = None
        """Samples keys; put here by who wants them."""

    def _make_shards(self, count: int, states: MutableMapping[Any, Any]) -> dict[int, Shard]:
        """Make partitions that share their states if they may, and are empty if not."""
        # What has changed is never asked for here, so it is not noted.
        known = Forgetting()
        return {
            number: Shard(states if self._one_dict else new_states(self.node), all_touched=True, forgetting=known)
            for number in range(count)
        }

    def _have(self, shards: dict[int, Shard]) -> None:
        self._shards = shards
        # What one worker takes whole is counted by itself: it would look like the load of the first partition.
        self.whole = Shard(shards[0].states, all_touched=True, forgetting=shards[0].forgetting)
        self._all = Partitions({0: self.whole} if self._one_dict else shards)
        self._each = {number: Partitions({number: shard}) for number, shard in shards.items()}

    def states(self) -> dict[Any, Any]:
        """Return the state of each key, as it is held: for a station that no worker is in."""
        self._settle()
        return {key: state for shard in self._shards.values() for key, state in shard.states.items()}

    def _settle(self) -> None:
        """Have the states of all keys with their shards; to be called by one thread alone."""
        for each in (self._all, *self._each.values()):
            settle(each)

    def restore(self, states: dict[Any, Any]) -> None:
        """Take the states that another station of the operator had, and their timers; for one partition."""
        assert len(self._shards) == 1
        shard = self._shards[0]
        shard.states.update(states)
        if self._marked:
            shard.load_timers(self._operator.logic)

    def state(self) -> list[Mapping[Any, Any]]:
        """Return the state of all keys, as it is: it may change while it is looked at."""
        aside = [each.aside for each in (self._all, *self._each.values())]
        held = {id(shard.states): shard.states for shard in self._shards.values()}
        return [*held.values(), *(each.states() for each in aside if each is not None)]

    def partitions(self) -> tuple[tuple[int, float], ...]:
        """Return the rows and seconds of each partition, without those that one worker took whole."""
        return tuple((shard.rows, shard.seconds) for shard in self._shards.values())

    def run(self, header: Header, group: Group, failures: Failures) -> Rows:
        """Run the operator over the rows of all ports and the marks among them."""
        for each in self._each.values():
            settle(each)
        parts = [(port, chunk, self._shards_of(port, chunk)) for port, chunk in enumerate(group) if chunk is not None]
        return self._run_on(self._all, header, parts, self._marks(header), failures, self._lone)

    def _shards_of(self, port: int, chunk: Chunk) -> Ints:
        """Return the partition of each row, as far as it matters where one worker has them all."""
        if self._one_dict or len(self._shards) == 1:
            return np.zeros(len(chunk), np.int64)
        assert self._operator.keys is not None
        return key_shards(self._operator.keys[port], chunk, len(self._shards))

    def _marks(self, header: Header) -> Steps:
        if self._marked and header.steps:
            # Where rows have their time from the marks, each of them counts.
            grid = None if self._operator.by_arrival else self._operator.logic.mark_grid
            return arrival(self._shape.marks, dict(header.steps), dict(header.marks), self._shape.width, grid)
        return self._no_marks

    def _run_on(
        self, shards: Partitions, header: Header, parts: list[PartRows], marks: Steps, failures: Failures, own: bool
    ) -> Rows:
        """Run the operator over rows that are its `own`, or that others read, too."""
        water = watermark(self._shape.marks, dict(header.marks))
        runner = KeyedRunner(
            self.node, self._shape.width, header.number, shards, failures, hot=self.hot, shared=not own
        )
        # Without a GIL a chunk ends with the thread that made it, and that one would hand each row of it back to this
        # one, which is about to make them.
        lent = [chunk for _, chunk, _ in parts if own and chunk.rows is None]
        made = runner.run(parts, marks, water)
        for chunk in lent:
            chunk.rows = None
        return made


class PausingStation(StatefulStation):
    """Run a keyed operator as a whole, in pieces as long as its workers have time."""

    def close(self) -> None:
        """Close what waits."""
        for state in self.states().values():
            self._operator.logic.let_go(state)

    def pressure(self) -> tuple[Collection[int], Collection[int] | None]:
        """Tell which ports hold many rows that are not waited for, and which are waited for; any thread may ask."""
        return self._operator.logic.pressure(self._shards[0].states.get(None))

    @property
    def room(self) -> int | None:
        """How many rows a port takes that is just not full."""
        return self._operator.logic.room

    def _take_group(self, header: Header, group: Group) -> Outputs[Batch]:
        failures, made = Failures(), None
        steps = self._steps(header, group, failures)
        try:
            next(steps)
            while made is None:
                keep_going = yield PAUSE
                assert keep_going is not None
                made = self._work(steps, keep_going, failures)
        finally:
            steps.close()
        self._account(header, group, made, failures)
        yield from self.leave(header, made)

    def _steps(self, header: Header, group: Group, failures: Failures) -> InSteps[Rows]:
        """Do the operator's work for one batch; stop before it, and wherever there is no more time."""
        keep_going = yield
        parts = [(port, chunk, self._shards_of(port, chunk)) for port, chunk in enumerate(group) if chunk is not None]
        runner = PausingRunner(self.node, self._shape.width, header.number, self._all, failures)
        marks, ports = dict(header.marks), self._shape.ports
        runner.keeps_frames, runner.closed = self.around.keeps_frames, closed_ports(ports, marks)
        runner.closing = closings(ports, dict(header.steps), marks, self._shape.width)
        water = watermark(self._shape.marks, marks)
        return (yield from runner.steps(parts, self._marks(header), water, keep_going))

    def _work(self, steps: InSteps[Rows], keep_going: KeepGoing, failures: Failures) -> Rows | None:
        """Go on with a batch until it is done, or None until there is no more time; count the time that it takes."""
        wall, cpu = self.around.clock(), thread_time()
        try:
            steps.send(keep_going)
            return None
        except StopIteration as done:
            made: Rows = done.value
            return made
        except BaseException as error:
            return self._broken(error, failures)
        finally:
            self.counts.add(wall=self.around.clock() - wall, cpu=thread_time() - cpu)
