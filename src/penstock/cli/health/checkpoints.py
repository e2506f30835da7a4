"""Look at what a run keeps: who has it, what was torn or lost, and what that means."""

from __future__ import annotations

from penstock.cli.health.findings import Finding
from penstock.cli.progress import count, size
from penstock.errors import CheckpointError
from penstock.ingress.paths import exists
from penstock.spark.checkpoint import Checkpoint, ShardIndex
from penstock.spark.deltas import read_file
from penstock.spark.files import list_names, read_json
from penstock.spark.lease import Lease

NEW = "or start with a new checkpoint and new output directories"


def examine(path: str) -> list[Finding]:
    """Look at a checkpoint; reads every state file that a run would need."""
    if not exists(path):
        return [Finding("checkpoint", "broken", f"there is no {path}", "give the directory of --checkpoint")]
    kept = Checkpoint(path)
    flow, epochs = read_json(f"{path}/flow.json"), kept.epochs()
    if flow is None:
        found = f"{path}/flow.json is missing or damaged"
        fix = f"restore it from a copy, {NEW}" if epochs else "this is no checkpoint, or its run never began"
        return [Finding("checkpoint", "broken", found, fix)]
    whole = [epoch for epoch in epochs if kept.manifest(epoch) is not None]
    torn = sorted(set(epochs) - set(whole))
    findings = [
        Finding("checkpoint", "ok", f"flow {flow['flow']!r}, {_last(whole)}"),
        holder(path),
        manifests(whole, torn),
    ]
    if whole:
        findings.append(state(path, kept, whole[-1]))
    return [*findings, *begun(kept, whole), *unfinished(path)]


def _last(whole: list[int]) -> str:
    return f"last committed epoch {whole[-1]}" if whole else "no epoch is committed yet"


def holder(path: str) -> Finding:
    """See who has the checkpoint."""
    driver = Lease(path).holder()
    if driver is None:
        return Finding("driver", "ok", "none: a run can begin")
    return Finding("driver", "ok", f"process {driver['pid']} on {driver['host']} (user {driver['user']}) has it")


def manifests(whole: list[int], torn: list[int]) -> Finding:
    """Look for epochs whose manifest is damaged."""
    if not torn:
        return Finding("epochs", "ok", f"{count(len(whole), 'manifest')}, all whole")
    names = ", ".join(map(str, torn))
    if not whole:
        return Finding("epochs", "broken", f"damaged: {names}; none is whole", f"restore them from a copy, {NEW}")
    if torn[-1] > whole[-1]:
        fix = f"nothing needs to be done: the next run goes on behind epoch {whole[-1]}, and runs later ones again"
    else:
        fix = "nothing needs to be done: a later epoch is whole, only their state cannot be read any more"
    return Finding("epochs", "warning", f"damaged: {names}", fix)


def state(path: str, kept: Checkpoint, epoch: int) -> Finding:
    """Read every state file that the last epoch names, and compare it with the hash in its name."""
    body = kept.manifest(epoch) or {"state": {}}
    indexes = [ShardIndex.from_json(index) for index in body["state"].values()]
    files = {name for index in indexes for chain in index.chains.values() for name in chain}
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


def begun(kept: Checkpoint, whole: list[int]) -> list[Finding]:
    """See whether an epoch was begun and not committed: a crash, or a run that is at it now."""
    following = (whole[-1] if whole else 0) + 1
    if kept.intent(following) is None:
        return []
    return [Finding("epoch under way", "ok", f"epoch {following} was begun; the next run takes the same rows again")]


def unfinished(path: str) -> list[Finding]:
    """Count the files that a crash left without their names."""
    left = [
        name
        for part in ("intents", "epochs", "lease", "state")
        for name in list_names(f"{path}/{part}", hidden=True)
        if name.endswith(".tmp")
    ]
    if not left:
        return []
    return [Finding("unfinished files", "ok", f"{count(len(left), 'file')} of a crash; the next run removes them")]
