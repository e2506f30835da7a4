"""PyFlink's DataStream API with Python in the JVM's process: keyed state, map and filter, ordered asynchronous I/O."""

import time
from collections.abc import Iterator
from typing import Any

from pyflink.common import Configuration, Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor

from bench.peers.apart import Outcome, Task
from bench.workload import Event, amount, large, look_up_later, lower, running, small

EVENT = Types.TUPLE([Types.LONG(), Types.LONG(), Types.DOUBLE()])
RUNNING = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.DOUBLE()])


def environment(mode: str = "thread") -> StreamExecutionEnvironment:
    """Start Flink on this machine, with one slot."""
    config = Configuration()
    config.set_string("python.execution-mode", mode)
    made = StreamExecutionEnvironment.get_execution_environment(config)
    made.set_parallelism(1)
    return made


def collected(stream: Any) -> tuple[list[Any], tuple[int, float] | None]:
    """Run a stream; return its rows, and how many came how long after the first: Flink takes seconds to start."""
    rows, began = [], 0.0
    with stream.execute_and_collect() as found:
        for row in found:
            began = began or time.perf_counter()
            rows.append(row)
    return rows, (len(rows) - 1, time.perf_counter() - began) if len(rows) > 1 else None


class RunningFunction(KeyedProcessFunction):  # type: ignore[misc]
    """Keep count and sum of a key."""

    def open(self, context: Any) -> None:
        """Declare the state."""
        kind = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
        self.state = context.get_state(ValueStateDescriptor("running", kind))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """Take one event."""
        new, output = running(self.state.value() or (0, 0.0), Event(*value))
        self.state.update(new)
        yield tuple(output)


def w1(task: Task) -> Outcome:
    """Run the keyed process function."""
    env = environment()
    events = env.from_collection([tuple(row) for row in task.events()], EVENT)
    keyed = events.key_by(lambda row: row[1], Types.LONG())
    rows, steady = collected(keyed.process(RunningFunction(), RUNNING))
    return Outcome([tuple(row) for row in rows], steady)


def w2(task: Task) -> Outcome:
    """Chain the four operators; Flink counts a stream without end by collecting it."""
    env = environment()
    events = env.from_collection([tuple(row) for row in task.events()], EVENT)
    amounts = events.map(lambda row: amount(Event(*row)), Types.DOUBLE()).filter(large)
    kept = amounts.map(lower, Types.DOUBLE()).filter(small)
    rows, steady = collected(kept)
    return Outcome(len(rows), steady and (task.rows, steady[1]))


class Ask(AsyncFunction):  # type: ignore[misc]
    """Ask for a row, and let others be asked for meanwhile."""

    def __init__(self, wait: float) -> None:
        self._wait = wait

    async def async_invoke(self, value: int) -> list[int]:
        """Ask for one row."""
        return [await look_up_later(value, self._wait)]


def w3(task: Task) -> Outcome:
    """Ask for so many rows at once, in order."""
    env = environment("process")  # asynchronous functions know no other
    serials = env.from_collection(list(range(task.rows)), Types.LONG())
    answers = AsyncDataStream.ordered_wait(serials, Ask(task.wait), Time.seconds(60), task.in_flight, Types.LONG())
    return Outcome(*collected(answers))


PACKAGE = "apache-flink"
WORKLOADS = {"w1": w1, "w2": w2, "w3": w3}
