"""A run that ends anywhere goes on from its checkpoint as if nothing had happened."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.spark import checkpoint as checkpoints
from penstock.spark import lease as leases
from penstock.spark import outputs
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.outputs import Outputs

from ..conformance.inline import InlineBackend
from .running import Crash, assert_as_sequential, make_rows, read_back, run_inline, two_sinks, write_files


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write 8 files of 13 rows; epochs of 20 rows then begin and end inside of files."""
    write_files(tmp_path / "data", make_rows(104), 13)
    return tmp_path / "data"


class TestCrashAtAStep:
    """The steps of an epoch: intent, job, sinks, manifest."""

    EPOCH = 3

    def crash(self, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
        """Make one step of one epoch the last thing that happens."""

        def stop_at(owner: Any, name: str, *, before: bool, epoch_of: Callable[..., int]) -> None:
            original = getattr(owner, name)

            def crashing(*arguments: Any) -> Any:
                if epoch_of(*arguments) == self.EPOCH and before:
                    raise Crash(step)
                result = original(*arguments)
                if epoch_of(*arguments) == self.EPOCH:
                    raise Crash(step)
                return result

            monkeypatch.setattr(owner, name, crashing)

        def of_spec(_self: Any, spec: Any, _frame: Any) -> int:
            return int(spec.epoch)

        def second(_self: Any, epoch: Any, *_: Any) -> int:
            return int(getattr(epoch, "epoch", epoch))

        def of_sink(_self: Any, node: Any, epoch: int, *_: Any) -> int:
            return epoch if node.name == "windowed" else -1

        match step:
            case "before the intent":
                stop_at(Checkpoint, "write_intent", before=True, epoch_of=second)
            case "before the job":
                stop_at(InlineBackend, "run", before=True, epoch_of=of_spec)
            case "after the job":
                stop_at(InlineBackend, "run", before=False, epoch_of=of_spec)
            case "between the sinks":
                stop_at(Outputs, "_publish_one", before=True, epoch_of=of_sink)
            case "after the sinks":
                stop_at(Outputs, "publish", before=False, epoch_of=second)
            case "after the manifest":
                stop_at(Checkpoint, "commit", before=False, epoch_of=second)

    @pytest.mark.parametrize(
        "step",
        [
            "before the intent",
            "before the job",
            "after the job",
            "between the sinks",
            "after the sinks",
            "after the manifest",
        ],
    )
    def test_the_restarted_run_is_whole(self, data, tmp_path, monkeypatch, step):
        flow = two_sinks(data, tmp_path / "out")
        with monkeypatch.context() as patch, pytest.raises(Crash, match=step):
            self.crash(patch, step)
            run_inline(flow, tmp_path / "ck", epoch_rows=20)
        # More rows have come in the meantime, which must not change what the epoch that was begun reads.
        write_files(data, make_rows(104 + 26)[104:], 13, first=8)
        run_inline(flow, tmp_path / "ck", epoch_rows=33, tasks=3, seed=1)
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")


class Disk:
    """Count what is renamed, linked and removed below a directory; before one of these changes all ends."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path, *, crash_at: int) -> None:
        self.changes, self._root, self._crash_at = 0, str(root), crash_at
        patch.setattr(leases, "_exists", lambda pid: False)  # who held the lease is dead by now
        for name in ("replace", "link", "unlink"):
            self._watch(patch, os, name)
        for module in (outputs, checkpoints):
            self._watch(patch, module, "remove")
        self._watch(patch, outputs, "move")

    def _watch(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def watched(*paths: Any, **options: Any) -> Any:
            if not str(paths[0]).startswith(self._root):
                return original(*paths, **options)
            self.changes += 1
            if self.changes >= self._crash_at:
                raise Crash
            return original(*paths, **options)

        patch.setattr(owner, name, watched)


class TestCrashAnywhere:
    def test_each_change_of_the_disk_can_be_the_last(self, data, tmp_path, monkeypatch):
        done, number = False, 0
        while not done:
            number += 1
            work = tmp_path / f"run{number}"
            flow = two_sinks(data, work / "out")
            with monkeypatch.context() as patch:
                disk = Disk(patch, work, crash_at=number)
                try:
                    run_inline(flow, work / "ck", epoch_rows=52, seed=number)
                    done = disk.changes < number
                except Crash:
                    pass
                patch.undo()
                patch.setattr(leases, "_exists", lambda pid: False)
                run_inline(flow, work / "ck", epoch_rows=52, seed=number + 1)
            assert_as_sequential(flow, work / "out", work / "ck")
        assert number > 25  # that many changes there are in three epochs

    @pytest.mark.parametrize("seed", range(60))
    def test_crash_after_crash(self, data, tmp_path, monkeypatch, seed):
        draw = random.Random(seed)
        flow = two_sinks(data, tmp_path / "out")
        for _ in range(200):
            with monkeypatch.context() as patch:
                Disk(patch, tmp_path, crash_at=draw.randint(1, 25))
                try:
                    tasks, rows = draw.randint(1, 5), draw.randint(5, 30)
                    run_inline(flow, tmp_path / "ck", epoch_rows=rows, tasks=tasks, seed=draw.random())
                    break
                except Crash:
                    pass
        else:
            raise AssertionError(f"seed {seed}: never came to the end")
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")
