"""Drivers that keep one run, interleaved by seed at every operation: the shipped protocol on a made-up store.

The store fails, before or after the operation took effect, repeats operations later, and drivers are paused for longer
than their lease, or killed, anywhere. After every operation the world looks whether something that must not happen has
happened; in the end every row must have come out once and in order.
"""

from __future__ import annotations

import json
import random
import threading
import zlib
from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Any

from penstock.errors import LeaseError, StorageError
from penstock.store import checkpoint as checkpoints
from penstock.store.checkpoint import Checkpoint, Position, ShardIndex
from penstock.store.keeper import Keeper
from penstock.store.lease import Lease
from penstock.store.objects import Store
from penstock.store.publication import Publication, SinkFiles, rolls_of
from penstock.store.rolling import Target, staged_name

ROWS = 24
EXPIRE = 30.0
IDENTITY = {"format": 3, "flow": "simulated", "shards": 1, "sources": {}, "operators": {}, "sinks": {}}
ROOT, OUT = "mem://ck", "mem://out"
LIVES = 60


class Violation(AssertionError):
    """Something that must not happen has happened."""


class Killed(BaseException):
    """Ends a driver as the end of its process does."""


class World:
    """The objects of both places, the clock, and whose turn it is."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.objects: dict[str, bytes] = {}
        self.now = 0.0
        self.back = threading.Semaphore(0)
        self.calls: list[tuple[int, list[int]]] = []
        self.copies = self.draw.random() < 0.3
        """Whether publishing copies file by file, as object stores do, or is one rename."""
        self.full = self.draw.choice([1, 20, 40, 1000])
        """Bytes of a file of the sink."""
        self.every = self.draw.choice([0.0, 20.0, 200.0])
        """Seconds that rows wait to be part of one."""
        self.failing = self.draw.choice([0.0, 0.01, 0.05])
        self.dying = self.draw.choice([0.0, 0.003, 0.02])
        self.pausing = self.draw.choice([0.005, 0.02])
        self.repeats: list[tuple[float, Callable[[], None]]] = []
        self.highest_fence = 0
        self.trace: list[str] = []

    # What must not happen ---------------------------------------------------------------------------------------

    def log(self) -> dict[int, dict[str, Any]]:
        """Return the log as it stands, read by other code than the one under test."""
        found = {}
        for name, content in self.objects.items():
            if name.startswith(f"{ROOT}/epochs/") and name.endswith(".json"):
                crc, text = content.rstrip(b"\n").split(b" ", 1)
                assert int(crc, 16) == zlib.crc32(text)
                found[int(name[-14:-5])] = json.loads(text)
        return found

    def chain(self) -> list[dict[str, Any]]:
        """Return the entries that led to the newest one, newest first, as far as they are kept."""
        log = self.log()
        found, link = [], (newest := max(log, default=0), log.get(newest, {}).get("fence"))
        while link[0] in log and log[link[0]]["fence"] == link[1]:
            found.append(log[link[0]])
            link = tuple(found[-1]["after"])
        return found

    def check(self) -> None:
        """Refuse a world in which something that is kept is missing, or an old driver is ahead."""
        chain = self.chain()
        if not chain:
            return
        newest = chain[0]
        if newest["fence"] < self.highest_fence:
            raise Violation(f"fence {newest['fence']} committed after {self.highest_fence} had taken over")
        self.highest_fence = newest["fence"]
        for body in chain:
            if body["epoch"] > newest["epoch"] - checkpoints.RETAIN:
                for index in body["state"].values():
                    for name in index["files"]:
                        if f"{ROOT}/state/{name}" not in self.objects:
                            raise Violation(f"epoch {body['epoch']} names {name}, which is gone")
        for kept in newest["waiting"].values():
            for epoch, fence, parts in kept["parts"]:
                for name, *_ in parts:
                    if f"{kept['path']}/{staged_name(epoch, fence)}/{name}" not in self.objects:
                        raise Violation(f"the rows of epoch {epoch} are committed, wait, and are gone")
        self.check_seen(newest)

    def seen(self) -> list[int]:
        """Return the rows that anyone sees who lists the sink's directory."""
        names = sorted(name for name in self.objects if name.startswith(f"{OUT}/epoch="))
        return [row for name in names for row in json.loads(self.objects[name])]

    def check_seen(self, newest: dict[str, Any]) -> None:
        """Refuse rows that are visible and not committed, that are twice there, or are gone."""
        waits = [row for kept in newest["waiting"].values() for part in kept["parts"] for row in self._part(kept, part)]
        rolls = rolls_of(newest["staged"]).values()
        hidden = [row for roll in rolls for row in self._hidden(roll)]
        seen = self.seen()
        if self.copies and rolls:
            # File by file: some may be missing that are where they were copied from, none is there twice.
            seen = sorted({*seen, *hidden}) if len(seen) == len(set(seen)) else seen
            hidden = []
        if seen + hidden + waits != list(range(newest["rows_in"])):
            raise Violation(f"of {newest['rows_in']} rows {seen} are visible, {hidden} staged, and {waits} wait")

    def _part(self, kept: dict[str, Any], part: list[Any]) -> list[int]:
        epoch, fence, files = part
        return [
            row
            for name, *_ in files
            for row in json.loads(self.objects[f"{kept['path']}/{staged_name(epoch, fence)}/{name}"])
        ]

    def _hidden(self, roll: dict[str, Any]) -> list[int]:
        """Return the rows of a roll that nobody sees yet, in order."""
        if roll["target"] and any(name.startswith(f"{OUT}/{roll['target']}/") for name in self.objects):
            return []
        moved = {target: source for source, target in roll["moves"]}
        names = [f"{roll['source']}/{name}" for name in roll["names"]] or list(moved)
        places = [name if f"{OUT}/{name}" in self.objects else moved.get(name, name) for name in names]
        return [row for place in places for row in json.loads(self.objects.get(f"{OUT}/{place}", b"[]"))]

    def check_end(self) -> None:
        """Compare what came out with what went in."""
        self.check()
        if self.seen() != list(range(ROWS)):
            raise Violation(f"the sink has {self.seen()}")
        called: dict[int, list[int]] = {}
        for epoch, values in self.calls:
            if called.setdefault(epoch, values) != values:
                raise Violation(f"epoch {epoch} was delivered as {called[epoch]} and as {values}")
        if [row for epoch in sorted(called) for row in called[epoch]] != list(range(ROWS)):
            raise Violation(f"delivered: {called}")

    # Whose turn it is --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let drivers come and go until one has come to the end."""
        drivers: list[Driver] = []
        lives = 0
        try:
            while not any(driver.ended for driver in drivers):
                drivers = [driver for driver in drivers if not driver.dead]
                if len(drivers) < 3 and (not drivers or self.draw.random() < 0.02):
                    lives += 1
                    if lives > LIVES:
                        self.failing = self.dying = self.pausing = 0.0  # a world that is kind lets them end
                    drivers.append(Driver(self, lives))
                able = [driver for driver in drivers if driver.paused_until <= self.now]
                if able:
                    self.draw.choice(able).go_on()
                self.now += 0.5 if able else 5.0
                for due, repeat in [each for each in self.repeats if each[0] <= self.now]:
                    self.repeats.remove((due, repeat))
                    repeat()
                    self.check()
            # Those that are still asleep wake up and must do no harm.
            for driver in drivers:
                while not driver.dead:
                    driver.go_on()
            self.check_end()
        finally:
            for driver in drivers:
                driver.kill()


class Driver:
    """One driver, in a thread that runs only when it is told to."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.paused_until = 0.0
        self.ended = self.dead = self._killed = False
        self.error: BaseException | None = None
        self._turn = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """Let the driver do one operation."""
        self._turn.release()
        self.world.back.acquire()
        if isinstance(self.error, (Violation, AssertionError)):
            raise self.error
        if self.error is not None:
            raise Violation(f"driver {self.number}: {self.error!r}") from self.error

    def kill(self) -> None:
        """End the thread."""
        self._killed = True
        while not self.dead:
            self._turn.release()
            self.world.back.acquire()
        self._thread.join()

    def step(self) -> None:
        """Wait for the next turn; the end of the process may come instead."""
        self.world.back.release()
        self._turn.acquire()
        if self._killed or self.world.draw.random() < self.world.dying:
            raise Killed
        if self.world.draw.random() < self.world.pausing:
            self.paused_until = self.world.now + self.world.draw.uniform(0, 20 * EXPIRE)
            self.world.back.release()
            self._turn.acquire()
            if self._killed:
                raise Killed

    def _live(self) -> None:
        self._turn.acquire()
        try:
            if not self._killed:
                self._run()
                self.ended = True
        except (Killed, LeaseError, StorageError):
            pass  # as anyone may end
        except BaseException as error:
            self.error = error
        finally:
            self.dead = True
            self.world.back.release()

    def _aside(self, call: Callable[[], None]) -> Callable[[], None]:
        """Do something as soon as can be, or as late as may be."""
        if self.world.draw.random() < 0.5:
            return call
        call()
        return lambda: None

    def _run(self) -> None:
        """Do what an engine does, with rows that are numbers and state that is the rows so far."""
        world = self.world
        store, sink = SimulatedStore(ROOT, self), SimulatedStore(OUT, self)
        lease = Lease(store, clock=lambda: world.now, machine=f"machine {self.number}", expire=EXPIRE, renewing=False)
        keeper = Keeper(Checkpoint(ROOT, store), lease, self._aside)
        keeper.acquire()
        target = Target(OUT, world.full, max(1, world.full // 2), world.every)
        publication = Publication(
            {OUT: sink}, {"out": target}, lambda _, path: JoinedLists(sink, path), clock=lambda: world.now
        )
        position = keeper.open(IDENTITY, publication, lambda *_: None)
        taken = [row for each in keeper.offsets(position) for row in each.get("taken", ())]
        if taken != list(range(position.rows_in)):
            raise Violation(f"the offsets say that {taken} were taken, the position {position.rows_in}")
        pending = keeper.pending(position.epoch + 1)
        while position.rows_in < ROWS:
            lease.renew()
            epoch, start = position.epoch + 1, position.rows_in
            intent = pending or {"start": start, "stop": min(ROWS, start + world.draw.randint(1, 4))}
            if pending is None:
                keeper.begin(epoch, intent)
            pending = None
            if intent["start"] != start:
                raise Violation(f"epoch {epoch} begins at {start}, and its intent at {intent['start']}")
            files = self._job(store, sink, keeper, position, epoch, intent)
            rows = list(range(start, intent["stop"]))
            position.epoch, position.rows_in = epoch, intent["stop"]

            def deliver(epoch: int = epoch, rows: list[int] = rows) -> None:
                world.calls.append((epoch, rows))

            whole = epoch % 5 == 1
            offsets = {"taken": list(range(intent["stop"])) if whole else rows}
            keeper.commit(position, offsets, whole, {"out": len(rows)}, deliver, files, 0.5)
            if epoch % 2 == 0:
                keeper.clean(position)
            if world.draw.random() < 0.2:
                keeper.roll(position, 0.5)
        keeper.roll(position, None)
        keeper.release()

    def _job(
        self, store: Store, sink: Store, keeper: Keeper, position: Position, epoch: int, intent: dict[str, Any]
    ) -> dict[str, SinkFiles]:
        """Read the state, write what changed and the rows, as tasks do."""
        index = position.state.setdefault("rows", ShardIndex())
        known: list[int] = []
        for name in index.chains.get(0, ()):
            content = store.get(f"state/{name}")
            if content is None:
                keeper.lease.check()  # as the engine does before it blames the checkpoint
                raise Violation(f"the state file {name} is missing")
            known += json.loads(content)["rows"]
        if known != list(range(intent["start"])):
            raise Violation(f"the state has {known} at {intent['start']}")
        rows = list(range(intent["start"], intent["stop"]))
        full = len(index.chains.get(0, ())) >= 3
        content = json.dumps({"epoch": epoch, "rows": known + rows if full else rows}).encode()
        name = f"{keeper.fence:09d}-{blake2b(content, digest_size=8).hexdigest()}.state"
        store.put(f"state/{name}", content)
        index.add(name, 0, full, len(content), len(rows), None)
        staging = staged_name(epoch, keeper.fence)
        cut = self.world.draw.randint(intent["start"], intent["stop"])
        parts = {"part-0": rows[: cut - intent["start"]], "part-1": rows[cut - intent["start"] :]}
        if self.world.draw.random() < 0.2:
            sink.put(f"{staging}/.part-0.left-over", b"[0]")
        written = {part: json.dumps(values).encode() for part, values in parts.items() if values}
        for part, content in written.items():
            sink.put(f"{staging}/{part}", content)
        kept = {"path": OUT, "format": "json", "header": True}
        return {"out": (kept, [(part, len(parts[part]), len(content), 0) for part, content in written.items()])}


class JoinedLists:
    """Lists that are joined to one."""

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._name, self._rows = store, path.removeprefix(f"{OUT}/"), list[int]()

    def add(self, source: str) -> None:
        content = self._store.get(source.removeprefix(f"{OUT}/"))
        if content is None:
            raise FileNotFoundError(source)
        self._rows += json.loads(content)

    def close(self) -> int:
        content = json.dumps(self._rows).encode()
        self._store.put(self._name, content)
        return len(content)

    def abandon(self) -> None:
        self._store.delete(self._name)


class SimulatedStore(Store):
    """One driver's way to the objects of the world."""

    def __init__(self, root: str, driver: Driver) -> None:
        self._world, self._driver = driver.world, driver
        super().__init__(root, patience=8.0, clock=lambda: self._world.now, sleep=lambda _: driver.step())

    def _operate(self, what: str, name: str, change: Callable[[], Any]) -> Any:
        """Do an operation at this driver's next turn, if it does not fail; look at the world afterwards."""
        self._driver.step()
        world = self._world
        if world.draw.random() < world.failing:
            raise OSError(f"{what} failed")
        result = change()
        world.trace.append(f"{world.now:7.1f} driver {self._driver.number}: {what} {name}")
        if what not in ("get", "list", "exists"):
            world.check()
            if world.draw.random() < world.failing:
                raise OSError(f"{what} was done and reported as failed")
            if world.draw.random() < world.failing / 2:
                due = world.now + world.draw.uniform(0, 10 * EXPIRE)
                world.repeats.append((due, change))
        return result

    def _get(self, name: str) -> bytes | None:
        return self._operate("get", name, lambda: self._world.objects.get(self.path(name)))

    def _put(self, name: str, content: bytes) -> None:
        self._operate("put", name, lambda: self._world.objects.update({self.path(name): content}))

    def _put_new(self, name: str, content: bytes) -> bool:
        def put() -> bool:
            if self.path(name) in self._world.objects:
                return False
            self._world.objects[self.path(name)] = content
            return True

        return bool(self._operate("put new", name, put))

    def _list(self, directory: str) -> list[str]:
        prefix = f"{self.path(directory)}/"

        def names() -> list[str]:
            inside = [name.removeprefix(prefix) for name in self._world.objects if name.startswith(prefix)]
            return list({name.split("/")[0] for name in inside})

        return list(self._operate("list", directory, names))

    def _exists(self, name: str) -> bool:
        return bool(self._operate("exists", name, lambda: bool(self._below(name))))

    def _delete(self, name: str) -> None:
        def delete() -> None:
            for path in self._below(name):
                del self._world.objects[path]

        self._operate("delete", name, delete)

    def _below(self, name: str) -> list[str]:
        path = self.path(name)
        return [found for found in self._world.objects if found == path or found.startswith(f"{path}/")]

    @property
    def renames(self) -> bool:  # type: ignore[override]
        return not self._world.copies

    def _publish(self, source: str, target: str, names: Collection[str]) -> bool:
        def rename() -> bool:
            objects = self._world.objects
            if not self._below(target):
                for path in self._below(source):
                    content = objects.pop(path)
                    if path.rpartition("/")[2] in names:
                        objects[path.replace(self.path(source), self.path(target))] = content
            return bool(self._below(target))

        done = bool(self._operate("publish", target, rename))
        self._delete(source)
        return done

    def _move(self, source: str, target: str) -> bool:
        objects = self._world.objects

        def move() -> bool:
            if self.path(target) not in objects and self.path(source) in objects:
                objects[self.path(target)] = objects[self.path(source)]
                if not self._world.copies:
                    del objects[self.path(source)]
            return self.path(target) in objects

        done = bool(self._operate("move", target, move))
        if done and self._world.copies:
            self._delete(source)
        return done
