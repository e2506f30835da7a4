"""Look at what a run keeps: who has it, what was torn or lost, and what that means."""

from __future__ import annotations

from penstock.cli.health.findings import Finding
from penstock.cli.progress import count, size
from penstock.errors import CheckpointError, StorageError
from penstock.ingress.paths import exists
from penstock.spark.deltas import read_file
from penstock.store.checkpoint import Checkpoint, Position
from penstock.store.documents import DamagedError, Json
from penstock.store.lease import Lease

NEW = "or start with a new checkpoint and new output directories"


def examine(path: str) -> list[Finding]:
    """Look at a checkpoint; reads every state file that a run would need."""
    if not exists(path):
        return [Finding("checkpoint", "broken", f"there is no {path}", "give the directory of --checkpoint")]
    try:
        return _examine(path, Checkpoint(path))
    except StorageError as error:
        found, _, fix = str(error).partition("; ")
        return [Finding("checkpoint", "broken", found, fix)]


def _examine(path: str, kept: Checkpoint) -> list[Finding]:
    entries = kept.entries()
    try:
        flow = kept.description()
    except DamagedError:
        flow = None
    if flow is None:
        found = f"{path}/flow.json is missing or damaged"
        fix = f"restore it from a copy, {NEW}" if entries else "this is no checkpoint, or its run never began"
        return [Finding("checkpoint", "broken", found, fix)]
    whole: dict[int, Json] = {}
    torn = []
    for number in entries:
        try:
            body = kept.entry(number)
        except DamagedError:
            torn.append(number)
            continue
        if body is not None:
            whole[number] = body
    position = kept.latest()
    findings = [
        Finding("checkpoint", "ok", f"flow {flow['flow']!r}, {_last(position.epoch)}"),
        holder(path, kept),
        log(path, kept, sorted(whole), torn, position),
    ]
    if whole:
        findings.append(state(path, position))
    return [*findings, *begun(kept, position.epoch), *unfinished(kept)]


def _last(epoch: int) -> str:
    return f"last committed epoch {epoch}" if epoch else "no epoch is committed yet"


def holder(path: str, kept: Checkpoint) -> Finding:
    """See who has the checkpoint."""
    try:
        driver = Lease(kept.store).holder()
    except CheckpointError as error:
        found, _, fix = str(error).partition("; ")
        return Finding("driver", "broken", found, fix)
    if driver is None:
        return Finding("driver", "ok", "none: a run can begin")
    return Finding("driver", "ok", f"process {driver['pid']} on {driver['host']} (user {driver['user']}) has it")


def log(path: str, kept: Checkpoint, whole: list[int], torn: list[int], position: Position) -> Finding:
    """Look for entries of the log that are damaged, and say whether a run can go on without them."""
    if not torn:
        return Finding("epochs", "ok", f"{count(len(whole), 'commit')} in the log, all whole")
    names = "damaged: " + ", ".join(f"{path}/epochs/{number:09d}.json" for number in torn)
    if not whole:
        return Finding("epochs", "broken", f"{names}; none is whole", f"restore them from a copy, {NEW}")
    try:
        kept.offsets(position)
    except CheckpointError:
        return Finding("epochs", "broken", names, f"a run needs them: restore them from a copy, {NEW}")
    if torn[-1] > whole[-1]:
        fix = f"nothing needs to be done: the next run goes on after epoch {position.epoch}, and runs later ones again"
    else:
        fix = "nothing needs to be done: no run needs them any more"
    return Finding("epochs", "warning", names, fix)


def state(path: str, position: Position) -> Finding:
    """Read every state file that the last epoch names, and compare it with the hash in its name."""
    indexes = list(position.state.values())
    files = {name for index in indexes for name in index.files()}
    bad = []
    for name in sorted(files):
        try:
            read_file(f"{path}/state", name)
        except CheckpointError as error:
            bad.append(str(error).partition(";")[0])
        except (OSError, ValueError) as error:
            bad.append(f"the state file {name} cannot be read: {error}")
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        return Finding("state", "broken", bad[0] + more, f"restore the files of {path}/state from a copy, {NEW}")
    keys, taken = sum(sum(index.keys.values()) for index in indexes), sum(index.bytes() for index in indexes)
    return Finding("state", "ok", f"{count(keys, 'key')}, {size(taken)} in {count(len(files), 'file')}, all whole")


def begun(kept: Checkpoint, committed: int) -> list[Finding]:
    """See whether an epoch was begun and not committed: a crash, or a run that is at it now."""
    following = committed + 1
    try:
        if kept.intent(following) is None:
            return []
    except DamagedError as error:
        found, _, fix = str(error).partition("; ")
        return [Finding("epoch under way", "broken", found, f"{fix}, {NEW}")]
    return [Finding("epoch under way", "ok", f"epoch {following} was begun; the next run takes the same rows again")]


def unfinished(kept: Checkpoint) -> list[Finding]:
    """Count the files that a crash left without their names."""
    left = [name for part in ("intents", "epochs", "lease", "state") for name in kept.store.unfinished(part)]
    if not left:
        return []
    found = f"{count(len(left), 'file')} of a crash; a run removes them after a while"
    return [Finding("unfinished files", "ok", found)]
