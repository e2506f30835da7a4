"""The reorder buffers and the joining of parts, run through every interleaving."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from penstock.order.parts import SplitBatch
from penstock.order.primitives import EMPTY, Primitives
from penstock.order.reorder import LockedReorderBuffer, ReorderBuffer
from penstock.testing.explorer import Program, World, explore

Buffer = Callable[[Primitives, int], Any]


def sending(make: Buffer, size: int, *numbers: tuple[int, ...]) -> Callable[[World], Program]:
    """Let each thread send its batches; the numbers of all threads together are 0, 1, 2, ..."""
    total = sum(len(mine) for mine in numbers)

    def build(world: World) -> Program:
        buffer = make(world, size)
        emitted = world.log("emitted")

        def send_all(mine: tuple[int, ...]) -> None:
            for number in mine:
                world.landmark(number)
                while not buffer.send(number, f"batch {number}", emitted.append):
                    world.pause(0)
                    world.landmark(number)

        def check() -> None:
            assert emitted.entries == [f"batch {number}" for number in range(total)], f"{emitted.entries}"

        return Program([lambda mine=mine: send_all(mine) for mine in numbers], check)

    return build


@pytest.mark.parametrize("make", [ReorderBuffer, LockedReorderBuffer])
@pytest.mark.parametrize(
    ("size", "numbers"),
    [
        (4, [(0, 3), (1, 2)]),
        (2, [(0, 1), (2, 3)]),  # the second thread finds the ring full and must try again
        (2, [(1, 2), (0, 3)]),
        (1, [(0, 2), (1, 3)]),
    ],
)
def test_two_workers(make: Buffer, size: int, numbers: list[tuple[int, ...]], sound: Any) -> None:
    sound(explore(sending(make, size, *numbers)))


@pytest.mark.parametrize("make", [ReorderBuffer, LockedReorderBuffer])
@pytest.mark.parametrize("size", [2, 4])
def test_three_workers_with_two_preemptions(make: Buffer, size: int, sound: Any) -> None:
    sound(explore(sending(make, size, (2, 3), (1,), (0,)), preemptions=2))


def test_three_workers_in_every_interleaving(sound: Any) -> None:
    sound(explore(sending(ReorderBuffer, 4, (2,), (1,), (0,))))


def test_a_split_batch_is_finished_once_by_the_last_part(sound: Any) -> None:
    def build(world: World) -> Program:
        batch = SplitBatch[str, str](world, 3, "".join)
        merged = world.log("merged")

        def finish(*parts: int) -> None:
            for part in parts:
                result = batch.finish(part, "abc"[part])
                if result is not EMPTY:
                    merged.append(result)

        def check() -> None:
            assert merged.entries == ["abc"], f"{merged.entries}"

        return Program([lambda: finish(0), lambda: finish(2), lambda: finish(1)], check)

    sound(explore(build))


class LooksOnlyOnce(ReorderBuffer[str]):
    """Do not look again after letting go of the try-lock."""

    def drain(self) -> Generator[str, None, None]:
        if not self._emitting.try_acquire():
            return
        number = self._next.load()
        while (value := self._slots.load(number % self.size)) is not EMPTY:
            yield value
            self._slots.store(number % self.size, EMPTY)
            number += 1
            self._next.store(number)
        self._emitting.release()


class MovesOnBeforeClearing(ReorderBuffer[str]):
    """Admit a later batch to a slot that is then cleared."""

    def drain(self) -> Generator[str, None, None]:
        while self._emitting.try_acquire():
            number = self._next.load()
            while (value := self._slots.load(number % self.size)) is not EMPTY:
                yield value
                self._next.store(number + 1)
                self._slots.store(number % self.size, EMPTY)
                number += 1
            self._emitting.release()
            if self._slots.load(number % self.size) is EMPTY:
                return


class TakesAnyNumber(ReorderBuffer[str]):
    """Store without asking whether the ring reaches that far."""

    def has_room(self, number: int) -> bool:
        return True


@pytest.mark.parametrize(
    ("make", "size", "symptom"),
    [
        (LooksOnlyOnce, 4, "check: ['batch 0']"),
        (MovesOnBeforeClearing, 1, "check"),
        (TakesAnyNumber, 1, "check"),
    ],
)
def test_planted_bugs_are_found(make: Buffer, size: int, symptom: str, broken: Any) -> None:
    broken(explore(sending(make, size, (0,), (1,))), symptom)
