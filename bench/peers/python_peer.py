"""Bare Python: a loop and a dict, and asyncio for what waits."""

import asyncio

from bench.peers.apart import Outcome, Task
from bench.workload import Running, State, amount, large, look_up_later, lower, running, small


def w1(task: Task) -> Outcome:
    """Keep the states in a dict."""
    states: dict[int, State] = {}
    outputs: list[Running] = []
    for row in task.events():
        states[row.key], output = running(states.get(row.key, (0, 0.0)), row)
        outputs.append(output)
    return Outcome(outputs)


def w2(task: Task) -> Outcome:
    """Call one function after the other."""
    count = 0
    for row in task.events():
        value = amount(row)
        if large(value):
            value = lower(value)
            if small(value):
                count += 1
    return Outcome(count)


def w3(task: Task) -> Outcome:
    """Ask for a window of rows at once."""

    async def ask_all() -> list[int]:
        window = asyncio.Semaphore(task.in_flight)

        async def ask(serial: int) -> int:
            async with window:
                return await look_up_later(serial, task.wait)

        return await asyncio.gather(*(ask(serial) for serial in range(task.rows)))

    return Outcome(asyncio.run(ask_all()))


PACKAGE = None
WORKLOADS = {"w1": w1, "w2": w2, "w3": w3}
