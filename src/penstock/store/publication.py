"""Directory sinks: part files wait in a staging directory until a commit names them, and then appear by one rename.

Whoever comes after a crash does what is left to do: publishing again is no harm, because what was committed says what
there is to publish. Staging directories carry the fence of their driver; those of older drivers that no commit names
are rubbish.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.errors import CheckpointError
from penstock.store import documents
from penstock.store.documents import DamagedError, Json
from penstock.store.objects import Store, open_store

OWN = "_penstock"
STAGING = f"{OWN}/staging"
OWNER = f"{OWN}/owner.json"


def staged_name(epoch: int, fence: int) -> str:
    """Return the directory in which an epoch's part files wait, below the sink's."""
    return f"{STAGING}/epoch={epoch:09d}.{fence}"


def published_name(epoch: int) -> str:
    """Return the directory in which an epoch's part files appear, below the sink's."""
    return f"epoch={epoch:09d}"


def staged_parts(epoch: int, fence: int, parts: Mapping[str, tuple[str, list[str]]]) -> Json:
    """Return what a commit says of an epoch's part files: for each sink its directory, and the names."""
    return {"epoch": epoch, "fence": fence, "parts": {sink: list(part) for sink, part in parts.items() if part[1]}}


class Publication:
    """The directories of a run's sinks, by path."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = dict(stores)
        self._renamed: dict[str, Store] = {}
        """The sinks' directories whose names may not be on the disk yet."""

    def publish(self, staged: Json | None) -> None:
        """Make the files visible that a commit names; again is no harm.

        The new names need not be on the disk until another entry is the newest (`unsynced`): before that, the next
        start would do all this again.
        """
        if staged is None:
            return
        source, target = staged_name(staged["epoch"], staged["fence"]), published_name(staged["epoch"])
        for sink, (path, names) in staged["parts"].items():
            # The sink may be gone from the flow, or write elsewhere by now.
            store = self._renamed[path] = self._stores.get(path) or open_store(path)
            if not store.publish(source, target, names):
                raise CheckpointError(
                    f"sink {sink!r}: the rows of epoch {staged['epoch']} are committed, but neither "
                    f"{store.path(source)} nor {store.path(target)} is there; restore it from a copy, or, where it "
                    f"was read and removed, put an empty directory there (on an object store, any object into it)"
                )

    def unsynced(self, staged: Json | None) -> list[tuple[Store, str]]:
        """Return what must be on the disk before a commit: what was published, and where the files wait that it names.

        Tasks wrote these. Where an earlier epoch was to be published is not looked up once there is a newer entry.
        """
        published = [(store, "") for store in self._renamed.values()]
        self._renamed.clear()
        if staged is None:
            return published
        waiting = staged_name(staged["epoch"], staged["fence"])
        return published + [(self._stores[path], waiting) for path, _ in staged["parts"].values()]

    def clear(self, fence: int) -> None:
        """Remove what older drivers have left behind; a task of theirs may still be adding to it."""
        for store in self._stores.values():
            clear_staging(store, STAGING, fence)


def clear_staging(store: Store, directory: str, fence: int) -> None:
    """Remove staging directories of older drivers."""
    for name in store.names(directory):
        if _fence(name) < fence:
            store.delete(f"{directory}/{name}")


def _fence(name: str) -> int:
    """Return the fence in the name of a staging directory; another name is nobody's to remove."""
    last = name.rpartition(".")[2]
    return int(last) if name.startswith("epoch=") and last.isdigit() else 1 << 62


def owner_of(store: Store) -> Json | None:
    """Return the note of whose rows a directory has; None where there is none."""
    try:
        return documents.read(store, OWNER)
    except DamagedError:
        raise CheckpointError(
            f"{store.path(OWNER)}, the note of whose rows these are, is damaged; restore it from a copy, or remove "
            f"{store.root} or write elsewhere"
        ) from None


def own(store: Store, note: Json) -> None:
    """Write the note of whose rows a directory has."""
    if owner_of(store) != note:
        documents.write(store, OWNER, note)


def epochs_in(names: Collection[str]) -> list[str]:
    """Return the epochs among the names in a sink's directory."""
    return [name for name in names if name.startswith("epoch=")]
