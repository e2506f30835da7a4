"""Where histories are: one for a checkpoint, or one for each run, by the time of its start; the last ones are kept."""

from __future__ import annotations

import datetime as dt
import os
import shutil

from pyarrow import fs

from penstock.errors import PenstockError
from penstock.ingress.paths import locate

FILE = "history.sqlite"
"""The file that makes a directory a history."""
OLD_FILE = "run.json"
"""The one that earlier versions wrote, beside lines of JSON."""
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
    """Return the history in a directory: the one that it is, or the one of a checkpoint or a flow written last."""
    base = path.rstrip("/") or "/"
    if _written(base):
        return base
    inside = f"{base}/{HISTORY}"
    found = max((inside, *_below(inside), *_below(base)), key=_written)
    if not _written(found):
        raise PenstockError(
            f"{path} has no history of a run; give the checkpoint of a run, .penstock/<flow name>, or the directory "
            f"given by --history"
        )
    return found


def _below(path: str) -> list[str]:
    """Return the directories in a directory; none where there is no such directory."""
    system, inside = locate(path)
    listed = system.get_file_info(fs.FileSelector(inside, allow_not_found=True))
    return [f"{path}/{each.base_name}" for each in listed if each.type == fs.FileType.Directory]


def _written(history: str) -> int:
    """Return when a history was written last, in nanoseconds since 1970; 0 where a directory has none."""
    for name in (FILE, OLD_FILE):
        system, inside = locate(f"{history}/{name}")
        info = system.get_file_info(inside)
        if info.type != fs.FileType.NotFound:
            return info.mtime_ns or 1
    return 0
