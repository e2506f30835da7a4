"""Directory sinks: parts wait in a staging directory, and appear once a commit names them, by one rename.

The driver that comes after a crash does what is left to do: publishing again is no harm, because what was committed
says what there is to publish. Staging directories carry the fence of their driver; those of older drivers that no
commit names are rubbish. What a commit makes visible ("staged") is plain data:

    {rolls: {sink: {path, epoch, source, target, names, moves, used}}}

First each of `moves` (from, to) gets its name, then the directory `source` with `names` appears as `target`, where
there is one; `used` are the directories of which nothing is needed any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from penstock.clock import waiting_time
from penstock.connectors.directory import PartFile
from penstock.errors import CheckpointError
from penstock.store.objects import DamagedError, Json, Store, open_store
from penstock.store.rolling import (
    OWN,
    REMOVED,
    STAGING,
    Join,
    Retention,
    Rolling,
    Target,
    published_name,
    roll_name,
    staged_name,
    visible,
)

OWNER = f"{OWN}/owner.json"
NOTE = "_roll.json"
"""What a roll makes of several files, in the last directory that it uses; written once it is committed."""
AT_ONCE = Target("", 1, 1, 0.0)
"""For sinks that are gone from the flow."""
_NOTHING: Json = {"source": "", "target": "", "names": [], "moves": [], "used": []}

SinkFiles = tuple[Json, list[PartFile]]
"""{path, format, header} of a sink, and what tasks wrote for it in an epoch."""


class Publication:
    """The directories of a run's sinks, by path."""

    def __init__(
        self,
        stores: Mapping[str, Store],
        targets: Mapping[str, Target] | None = None,
        join: Join | None = None,
        retention: Iterable[Retention] = (),
        clock: Callable[[], float] = waiting_time,
    ) -> None:
        self._stores, self._targets, self._join, self._clock = dict(stores), dict(targets or {}), join, clock
        self._retention = {each.path: each for each in retention}
        self._rolling: dict[str, Rolling] = {}
        self._published: dict[tuple[str, str], Store] = {}
        """The directories in which names may not be on the disk yet, by path and name."""
        self._used: list[tuple[Store, str]] = []
        """What is to be removed once they are."""
        self._asked: float | None = None
        self._ahead: dict[str, int] = {}
        """For each sink whose rows of an epoch are visible that is to be run again, that epoch."""
        self.run = ""
        """The checkpoint's id: a directory without rows may have notes of a run that had it before."""

    def _store(self, path: str) -> Store:
        # A sink may be gone from the flow, or write elsewhere by now.
        if path not in self._stores:
            self._stores[path] = open_store(path)
        return self._stores[path]

    def _roll_of(self, sink: str) -> Rolling:
        if sink not in self._rolling:
            assert self._join is not None
            self._rolling[sink] = Rolling(sink, self._targets.get(sink, AT_ONCE), self._join, self._clock)
        return self._rolling[sink]

    # What waits -------------------------------------------------------------------------------------------------------

    def add(self, waiting: dict[str, Json], epoch: int, fence: int, files: Mapping[str, SinkFiles]) -> None:
        """Let what tasks wrote in an epoch wait."""
        for sink, (kept, parts) in files.items():
            if parts:
                before = waiting[sink]["parts"] if sink in waiting else []
                waiting[sink] = {**kept, "parts": [*before, [epoch, fence, [list(part) for part in parts]]]}
                self._roll_of(sink).added()

    def drop_visible(self, waiting: dict[str, Json], committed: int) -> bool:
        """Forget what waits for a sink and is visible: the entry that said so was damaged. Tell whether some was."""
        dropped = False
        paths = {sink: target.path for sink, target in self._targets.items()}
        for sink, path in {**paths, **{sink: kept["path"] for sink, kept in waiting.items()}}.items():
            store = self._store(path)
            self._finish(store, waiting[sink]["parts"][0][0] if sink in waiting else committed + 1)
            last = last_visible(store)
            if last > committed and path == paths.get(sink):
                self._ahead[sink] = last
            if sink in waiting:
                left = [part for part in waiting[sink]["parts"] if part[0] > last]
                dropped = dropped or len(left) < len(waiting[sink]["parts"])
                waiting[sink] = {**waiting[sink], "parts": left}
                if not left:
                    del waiting[sink]
        return dropped

    def _finish(self, store: Store, first: int) -> None:
        """Make the rest of the rolls visible that have rows of an epoch, or later ones, and whose entry is damaged."""
        for name in store.names(STAGING):
            if name < published_name(first):
                continue  # its entry is whole, or a later one
            staged = store.read(f"{STAGING}/{name}/{NOTE}")
            if staged is not None and staged.get("run") == self.run:
                self.publish(staged)

    def note(self, sink: str) -> None:
        """Note that there are rows of a sink, though they are not written yet."""
        self._roll_of(sink).added()

    def has_due(self, waiting: Mapping[str, Json], ahead: float | None) -> bool:
        """Tell whether something that waits should appear; see `stage`."""
        return any(ahead is None or self._roll_of(sink).is_due(kept, ahead) for sink, kept in waiting.items())

    def interval(self) -> float:
        """Return how long ago this was last asked: about as far ahead as the next epoch is."""
        before, self._asked = self._asked, self._clock()
        return 0.0 if before is None else self._asked - before

    def stage(self, waiting: dict[str, Json], epoch: int, fence: int, ahead: float | None) -> Json | None:
        """Join what is due and return what a commit is to make visible; it waits no more.

        The next chance is so many seconds `ahead`; None for everything.
        """
        rolls: dict[str, Json] = {}
        for sink, kept in list(waiting.items()):
            if self._ahead.get(sink) == epoch:
                del waiting[sink]  # this very epoch is visible, with all that waited for it
            elif ahead is None or self._roll_of(sink).is_due(kept, ahead):
                rolls[sink] = self._make_roll(sink, kept, fence)
                del waiting[sink]
        self._ahead = {sink: last for sink, last in self._ahead.items() if last > epoch}
        return {"rolls": rolls} if rolls else None

    def _make_roll(self, sink: str, kept: Json, fence: int) -> Json:
        files = self._roll_of(sink).roll(kept, fence)
        store, (first, last) = self._store(kept["path"]), (kept["parts"][0][0], kept["parts"][-1][0])
        used = sorted({staged_name(epoch, by) for epoch, by, _ in kept["parts"]})
        source, target = roll_name(first, fence), published_name(last)
        roll = {"path": kept["path"], "epoch": last, **_NOTHING}
        if any(each.label for _, _, each in files) or not store.renames:
            moves = [[where, _final_name(name, each.label, last)] for where, name, each in files]
            return {**roll, "moves": moves, "used": [*used, source]}
        if len(used) == 1 and all(len(each.sources) == 1 for _, _, each in files):
            return {**roll, "source": used[0], "target": target, "names": [_last(where) for where, _, _ in files]}
        moves = [[where, f"{source}/{name}"] for where, name, each in files if len(each.sources) == 1]
        names = [name for _, name, _ in files]
        return {**roll, "source": source, "target": target, "names": names, "moves": moves, "used": used}

    def begin(self, waiting: Mapping[str, Json], fence: int) -> None:
        """Join what waits so far, while something else is done."""
        for sink, kept in waiting.items():
            self._roll_of(sink).begin(kept, fence)

    # What appears -----------------------------------------------------------------------------------------------------

    def publish(self, staged: Json | None) -> None:
        """Make the files visible that a commit names; again is no harm.

        The new names need not be on the disk until another entry is the newest (`unsynced`): before that, the next
        start would do all this again.
        """
        for sink, roll in rolls_of(staged).items():
            store = self._store(roll["path"])
            if roll["moves"] and not self._is_done(store, roll):
                store.write(f"{roll['used'][-1]}/{NOTE}", {"run": self.run, "rolls": {sink: roll}})
            missing = None if self._is_done(store, roll) else self._show(store, roll)
            if missing is not None and not self._is_done(store, roll):  # by now, by another driver
                raise CheckpointError(
                    f"sink {sink!r}: the rows up to epoch {roll['epoch']} are committed, but neither "
                    f"{store.path(missing[0])} nor {store.path(missing[1])} is there; restore it from a copy, or, "
                    f"where it was read and removed, put an empty {'directory' if roll['target'] else 'file'} there"
                )
            for directory in _directories(roll):
                self._published[roll["path"], directory] = store
            self._used += [(store, name) for name in roll["used"]]

    def _is_done(self, store: Store, roll: Json) -> bool:
        return bool(roll["target"]) and bool(roll["moves"]) and store.exists(roll["target"])

    def _show(self, store: Store, roll: Json) -> tuple[str, str] | None:
        """Give everything its name; return what is missing: where it was, and where it was to be."""
        for source, target in roll["moves"]:
            if not store.move(source, target):
                return source, roll["target"] or target
        if roll["target"] and not store.publish(roll["source"], roll["target"], roll["names"]):
            return roll["source"], roll["target"]
        return None

    def unsynced(self, staged: Json | None, added: Iterable[tuple[str, str, Iterable[str]]]) -> list[tuple[Store, str]]:
        """Return what must be on the disk before a commit: what was published, and the names that it names.

        Tasks wrote these: `added` has the path, the directory and the names. Where an earlier epoch was to be published
        is not looked up once there is a newer entry.
        """
        directories = dict(self._published)
        self._published.clear()
        for path, directory, names in added:
            directories |= {
                (path, each): self._store(path) for each in _around(f"{directory}/{name}" for name in names)
            }
        for roll in rolls_of(staged).values():
            joined = [source for source, _ in roll["moves"] if "-roll." in source]
            joined += [f"{roll['source']}/{name}" for name in roll["names"]]
            directories |= {(roll["path"], each): self._store(roll["path"]) for each in _around(joined)}
        return [(store, directory) for (_, directory), store in directories.items()]

    def used(self) -> list[tuple[Store, str]]:
        """Return what may go once what was published is on the disk: it is this driver's to remove then."""
        used, self._used = self._used, []
        return used

    def retain(self, committed: int, check: Callable[[], None]) -> None:
        """Remove the oldest files of sinks that keep only so much. `check` raises where another has taken over."""
        for path, each in self._retention.items():
            each.apply(self._store(path), committed, check)

    def clear(self, fence: int, named: Collection[str] = ()) -> None:
        """Remove what older drivers have left; a task of theirs may still be adding to it.

        What the entry has `named` that this driver took over from stays, though it be done with: the driver may have
        slept since, and another one that took over from it may be in the middle of publishing just that.
        """
        for path, store in self._stores.items():
            clear_staging(store, STAGING, fence, named, path)
            store.delete(REMOVED)


def rolls_of(staged: Json | None) -> dict[str, Json]:
    """Return what a commit makes visible, by sink, also as it was logged before files were joined."""
    if staged is None:
        return {}
    if "parts" not in staged:
        rolls: dict[str, Json] = staged["rolls"]
        return rolls
    epoch, source = staged["epoch"], staged_name(staged["epoch"], staged["fence"])
    roll = {**_NOTHING, "epoch": epoch, "source": source, "target": published_name(epoch)}
    return {sink: {**roll, "path": path, "names": names} for sink, (path, names) in staged["parts"].items()}


def last_visible(store: Store) -> int:
    """Return the last epoch whose rows are visible in a sink's directory; 0 where there is none."""
    return max((each.epoch for each in map(visible, store.partitions()) if each is not None), default=0)


def _final_name(name: str, label: str, epoch: int) -> str:
    """Return where a file appears that is named alone: with the epoch, since others will be beside it."""
    if not label:
        return f"{published_name(epoch)}/{_last(name)}"
    return f"{label}/part-{epoch:09d}-{_last(name).removeprefix('part-')}"


def _directories(roll: Json) -> set[str]:
    """Return the directories in which publishing a roll makes names."""
    targets = [target for _, target in roll["moves"]]
    if roll["target"]:
        targets = [f"{roll['target']}/{name}" for name in roll["names"][: 1 if roll["moves"] else 0]] + [roll["target"]]
    return {directory for target in targets for directory in (*_around([target]), *_above(target))}


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _around(names: Iterable[str]) -> set[str]:
    return {name.rpartition("/")[0] for name in names}


def _above(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts))]


def clear_staging(store: Store, directory: str, fence: int, kept: Collection[str] = (), path: str = "") -> None:
    """Remove staging directories of older drivers, but for those that are `kept`, by their paths."""
    for name in store.names(directory):
        if _fence(name) < fence and f"{path}/{directory}/{name}" not in kept:
            store.delete(f"{directory}/{name}")


def named_directories(waiting: Mapping[str, Json], staged: Json | None) -> set[str]:
    """Return the paths of the staging directories that an entry of the log needs."""
    directories = {
        f"{kept['path']}/{staged_name(epoch, fence)}" for kept in waiting.values() for epoch, fence, _ in kept["parts"]
    }
    depth = STAGING.count("/") + 2
    for roll in rolls_of(staged).values():
        names = [roll["source"], *roll["used"], *(source for source, _ in roll["moves"])]
        directories |= {f"{roll['path']}/{'/'.join(name.split('/')[:depth])}" for name in names}
    return directories


def _fence(name: str) -> int:
    """Return the fence in the name of a staging directory; a directory with another name is left alone."""
    last = name.rpartition(".")[2]
    return int(last) if name.startswith("epoch=") and last.isdigit() else 1 << 62


def owner_of(store: Store) -> Json | None:
    """Return the note of whose rows a directory has; None where there is none."""
    try:
        return store.read(OWNER)
    except DamagedError:
        raise CheckpointError(
            f"{store.path(OWNER)}, the note of whose rows these are, is damaged; restore it from a copy, or remove "
            f"{store.root} or write elsewhere"
        ) from None


def own(store: Store, note: Json) -> bool:
    """Write the note of whose rows a directory has; False where another run that began just now was first."""
    known = owner_of(store)
    if known is None:
        return store.write_new(OWNER, note) or owner_of(store) == note
    if known != note:
        store.write(OWNER, note)
    return True
