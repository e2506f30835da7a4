"""The reorder buffers, run through every interleaving."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.order.primitives import EMPTY, Primitives
from penstock.order.reorder import LockedReorderBuffer, ReorderBuffer
from penstock.testing.explorer import Program, World, explore

Buffer = Callable[[Primitives, int], ReorderBuffer[str] | LockedReorderBuffer[str]]


def sending(make: Buffer, size: int, *numbers: tuple[int, ...]) -> Callable[[World], Program]:
    """Let each thread send its batches; the batch numbers of all threads together are 0, 1, 2, ..."""
    total = sum(len(mine) for mine in numbers)

    def build(world: World) -> Program:
        buffer = make(world, size)
        emitted = world.log("emitted")

        def send_all(mine: tuple[int, ...]) -> None:
            for number in mine:
                world.landmark("before", number)
                while not buffer.send(number, f"batch {number}", emitted.append):
                    world.pause(0)
                    world.landmark("before", number)

        def check() -> None:
            assert emitted.entries == [f"batch {number}" for number in range(total)], emitted.entries

        return Program([lambda mine=mine: send_all(mine) for mine in numbers], check)

    return build


@pytest.mark.parametrize("make", [ReorderBuffer, LockedReorderBuffer])
@pytest.mark.parametrize(
    ("size", "numbers"),
    [
        (2, [(0, 1), (2, 3)]),  # the second thread finds the ring full and must try again
        (4, [(0, 3), (1, 2)]),
        (2, [(1, 2), (0, 3)]),
        (1, [(0, 2), (1, 3)]),
        (4, [(2,), (1,), (0,)]),
        (2, [(0, 3), (1,), (2,)]),
    ],
)
def test_every_interleaving_emits_in_order(make: Buffer, size: int, numbers: list[tuple[int, ...]]) -> None:
    report = explore(sending(make, size, *numbers))
    print(f"\n{make.__name__} {size} {numbers}: {report}")
    assert report.violation is None, report.violation
    assert report.complete
