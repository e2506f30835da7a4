"""A driver that stops itself in the middle of an operation of the store, and whose store fails now and then.

Usage: sleeper.py SOURCES TESTS WORK MASTER SEED OPERATION NUMBER MOMENT. MASTER is Spark's, or "inline" for the engine
without Spark. With the NUMBER-th OPERATION (0: never) the process sends itself SIGSTOP, "before" or "after" it took
effect. Lines: "mine" when it has the lease, "asleep" just before it stops, "epoch 7", and in the end "done", or "lost"
where another driver has taken over.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPERATIONS = {
    "commit": ("_put_new", "epochs/"),
    "intent": ("_put_new", "intents/"),
    "lease": ("_put_new", "lease/"),
    "publish": ("_publish", ""),
    "clean": ("_delete", "state/"),
    "read": ("_get", "epochs/"),
    "list": ("_list", "epochs"),
}
FAILING = 0.02


def stop_in(operation: str, number: int, moment: str) -> None:
    """Make the process stop in an operation."""
    from penstock.store.objects import LocalStore

    name, prefix = OPERATIONS[operation]
    original = getattr(LocalStore, name)
    seen, slept = 0, False

    def stopping(store: Any, first: str, *rest: Any) -> Any:
        nonlocal seen, slept
        seen += first.startswith(prefix)
        due = first.startswith(prefix) and seen >= number and not slept
        if due and moment == "before":
            slept = True
            _sleep()
        result = original(store, first, *rest)  # which may fail: then the next one is due
        if due and moment == "after":
            slept = True
            _sleep()
        return result

    setattr(LocalStore, name, stopping)


def _sleep() -> None:
    print("asleep", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)


def fail_now_and_then(seed: int) -> None:
    """Make single operations fail, before they take effect or after."""
    from penstock.store.objects import LocalStore

    draw = random.Random(seed)

    def failing(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if draw.random() < FAILING:
                raise OSError("the store failed")
            result = original(*arguments)
            if draw.random() < FAILING:
                raise OSError("the store did it and said that it failed")
            return result

        return call

    for name in ("_get", "_put", "_put_new", "_list", "_exists", "_delete", "_publish"):
        setattr(LocalStore, name, failing(getattr(LocalStore, name)))


def main(work: Path, master: str, seed: int, operation: str, number: int, moment: str) -> int:
    """Run the flow to its end, or until another driver has taken over; wait for a lease that is held."""
    from penstock.errors import LeaseError
    from penstock.spark import engine as engines
    from penstock.spark import stages
    from penstock.store import checkpoint
    from penstock.store.lease import Lease
    from tests.chaos import driver

    # A short run is to have much to remove.
    engines.CLEAN_EVERY = checkpoint.RETAIN = stages.CHAIN_LIMIT = stages.LONG_CHAIN = 2
    engines.FULL_OFFSETS_EVERY = 3
    acquire = Lease.acquire

    def acquiring(lease: Lease, above: int = 0) -> None:
        acquire(lease, above)
        print("mine", flush=True)

    Lease.acquire = acquiring  # type: ignore[method-assign]
    fail_now_and_then(seed)
    if number:
        stop_in(operation, number, moment)
    run = _inline if master == "inline" else _on_spark
    while True:
        try:
            run(driver.flow(work), work, master)
        except LeaseError as error:
            if "in use by" in str(error) or "just taken" in str(error):
                time.sleep(0.1)
                continue
            print("lost", flush=True)
            return 3
        print("done", flush=True)
        return 0


def _say(stats: Any) -> None:
    print(f"epoch {stats.epoch}", flush=True)


def _inline(flow: Any, work: Path, master: str) -> None:
    from tests.spark.running import make_engine

    engine = make_engine(flow, work / "ck", epoch_rows=20)
    engine._listener = _say
    engine.run()


def _on_spark(flow: Any, work: Path, master: str) -> None:
    import penstock as ps
    from penstock.spark.session import make_session

    session = make_session("sleeper", master=master, settings={"spark.ui.enabled": "false"})
    ps.run(flow, on=ps.Spark(session, epoch_rows=20), checkpoint=str(work / "ck"), on_epoch=_say)


if __name__ == "__main__":
    sys.path[:0] = sys.argv[1:3]
    sys.exit(main(Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[6], int(sys.argv[7]), sys.argv[8]))
