"""Run a side in a process of its own, for settings that one JVM cannot hold two values of.

The parent sends one JSON request a line on the child's stdin and reads one JSON answer a line; the side
in the child is idle until it is asked, so remote sides take turns with local ones.
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
from typing import Any, cast

from bench.session import ROOT
from bench.sides import Epoch, Side

STOP_SECONDS = 60


class RemoteSide:
    """A side that another process holds: `factory` is "module:function", called with JSON arguments."""

    def __init__(self, factory: str, **arguments: Any) -> None:
        self._command = [sys.executable, "-m", "bench.remote", factory, json.dumps(arguments)]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process, and the side in it."""
        # In a session of its own: a signal to the parent's group must not end the JVM before the side stops it.
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        self._ask("start")

    def run_epochs(self, n: int) -> list[Epoch]:
        """Have the side run its next `n` epochs."""
        return [(rows, seconds) for rows, seconds in self._ask("run_epochs", n)]

    def stop(self) -> None:
        """Have the side stop, and wait for the process to end."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        # The end of its input is the request to stop; it reaches a child that has failed, too.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ask(self, method: str, *arguments: Any) -> Any:
        """Send one request and return its answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([method, *arguments]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._command[3]} ended during {method}: its own error is above")
        return json.loads(answer)


def serve(factory: str, arguments: dict[str, Any]) -> None:
    """Make the side and answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    # Whatever else prints must not mix with the answers.
    os.dup2(2, 1)
    module, _, function = factory.partition(":")
    side = cast(Side, getattr(importlib.import_module(module), function)(**arguments))
    try:
        for line in sys.stdin:
            method, *rest = json.loads(line)
            print(json.dumps(getattr(side, method)(*rest)), file=answers, flush=True)
    finally:
        side.stop()


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
