"""Streamz: accumulate with a dict of states, map and filter, map_async."""

import asyncio
from typing import Any

from streamz import Stream

from bench.peers.apart import Outcome, Task
from bench.workload import Event, Running, State, amount, large, look_up_later, lower, running, small


def w1(task: Task) -> Outcome:
    """Keep the states of all keys in the state of one accumulate."""
    outputs: list[Running] = []

    def step(states: dict[int, State], row: Event) -> tuple[dict[int, State], Running]:
        states[row.key], output = running(states.get(row.key, (0, 0.0)), row)
        return states, output

    source = Stream()
    source.accumulate(step, start={}, returns_state=True).sink(outputs.append)
    for row in task.events():
        source.emit(row)
    return Outcome(outputs)


def w2(task: Task) -> Outcome:
    """Chain the four operators and count."""
    counts: list[int] = [0]
    source = Stream()
    amounts = source.map(amount).filter(large).map(lower).filter(small)
    amounts.accumulate(lambda count, _: count + 1, start=0).sink(lambda count: counts.__setitem__(0, count))
    for row in task.events():
        source.emit(row)
    return Outcome(counts[0])


def w3(task: Task) -> Outcome:
    """Ask for so many rows at once."""
    outputs: list[int] = []

    async def ask_all() -> None:
        done = asyncio.Event()

        def take(serial: int) -> None:
            outputs.append(serial)
            if len(outputs) == task.rows:
                done.set()

        async def ask(serial: int) -> Any:
            return await look_up_later(serial, task.wait)

        source = Stream(asynchronous=True)
        source.map_async(ask, parallelism=task.in_flight).sink(take)
        for serial in range(task.rows):
            await source.emit(serial)
        await done.wait()

    asyncio.run(ask_all())
    return Outcome(outputs)


PACKAGE = "streamz"
WORKLOADS = {"w1": w1, "w2": w2, "w3": w3}
