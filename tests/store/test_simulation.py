"""The whole protocol of keeping a run, explored by seed; and the defects that it once had, planted back."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.store import checkpoint as checkpoints
from penstock.store.checkpoint import Checkpoint
from penstock.store.keeper import Keeper
from penstock.store.lease import Lease
from penstock.store.publication import Publication

from .simulation import SimulatedStore, Violation, World

SEEDS, MANY_SEEDS = 150, 5000


@pytest.fixture(autouse=True)
def _clean_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "RETAIN", 3)
    monkeypatch.setattr(checkpoints, "CHECK_EVERY", 2)


def explore(seed: int) -> None:
    world = World(seed)
    try:
        world.run()
    except BaseException as error:
        error.add_note(f"seed {seed}; the last operations:\n" + "\n".join(world.trace[-40:]))
        raise


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_nothing_is_lost_or_doubled(first):
    for seed in range(first, first + 50):
        explore(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SEEDS, MANY_SEEDS, 100))
def test_many_seeds(first):
    for seed in range(first, first + 100):
        explore(seed)


def test_a_seed_gives_the_same_world_again():
    traces = []
    for _ in range(2):
        world = World(7)
        world.run()
        traces.append(world.trace)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 100


def test_drivers_do_take_over_from_one_another():
    """Else the rest would show nothing."""
    worlds = [World(seed) for seed in range(30)]
    for world in worlds:
        world.run()
    assert sum(world.highest_fence for world in worlds) > 100


# Defects, each of which some seed must find ---------------------------------------------------------------------------


def no_name_is_occupied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Checkpoint, "take_over", lambda *_: True)


def puts_are_not_conditional(patch: pytest.MonkeyPatch) -> None:
    def put(store: SimulatedStore, name: str, content: bytes) -> bool:
        if store._get(name) is not None:
            return False
        store._put(name, content)
        return True

    patch.setattr(SimulatedStore, "_put_new", put)


def what_failed_is_absent(patch: pytest.MonkeyPatch) -> None:
    def get(store: SimulatedStore, name: str) -> bytes | None:
        try:
            return store._get(name)
        except OSError:
            return None

    def history(checkpoint: Checkpoint, number: int, *, whole: bool = True) -> Any:
        bodies = ((number, checkpoint.entry(number)) for number in reversed(checkpoint.entries()))
        return ({"entry": number, **body} for number, body in bodies if body is not None)

    patch.setattr(SimulatedStore, "get", get)
    patch.setattr(Checkpoint, "history", history)


def cleaners_look_at_no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpoints, "fence_of_state", lambda name: 0)
    patch.setattr(Keeper, "clean", lambda keeper, position: keeper.checkpoint.clean(position, 1 << 60, lambda: None))


def directories_are_published_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    def commit(keeper: Keeper, position: Any, *rest: Any) -> None:
        *entry, deliver, files, ahead = rest
        deliver()
        keeper.publication.add(position.waiting, position.epoch, keeper.fence, files)
        keeper._stage(position, ahead)
        keeper.publication.publish(position.staged)
        keeper.lease.check()
        keeper.checkpoint.commit(position, keeper.fence, *entry)

    patch.setattr(Keeper, "commit", commit)


def sinks_are_called_before_the_intent_is_logged(patch: pytest.MonkeyPatch) -> None:
    def commit(keeper: Keeper, position: Any, *rest: Any) -> None:
        keeper.lease.check()
        rest[3]()
        original(keeper, position, *rest[:3], lambda: None, *rest[4:])

    original = Keeper.commit
    patch.setattr(Keeper, "commit", commit)


def nothing_is_rolled_forward(patch: pytest.MonkeyPatch) -> None:
    def take_over(checkpoint: Checkpoint, position: Any, fence: int) -> bool:
        position.staged = None
        return original(checkpoint, position, fence)

    original = Checkpoint.take_over
    patch.setattr(Checkpoint, "take_over", take_over)


def the_lease_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "check", lambda lease: None)


def what_waits_is_removed_at_the_start(patch: pytest.MonkeyPatch) -> None:
    def opening(publication: Publication, waiting: Any, committed: int) -> None:
        publication.clear(1 << 60)

    patch.setattr(Publication, "drop_visible", opening)


def what_waits_is_forgotten_at_the_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publication, "drop_visible", lambda publication, waiting, committed: waiting.clear())


def parts_go_before_the_commit_that_names_their_copy(patch: pytest.MonkeyPatch) -> None:
    def make(publication: Publication, sink: str, found: Any, fence: int) -> Any:
        roll = original(publication, sink, found, fence)
        if roll["source"] not in roll["used"] and not roll["moves"]:
            for name in roll["used"]:
                publication._store(found["path"]).delete(name)
        return roll

    original = Publication._make_roll
    patch.setattr(Publication, "_make_roll", make)


DEFECTS = [
    what_waits_is_removed_at_the_start,
    what_waits_is_forgotten_at_the_start,
    parts_go_before_the_commit_that_names_their_copy,
    no_name_is_occupied,
    puts_are_not_conditional,
    what_failed_is_absent,
    cleaners_look_at_no_fence,
    directories_are_published_before_the_commit,
    sinks_are_called_before_the_intent_is_logged,
    nothing_is_rolled_forward,
    the_lease_is_not_looked_at,
]


@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_found(plant, monkeypatch):
    plant(monkeypatch)
    for seed in range(2000):
        try:
            explore(seed)
        except Violation:
            return
    raise AssertionError("2000 seeds did not find it")
