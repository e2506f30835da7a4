"""The protocol by which a driver keeps a run, in its order.

    open      take the lease; refuse what does not fit; occupy the next entry of the log, so that no older driver can
              commit; publish what was committed and not published, also what waited; remove what older drivers left
    begin     begin to log what the epoch is to read
    commit    wait until that is logged; call the sinks that are called at least once; join the files of sinks that are
              due; put the entry, if it is absent; publish the directories
    roll      join the files of sinks that are due, though there is no epoch; put an entry, and publish
    keep      write rows of a source that cannot be read again, once
    clean     remove what no entry names any more

The fence is compared by the put itself: an older driver's name for its next entry is taken. Whatever a driver does
before it has put its entry is seen only by the sinks that are called at least once. So the intent, too, has time
until then: it is brought down to the disk while the epoch's job runs, and an epoch that dies before may be cut anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from penstock.errors import CheckpointError, StorageError
from penstock.store.checkpoint import STATE, Checkpoint, Position
from penstock.store.identity import FORMAT, check_fits
from penstock.store.lease import Lease
from penstock.store.objects import Json, Store
from penstock.store.publication import Publication, SinkFiles, clear_staging, named_directories
from penstock.store.rolling import staged_name

FRAMES = "frames"
"""Where rows wait for functions of (DataFrame, epoch), a directory for each sink."""


def aside(call: Callable[[], None]) -> Callable[[], None]:
    """Do something in a thread of its own; return what waits for its end, and raises what it raised."""
    done: Future[None] = Future()

    def work() -> None:
        try:
            call()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=work, name="penstock-aside", daemon=True).start()
    return done.result


class Keeper:
    """What one driver does with a checkpoint."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        lease: Lease | None = None,
        aside: Callable[[Callable[[], None]], Callable[[], None]] = aside,
    ) -> None:
        self.checkpoint = checkpoint
        self.lease = lease or Lease(checkpoint.store)
        self._aside = aside
        self._intent_is_logged = self._aside_is_done = self._removal_is_done = _nothing
        self.publication = Publication({})
        self.id = ""

    @property
    def fence(self) -> int:
        return self.lease.fence

    def acquire(self) -> None:
        self.lease.acquire(above=self.checkpoint.fence())

    def open(self, identity: Json, publication: Publication, accept: Callable[[Position, str], None]) -> Position:
        """Return where the run stands, with nothing left to do of what was committed.

        `accept` may refuse to go on from there; until it has not, nothing is changed.
        """
        self.lease.check()
        description = self.checkpoint.describe(identity)
        self.id = description["id"]
        while True:
            position = self.checkpoint.latest()
            if position.fence > self.fence:
                raise self.lease.lost()
            check_fits(self.checkpoint.path, position.flow or description, identity)
            accept(position, self.id)
            position.flow = identity
            if self.checkpoint.take_over(position, self.fence):
                break
            self.lease.check()  # the driver before this one has just committed once more
        if description["format"] != FORMAT:
            self.checkpoint.store.write("flow.json", {**description, "format": FORMAT})
        self.publication, publication.run = publication, self.id
        named = named_directories(position.waiting, position.staged)
        publication.publish(position.staged)
        if publication.drop_visible(position.waiting, position.epoch):
            # Without an entry readers would look for what is gone; after it nothing will make it visible again.
            self._sync(publication.unsynced(None, ()))
            self.checkpoint.commit(position, self.fence, {}, False, {})
        self.roll(position, None)
        self._settle()
        publication.clear(self.fence, named)
        for sink in self.checkpoint.store.names(FRAMES):
            clear_staging(self.checkpoint.store, f"{FRAMES}/{sink}", self.fence)
        return position

    def offsets(self, position: Position) -> list[Json]:
        try:
            return self.checkpoint.offsets(position)
        except CheckpointError:
            self.lease.check()  # a driver that has taken over may have cleaned them away
            raise

    def pending(self, epoch: int) -> Json | None:
        """Return what an epoch was to read that an earlier driver began, and make it what this driver is to read."""
        body = self.checkpoint.intent(epoch, below=self.fence)
        if body is not None:
            self.checkpoint.write_intent(epoch, self.fence, body)
            self.checkpoint.forget_intents(epoch, below=self.fence)  # crash after crash they add up
        return body

    def begin(self, epoch: int, intent: Json) -> None:
        """Begin to log what an epoch is to read."""
        self._intent_is_logged = self._aside(partial(self.checkpoint.write_intent, epoch, self.fence, intent))
        self.lease.check()

    def commit(
        self,
        position: Position,
        offsets: Json,
        offsets_full: bool,
        sinks: dict[str, int],
        deliver: Callable[[], None],
        files: Mapping[str, SinkFiles],
        every: float = 0.0,
    ) -> None:
        """Make an epoch the truth, and its rows visible, now or with others.

        `deliver` calls the sinks that are called at least once, `files` are the parts of directory sinks, and epochs
        are at least `every` seconds apart.
        """
        self._intent_is_logged()
        self.lease.check()
        deliver()
        self.lease.check()  # delivering takes its time
        self._aside_is_done()
        self.publication.add(position.waiting, position.epoch, self.fence, files)
        self._stage(position, max(every, self.publication.interval()))
        where = staged_name(position.epoch, self.fence)
        added = [(kept["path"], where, [part[0] for part in parts]) for kept, parts in files.values() if parts]
        self._sync([*self.publication.unsynced(position.staged, added), (self.checkpoint.store, STATE)])
        self.checkpoint.commit(position, self.fence, offsets, offsets_full, sinks)
        self._publish(position)

    def roll(self, position: Position, ahead: float | None) -> bool:
        """Make rows visible that wait, where it is due (all, if `ahead` is None); tell whether there were any."""
        self._aside_is_done()
        if not self.publication.has_due(position.waiting, ahead):
            return False
        self.lease.check()
        self._stage(position, ahead)
        self._sync(self.publication.unsynced(position.staged, ()))
        self.checkpoint.commit(position, self.fence, {}, False, {})
        self._publish(position)
        return True

    def _stage(self, position: Position, ahead: float | None) -> None:
        try:
            position.staged = self.publication.stage(position.waiting, position.epoch, self.fence, ahead)
        except StorageError:
            self.lease.check()  # a driver that has taken over may have joined, and removed, what waited
            raise

    def _publish(self, position: Position) -> None:
        """Make visible what was committed, and leave the rest to be done in the shadow of the next epoch."""
        used = self.publication.used()  # before it is published what was used for it is not on the disk
        self.publication.publish(position.staged)
        waiting, committed, rolled = dict(position.waiting), position.epoch, position.staged is not None

        def remove() -> None:
            for store, name in used:
                store.delete(name)
            if rolled:
                self.publication.retain(committed, self.lease.check)

        if used or rolled:
            self._removal_is_done()  # long ago, but for a disk that is very busy
            self._removal_is_done = self._aside(remove)
        begin = partial(self.publication.begin, waiting, self.fence)
        self._aside_is_done = self._aside(begin) if waiting else _nothing

    def _settle(self) -> None:
        """Bring what was published down to the disk, and remove what it was made of."""
        for done in (self._aside_is_done, self._removal_is_done):
            done()
        self._aside_is_done = self._removal_is_done = _nothing
        self._sync(self.publication.unsynced(None, ()))
        for store, name in self.publication.used():
            store.delete(name)

    def _sync(self, directories: list[tuple[Store, str]]) -> None:
        """Bring the names in several directories down to the disk, all at once: a disk takes them in one go."""
        waits = [self._aside(partial(store.sync, directory)) for store, directory in directories[1:]]
        for store, directory in directories[:1]:
            store.sync(directory)
        for wait in waits:
            wait()

    def keep(self, name: str, write: Callable[[str], None]) -> None:
        """Have a directory of files written, unless it was before: `write` is called with where.

        Of several drivers the first to put its note counts, and each writes to a place with its own number: what one
        that was thought dead still writes does no harm.
        """
        store, (directory, last) = self.checkpoint.store, _split(name)
        if store.exists(f"{name}/_SUCCESS"):
            return  # in place, by an earlier Penstock
        kept = store.read(_note(name))
        if kept is None:
            source = f"{directory}/_{last}.{self.fence}"
            write(f"{self.checkpoint.path}/{source}")
            names = [each for each in store.names(source) if not each.startswith("_")]
            store.write_new(_note(name), {"source": source, "names": names})
            self.lease.check()  # long after, the note of who came first may be gone, and this one be free again
            kept = store.read(_note(name))
        if kept is None or not store.publish(kept["source"], name, kept["names"]):
            raise CheckpointError(
                f"{store.path(name)} is gone, with rows that were read once; restore it, or start with a new checkpoint"
            )
        for each in store.names(directory):
            if each.startswith(f"_{last}.") and each.rpartition(".")[2].isdigit():
                store.delete(f"{directory}/{each}")  # of those that came too late, or crashed

    def forget(self, name: str) -> None:
        self.checkpoint.store.delete(name)
        self.checkpoint.store.delete(_note(name))

    def clean(self, position: Position) -> None:
        self.checkpoint.clean(position, self.fence, self.lease.check)

    def release(self) -> None:
        """Let the next driver in."""
        with suppress(Exception):  # the epoch came to nothing, for this or for another reason
            self._intent_is_logged()
        try:
            self._settle()
        finally:
            self.lease.release()


def _nothing() -> None:
    pass


def _split(name: str) -> tuple[str, str]:
    directory, _, last = name.rpartition("/")
    return directory, last


def _note(name: str) -> str:
    directory, last = _split(name)
    return f"{directory}/_kept/{last}.json"
