"""Operators that may take long over a row, such as co-routines: a worker whose time is over puts them aside."""

from __future__ import annotations

from collections.abc import Collection

from penstock.clock import thread_time
from penstock.kernels.failures import Failures
from penstock.kernels.marks import closed_ports, closings, watermark
from penstock.kernels.pausing import InSteps, PausingRunner
from penstock.threads.batch import Batch, Header
from penstock.threads.ports import PAUSE, KeepGoing, Outputs
from penstock.threads.stateful_station import StatefulStation
from penstock.threads.stations import Group, Rows


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
