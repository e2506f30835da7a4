"""Batches of streaming DataFrames that are kept: what counts, what is read again, and what is removed."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import CheckpointError, LeaseError
from penstock.spark.staging import StagedFeed
from penstock.store.checkpoint import Checkpoint
from penstock.store.keeper import Keeper
from penstock.store.lease import Lease
from penstock.store.objects import LocalStore

PARTS = {11: "topic-0", 12: "topic-1", 5: "topic-10"}
"""Numbers of parts are hashes: their order is that of the names."""
_DRIVERS = itertools.count()


@pytest.fixture
def feed(tmp_path: Path) -> Any:
    return opened(tmp_path)


def opened(path: Path) -> StagedFeed:
    """Start a driver, on a machine of its own and so late that the one before counts as dead."""
    number = next(_DRIVERS)
    store = LocalStore(str(path))
    keeper = Keeper(
        Checkpoint(str(path)), Lease(store, machine=f"m{number}", clock=lambda: 1000.0 * number, renewing=False)
    )
    keeper.acquire()
    return StagedFeed(keeper, "events")


def write(path: Path, batch: int, fence: int = 1) -> str:
    """Leave a directory as Spark does."""
    name = f"{batch:012d}-{fence}"
    (path / "sources/events" / name).mkdir(parents=True)
    return name


def test_rows_of_each_part_are_counted_from_its_first(tmp_path: Path, feed: StagedFeed) -> None:
    for batch, (first, second) in enumerate([(3, 0), (0, 4), (2, 5)]):
        name = write(tmp_path, batch)
        rows = [(11, f"{name}/a", first), (12, f"{name}/b", second)]
        feed.keep(batch, PARTS, [each for each in rows if each[2]])
    assert list(feed.parts()) == [11, 12, 5]
    part = feed.parts()[12]
    found = part.poll(6)
    assert found is not None
    assert [(split.path, split.start, split.stop) for split in found.splits] == [
        (str(tmp_path / "sources/events/000000000001-1/b"), 0, 4),
        (str(tmp_path / "sources/events/000000000002-1/b"), 0, 2),
    ]
    whole = feed.whole({12: found})
    assert (whole.rows, whole.backlog, {split.part for split in whole.splits}) == (6, 8, {12})
    again = opened(tmp_path)
    assert again.replay(whole.logged, whole.offset) == replace(whole, backlog=None)
    again.restore(whole.offset)
    rest = again.parts()[12].poll(10)
    assert rest is not None
    assert rest.rows == 3


def test_what_all_wait_for_has_a_name_before_anything_came(feed: StagedFeed) -> None:
    assert [feed.part_name(part) for part in feed.parts()] == ["events"]
    feed.keep(0, PARTS, [])
    assert [feed.part_name(part) for part in feed.parts()] == ["topic-0", "topic-1", "topic-10"]


def test_a_batch_counts_once_it_is_listed_and_by_whoever_is_first(tmp_path: Path, feed: StagedFeed) -> None:
    write(tmp_path, 0)
    other = opened(tmp_path)
    assert not other.has(0)
    name = write(tmp_path, 0, fence=2)
    other.keep(0, PARTS, [(11, f"{name}/a", 3)])
    with pytest.raises(LeaseError):
        feed.keep(0, PARTS, [(11, "000000000000-1/a", 3)])  # by a driver that does not know that it is gone
    write(tmp_path, 1)
    for each in (other, opened(tmp_path)):
        assert each.has(0)
        assert not each.has(1)
        found = each.parts()[11].poll(9)
        assert found is not None
        assert [split.path for split in found.splits] == [str(tmp_path / "sources/events" / name / "a")]
    # Of a batch that is listed, what another wrote is removed; of one that is not, it may still be listed.
    left = sorted(path.name for path in (tmp_path / "sources/events").iterdir())
    assert left == ["000000000000-2", "000000000000.json", "000000000001-1"]


def test_what_was_taken_goes_and_the_newest_stays(tmp_path: Path) -> None:
    opened_before, feed = opened(tmp_path), opened(tmp_path)
    for batch in range(3):
        feed.keep(batch, PARTS, [(11, f"{write(tmp_path, batch)}/a", 2)])
    assert feed.done() == set()
    feed.restore({"taken": {"11": 5}})
    assert feed.done() == {"000000000000.json", "000000000001.json"}
    feed.restore({"taken": {"11": 6}})
    for name in sorted(feed.done()):
        feed.forget(name)
    assert sorted(path.name for path in (tmp_path / "sources/events").iterdir()) == [
        "000000000002-1",
        "000000000002.json",
    ]
    with pytest.raises(LeaseError):  # a driver that slept lists again what was removed
        opened_before.keep(0, PARTS, [(11, "000000000000-1/a", 2)])
    again = opened(tmp_path)
    again.restore({"taken": {"11": 6}})
    assert again.has(1)
    assert again.parts()[11].poll(9) is None
    again.keep(3, PARTS, [(11, "000000000003-1/a", 1)])
    found = again.parts()[11].poll(9)
    assert found is not None
    assert found.logged == {"start": 6, "stop": 7}
    with pytest.raises(CheckpointError, match="rows 0 to 3 of topic-0 are no longer kept"):
        again.replay({"parts": {"11": {"start": 0, "stop": 3}}}, {})
