"""Where histories are: one for a checkpoint, or one for each run, by the time of its start; the last ones are kept."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from typing import Any

from pyarrow import fs

from penstock.errors import PenstockError
from penstock.ingress.paths import exists, locate

META = "run.json"
"""The file that makes a directory a history."""
HISTORY = "history"
KEPT_RUNS = 20
STAMP = "%Y-%m-%dT%H-%M-%S.%fZ"


def new_directory(history: str, now: dt.datetime | None = None, kept: int = KEPT_RUNS) -> str:
    """Return the directory of a run that starts now, below that of its flow's histories; remove the oldest.

    With it there are as many as are kept. It is made when something is written.
    """
    for name in sorted(_stamped(history), reverse=True)[kept - 1 :]:
        shutil.rmtree(os.path.join(history, name), ignore_errors=True)
    return os.path.join(history, f"{now or dt.datetime.now(dt.UTC):{STAMP}}")


def _stamped(history: str) -> list[str]:
    """Return the directories that are named as runs are: no others are anybody's to remove."""
    found = []
    for each in os.scandir(history) if os.path.isdir(history) else ():
        try:
            dt.datetime.strptime(each.name, STAMP)
        except ValueError:
            continue
        if each.is_dir(follow_symlinks=False):
            found.append(each.name)
    return found


def find_history(path: str) -> str:
    """Return the history in a directory: the one that it is, or the newest of a checkpoint or a flow."""
    base = path.rstrip("/") or "/"
    if exists(f"{base}/{META}"):
        return base
    inside = f"{base}/{HISTORY}"
    found = [each for each in (inside, *_below(inside), *_below(base)) if exists(f"{each}/{META}")]
    if not found:
        raise PenstockError(
            f"{path} has no history of a run; give the checkpoint of a run, .penstock/<flow name>, or the directory "
            f"given by --history"
        )
    return max(found, key=_started)


def _below(path: str) -> list[str]:
    """Return the directories in a directory; none where there is no such directory."""
    system, inside = locate(path)
    listed = system.get_file_info(fs.FileSelector(inside, allow_not_found=True))
    return [f"{path}/{each.base_name}" for each in listed if each.type == fs.FileType.Directory]


def _started(history: str) -> float:
    """Return when a run was started; one that cannot be read is older than all others."""
    system, inside = locate(f"{history}/{META}")
    try:
        with system.open_input_file(inside) as file:
            meta: Any = json.loads(file.read())
        return float(meta["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0
