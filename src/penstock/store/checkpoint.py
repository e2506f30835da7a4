"""What is kept of a run: a log of commits, what each epoch was to read (intents), and the files of state.

The log is the truth: entries with consecutive numbers, each written by *one conditional put*, each saying where the
run stands: sources, watermarks, which files hold each shard, which files of the sinks the epoch made. An entry that is
there is never changed. A driver that takes over writes an entry first, in which nothing is new but its fence: that is
the name under which the driver before it would commit, which therefore cannot any more.

An epoch's intent is written before anything of it is delivered, so that a crash can run the same epoch again. Names of
intents and of state files carry the fence, so that what an old driver still writes does no harm; everything that
no entry that is kept names is rubbish.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, fields

from penstock.errors import CheckpointError, LeaseError
from penstock.rows.timing import Ticks
from penstock.store.identity import FORMAT
from penstock.store.objects import DamagedError, Json, Store, open_store

RETAIN = 10
"""How many epochs back state can be read."""
LOG, INTENTS, STATE, TABLES = "epochs", "intents", "state", "tables"
CHECK_EVERY = 50
"""Objects that are removed between two looks at the lease."""


@dataclass
class ShardIndex:
    """For one operator: the files of each shard, oldest first, and what was measured of it."""

    chains: dict[int, list[str]] = field(default_factory=dict)
    sizes: dict[int, list[int]] = field(default_factory=dict)
    """The bytes of each block of the chain."""
    keys: dict[int, int] = field(default_factory=dict)
    due: dict[int, Ticks] = field(default_factory=dict)

    def add(self, name: str, shard: int, full: bool, size: int, keys: int, next_timer: Ticks | None) -> None:
        """Take in one block of a committed file."""
        if full:
            self.chains[shard], self.sizes[shard] = [name], [size]
        else:
            self.chains.setdefault(shard, []).append(name)
            self.sizes.setdefault(shard, []).append(size)
        self.keys[shard] = keys
        if next_timer is None:
            self.due.pop(shard, None)
        else:
            self.due[shard] = next_timer

    def bytes(self) -> int:
        return sum(sum(sizes) for sizes in self.sizes.values())

    def files(self) -> list[str]:
        return sorted({name for chain in self.chains.values() for name in chain})

    def to_json(self) -> Json:
        files = self.files()
        number = {name: i for i, name in enumerate(files)}
        return {
            "files": files,
            "shards": [
                [
                    shard,
                    [number[name] for name in chain],
                    self.sizes[shard],
                    self.keys.get(shard, 0),
                    self.due.get(shard),
                ]
                for shard, chain in sorted(self.chains.items())
            ],
        }

    @classmethod
    def from_json(cls, body: Json) -> ShardIndex:
        index = cls()
        for shard, chain, sizes, keys, due in body["shards"]:
            index.chains[shard] = [body["files"][i] for i in chain]
            index.sizes[shard], index.keys[shard] = sizes, keys
            if due is not None:
                index.due[shard] = due
        return index


@dataclass
class Position:
    """Where a run stands after its last committed epoch."""

    entry: int = 0
    """The number of the log's newest entry."""
    fence: int = 0
    """Of the driver that wrote it."""
    base: tuple[int, int] = (0, 0)
    """The newest entry that a commit wrote, and its fence: another, where a driver took over and committed nothing."""
    epoch: int = 0
    batches: dict[str, int] = field(default_factory=dict)
    """The last batch of Spark's own stream, for each source that is a streaming DataFrame."""
    marks: dict[str, Ticks] = field(default_factory=dict)
    _: KW_ONLY
    intake: Json = field(default_factory=dict)
    """What the intake of the next epoch begins with: whose turn it is, and how far the parts of sources have come."""
    ended: list[str] = field(default_factory=list)
    rows_in: int = 0
    state: dict[str, ShardIndex] = field(default_factory=dict)
    sink_schemas: dict[str, str] = field(default_factory=dict)
    tables: dict[str, list[int]] = field(default_factory=dict)
    tasks: int = 0
    """The number of tasks that the tables were made for."""
    staged: Json | None = None
    """What of the directory sinks the commit makes visible; see `publication.py`."""
    flow: Json | None = None
    """What of the flow the state rests on; None in checkpoints from before it was logged."""
    waiting: dict[str, Json] = field(default_factory=dict)
    """The parts of directory sinks that are committed and not visible yet; see `rolling.py`."""

    def to_json(self) -> Json:
        """Write what an entry of the log says of the position: all but which entry it is."""
        return {
            **{name: getattr(self, name) for name in _LOGGED},
            "state": {name: index.to_json() for name, index in self.state.items()},
        }

    @classmethod
    def from_json(cls, entry: int, body: Json) -> Position:
        """Read the position that an entry of the log leaves; the first ones said less."""
        position = cls(entry, body["fence"], tuple(body["after"]) if body.get("takeover") else (entry, body["fence"]))
        for name in _LOGGED & body.keys():
            setattr(position, name, body[name])
        position.state = {name: ShardIndex.from_json(index) for name, index in body["state"].items()}
        return position


_LOGGED = {each.name for each in fields(Position)} - {"entry", "fence", "base", "state"}


class Checkpoint:
    def __init__(self, path: str, store: Store | None = None) -> None:
        self.path = path
        self.store = store or open_store(path)

    # Reading ------------------------------------------------------------------------------------------------------

    def description(self) -> Json | None:
        """Return what was written of the flow when the checkpoint was made, with the checkpoint's id."""
        return self.store.read("flow.json")

    def describe(self, identity: Json) -> Json:
        """Return the description; make it where the checkpoint is new."""
        entries = self.entries()
        try:
            description = self.description()
        except DamagedError:
            raise self._lost_description() from None
        if description is None:
            if entries:
                raise self._lost_description()
            self.store.write_new("flow.json", {**identity, "id": uuid.uuid4().hex})
            description = self.description()
        assert description is not None
        return description

    def _lost_description(self) -> CheckpointError:
        return CheckpointError(
            f"{self.path}/flow.json is missing or damaged; restore it from a copy, or start with a new checkpoint"
        )

    def entries(self) -> list[int]:
        """Return the numbers of the log's entries, ascending."""
        return _numbers(self.store.names(LOG))

    def entry(self, number: int) -> Json | None:
        """Return an entry of the log, None where there is none; raise `DamagedError` where it is damaged."""
        return self.store.read(_entry_name(number))

    def newest_first(self) -> Iterator[tuple[int, Json]]:
        """Return the whole entries of the log, newest first; what is damaged counts as never committed."""
        for number in reversed(self.entries()):
            try:
                body = self.entry(number)
            except DamagedError:
                continue
            if body is not None:  # else cleaned away by a driver at work
                yield number, body

    def latest(self) -> Position:
        """Return where the newest whole entry leaves the run."""
        for number, body in self.newest_first():
            if body.get("batch", -1) >= 0:
                raise CheckpointError(
                    f"{self.path} has one log of Spark's for all streaming DataFrames, as an earlier Penstock kept it; "
                    f"this one keeps a log for each: start with a new checkpoint"
                )
            return Position.from_json(number, body)
        return Position()

    def fence(self) -> int:
        """Return the number of the driver that wrote last."""
        return next((int(body["fence"]) for _, body in self.newest_first()), 0)

    def epochs(self) -> dict[int, Json]:
        """Return the committed epochs whose state can be read, ascending, each with its entry of the log."""
        readable: dict[int, Json] = {}
        for body in self.history(self.latest().entry, whole=False):
            epoch = body["epoch"]
            if epoch < 1 or epoch <= max(readable, default=epoch) - RETAIN:
                break
            readable.setdefault(epoch, body)
        return dict(sorted(readable.items()))

    def offsets(self, position: Position) -> list[Json]:
        """Return the committed offsets that are needed to restore the sources, oldest first."""
        if position.epoch == 0:
            return []
        logged: list[Json] = []
        for body in self.history(position.entry, position.fence):
            logged.append(body["offsets"])
            if body["offsets_full"]:
                return list(reversed(logged))
        raise CheckpointError(
            f"{self.path}: an entry of the log (epochs/) that is needed to know what was read is missing; restore it "
            f"from a copy, or start with a new checkpoint"
        )

    def history(self, number: int, fence: int | None = None, *, whole: bool = True) -> Iterator[Json]:
        """Return an entry (of that fence, where it is known) and those that led to it, newest first, as far as kept.

        Each names the one that it followed, and its fence: a driver that slept for ages may put its own under a number
        that was cleaned away. Raises `DamagedError` where one is damaged, unless the history need not be `whole`.
        """
        while number > 0:
            try:
                body = self.entry(number)
            except DamagedError:
                if whole:
                    raise
                number, fence = number - 1, None
                continue
            if body is None or fence not in (None, body["fence"]):
                return  # cleaned away
            yield {"entry": number, **body}
            number, fence = body.get("after", (number - 1, None))  # the first checkpoints had no gaps

    def intent(self, epoch: int, below: int | None = None) -> Json | None:
        """Return what an epoch that was begun was to read: as the last driver (with a fence below) logged it."""
        for fence, name in sorted(self._intents(epoch), reverse=True):
            if below is None or fence < below:
                body = self.store.read(f"{INTENTS}/{name}")
                if body is not None:
                    return body
        return None

    def _intents(self, epoch: int) -> list[tuple[int, str]]:
        return [
            (_fence_of_intent(name), name) for name in self.store.names(INTENTS) if name.startswith(f"{epoch:09d}.")
        ]

    # Writing ------------------------------------------------------------------------------------------------------

    def take_over(self, position: Position, fence: int) -> bool:
        """Occupy the name of the next entry; False where it is there already, and all must be read again.

        From here on no driver with a lower number can commit.
        """
        numbers = self.entries()
        newest = max(numbers, default=0)
        if newest > position.entry and not self._all_damaged(numbers, position.entry):
            return False
        if newest == 0 and fence == 1:
            return True  # nobody was here before
        before = position.entry
        useless = before > position.base[0]
        if not self._append(newest + 1, position, fence, {}, False, {}, takeover=True):
            return False
        if useless:
            self.store.delete(_entry_name(before))  # of a driver that came to nothing: one after the other adds up
        return True

    def _all_damaged(self, numbers: list[int], above: int) -> bool:
        for number in numbers:
            if number > above:
                try:
                    if self.entry(number) is not None:
                        return False
                except DamagedError:
                    continue
        return True

    def commit(self, position: Position, fence: int, offsets: Json, offsets_full: bool, sinks: dict[str, int]) -> None:
        """Write the entry of an epoch: from here on it is done. Raises `LeaseError` where another driver is ahead.

        The epoch of the entry before, once more and without offsets, is an entry that only rolls the files of sinks.
        """
        number = position.entry + 1
        done = self._append(number, position, fence, offsets, offsets_full, sinks)
        # The last look is for a sleeper that finds its number free again, long after others have used and cleaned it.
        if not done or max(self.entries()) != number:
            raise LeaseError(
                f"another driver has taken over the checkpoint {self.path} and is ahead of epoch {position.epoch}; "
                f"this one stops without writing anything more"
            )

    def _append(
        self,
        number: int,
        position: Position,
        fence: int,
        offsets: Json,
        offsets_full: bool,
        sinks: dict[str, int],
        takeover: bool = False,
    ) -> bool:
        body = {
            "format": FORMAT,
            "fence": fence,
            "after": position.base if takeover else (position.entry, position.fence),
            "offsets": offsets,
            "offsets_full": offsets_full,
            "sinks": sinks,
            "takeover": takeover,
            **position.to_json(),
        }
        if not self.store.write_new(_entry_name(number), body):
            return False
        position.entry, position.fence = number, fence
        position.base = position.base if takeover else (number, fence)
        return True

    def write_intent(self, epoch: int, fence: int, body: Json) -> None:
        """Log what an epoch is to read, before anything of it is delivered."""
        if not self.store.write_new(f"{INTENTS}/{epoch:09d}.{fence}.json", body):
            raise LeaseError(
                f"epoch {epoch} of {self.path} was begun by another driver, which has taken over; this one stops "
                f"without writing anything more"
            )

    def forget_intents(self, epoch: int, below: int) -> None:
        """Remove what drivers with a fence below have logged of an epoch."""
        for fence, name in self._intents(epoch):
            if fence < below:
                self.store.delete(f"{INTENTS}/{name}")

    # Cleaning -----------------------------------------------------------------------------------------------------

    def clean(self, position: Position, fence: int, check: Callable[[], None]) -> None:
        """Remove what no entry that is kept names, of this driver and of those before it.

        `check` raises where another driver has taken over. What cannot be read ends the cleaning, before or after it
        has removed rubbish; what is damaged keeps all files of state, because it is not known which it names.
        """
        check()
        needed, named = self._needed(position)
        rubbish = [_entry_name(number) for number in self.entries() if number < needed]
        rubbish += [
            f"{INTENTS}/{name}"
            for name in self.store.names(INTENTS)
            # An intent is of use again should the entry of its epoch be damaged.
            if _epoch_of_intent(name) <= position.epoch - RETAIN and _fence_of_intent(name) <= fence
        ]
        if named is not None:
            rubbish += [
                f"{part}/{name}"
                for part in (STATE, TABLES)
                for name in self.store.names(part)
                if name not in named and fence_of_state(name) <= fence
            ]
        for number, name in enumerate(rubbish):
            if number % CHECK_EVERY == 0:
                check()  # what was read above is old by now
            self.store.delete(name)
        for part in (INTENTS, LOG, "lease", STATE, TABLES):
            self.store.sweep(part)

    def _needed(self, position: Position) -> tuple[int, set[str] | None]:
        """Return the first entry that is needed, and the files of state and tables that those with readable state name.

        None instead of the names where an entry is damaged, or the newest one is gone: another driver has taken over.
        """
        named: set[str] = set()
        needed, full = 0, False
        try:
            for body in self.history(position.entry, position.fence):
                kept = body["epoch"] > position.epoch - RETAIN
                if kept:
                    for index in body["state"].values():
                        named.update(index["files"])
                    named.update(body.get("intake", {}).get("tables", {}).values())
                if kept or not full:
                    needed = body["entry"]
                full = full or body["offsets_full"]
                if full and not kept:
                    break
        except DamagedError:
            return 0, None
        return (needed if full else 0), named if needed else None


def fence_of_state(name: str) -> int:
    """Return the fence in the name of a state file; 0 for one from before names had it."""
    head, dash, _ = name.partition("-")
    return int(head) if dash and head.isdigit() else 0


def _entry_name(number: int) -> str:
    return f"{LOG}/{number:09d}.json"


def _numbers(names: list[str]) -> list[int]:
    return sorted(int(name[:9]) for name in names if name[:9].isdigit() and name.endswith(".json"))


def _epoch_of_intent(name: str) -> int:
    return int(name[:9]) if name[:9].isdigit() else 1 << 62


def _fence_of_intent(name: str) -> int:
    """Return the fence in the name of an intent (epoch.fence.json); 0 for one from before names had it."""
    parts = name.split(".")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0
