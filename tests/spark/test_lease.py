"""One driver at a time: the second is refused, a dead one's place is taken, and a slow one can do no harm."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.spark import stages as routing
from penstock.spark.outputs import Outputs
from penstock.store.lease import EXPIRE_SECONDS, Lease
from penstock.store.objects import LocalStore

from ..conformance.inline import InlineBackend
from ..patience import PATIENCE
from .running import (
    Crash,
    assert_as_sequential,
    change_document,
    make_engine,
    make_rows,
    read_document,
    run_inline,
    two_sinks,
    write_files,
)


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def make_lease(tmp_path: Path) -> Iterator[Callable[..., Lease]]:
    """Make leases of one checkpoint; all are given back in the end."""
    made: list[Lease] = []

    def make(**options: Any) -> Lease:
        made.append(Lease(LocalStore(str(tmp_path)), **options))
        return made[-1]

    yield make
    for lease in made:
        lease.release()


class TestLease:
    def test_the_second_driver_is_told_who_has_it(self, make_lease, tmp_path):
        clock = Clock()
        first = make_lease(clock=clock)
        first.acquire()
        clock.now += 12
        with pytest.raises(ps.LeaseError) as refused:
            make_lease(clock=clock).acquire()
        message = str(refused.value)
        assert f"process {os.getpid()} on {socket.gethostname()}" in message
        assert re.search(r"started 12 s ago.*seen 12 s ago.*stop it first, or use another checkpoint", message)

    def test_a_lease_that_was_given_back_is_free_and_its_number_is_not_used_again(self, make_lease, tmp_path):
        numbers = []
        for _ in range(3):
            lease = make_lease()
            lease.acquire()
            numbers.append(lease.fence)
            lease.release()
        assert numbers == [1, 2, 3]

    @pytest.mark.parametrize("reaped", [True, False])
    def test_the_lease_of_a_process_that_was_killed_is_taken_over(self, make_lease, tmp_path, reaped):
        holder = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys, time\n"
                "from penstock.store.lease import Lease\n"
                "from penstock.store.objects import LocalStore\n"
                f"Lease(LocalStore({str(tmp_path)!r})).acquire(); print('held', flush=True); time.sleep(600)",
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(ps.LeaseError, match=f"process {holder.pid} on"):
                make_lease().acquire()
        finally:
            holder.kill()
            # Wait for its end, and leave it as its parent may leave it: dead, and still in the list of processes.
            os.waitid(os.P_PID, holder.pid, os.WEXITED | (0 if reaped else os.WNOWAIT))
            holder.stdout.close()
        lease = make_lease()
        lease.acquire()
        assert lease.fence == 2
        holder.wait()

    def test_a_process_number_that_is_used_again_does_not_hold_the_lease(self, make_lease, tmp_path):
        lease = make_lease()
        lease.acquire()
        lease._stop.set()
        change_document(tmp_path / "lease/000000001.json", born="long ago")
        make_lease().acquire()

    def test_a_driver_on_another_machine_has_it_until_it_is_not_seen_for_a_while(self, make_lease, tmp_path):
        clock = Clock()
        lease = make_lease(clock=clock)
        lease.acquire()
        lease._stop.set()
        change_document(tmp_path / "lease/000000001.json", host="elsewhere", machine="elsewhere")
        clock.now += EXPIRE_SECONDS - 1
        with pytest.raises(ps.LeaseError, match="on elsewhere"):
            make_lease(clock=clock).acquire()
        clock.now += 1
        make_lease(clock=clock).acquire()
        with pytest.raises(ps.LeaseError, match=r"another driver has taken over .* stops without writing"):
            lease.check()

    def test_it_is_renewed_while_it_is_held(self, make_lease, tmp_path):
        renewed = threading.Event()
        moments = iter(range(1000, 1_000_000))

        def clock() -> float:
            now = next(moments)
            if now > 1010:
                renewed.set()
            return now

        lease = make_lease(clock=clock, expire=0.006)
        lease.acquire()
        assert renewed.wait(PATIENCE)
        lease.release()
        assert read_document(tmp_path / "lease/000000001.json")["renewed"] > 1005

    @pytest.mark.parametrize("text", ["soon", "0", "-1", "inf"])
    def test_a_time_that_is_none_is_refused(self, make_lease, monkeypatch, text):
        monkeypatch.setenv("PENSTOCK_LEASE_SECONDS", text)
        with pytest.raises(ps.LeaseError, match=r"PENSTOCK_LEASE_SECONDS is .* seconds above 0"):
            make_lease()

    def test_of_two_at_once_one_gets_it(self, make_lease, tmp_path):
        outcomes: list[Any] = []
        barrier = threading.Barrier(8)

        def take() -> None:
            lease = make_lease()
            barrier.wait()
            try:
                lease.acquire()
                outcomes.append(lease.fence)
            except ps.LeaseError:
                outcomes.append(None)

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes, key=str) == [1, *[None] * 7]


def take_over(checkpoint: Path) -> None:
    """Take the lease as a driver does that holds the first one for dead."""
    path = sorted((checkpoint / "lease").glob("*.json"))[-1]
    change_document(path, released=True)
    lease = Lease(LocalStore(str(checkpoint)))
    lease.acquire()
    lease.release()


def test_a_second_run_on_a_checkpoint_is_refused_and_does_the_first_no_harm(tmp_path):
    write_files(tmp_path / "data", make_rows(60), 10)
    flow = two_sinks(tmp_path / "data", tmp_path / "out")
    refused: list[str] = []

    def start_another(_: Any) -> None:
        with pytest.raises(ps.LeaseError) as error:
            run_inline(flow, tmp_path / "ck")
        refused.append(str(error.value))

    engine = make_engine(flow, tmp_path / "ck", epoch_rows=20)
    engine._listener = start_another
    engine.run()
    assert len(refused) == 4
    assert all(f"in use by process {os.getpid()}" in message for message in refused)
    assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")


def test_a_lease_that_cannot_be_given_back_does_not_fail_a_run_that_is_done(tmp_path, monkeypatch, caplog):
    write_files(tmp_path / "data", make_rows(60), 10)
    flow = two_sinks(tmp_path / "data", tmp_path / "out")
    release, put = Lease.release, LocalStore._put

    def failing(store: LocalStore, name: str, content: bytes) -> None:
        if name.startswith("lease/"):
            raise OSError("Input/output error")
        put(store, name, content)

    def released_in_vain(lease: Lease) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("penstock.store.objects._FIRST_PAUSE", 100.0)  # longer than anyone is patient
            patch.setattr(LocalStore, "_put", failing)
            release(lease)

    monkeypatch.setattr(Lease, "release", released_in_vain)
    run_inline(flow, tmp_path / "ck", epoch_rows=20)
    assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")
    assert "could not be given back, and runs out by itself" in caplog.text
    run_inline(flow, tmp_path / "ck", epoch_rows=20)  # this process lives, and nothing of it writes there any more


class TestFencing:
    """A driver that slept through its own replacement wakes up at the worst moment."""

    @pytest.mark.parametrize("moment", ["during the job", "during the sinks"])
    def test_it_cannot_commit(self, tmp_path, monkeypatch, moment):
        write_files(tmp_path / "data", make_rows(60), 10)
        flow = two_sinks(tmp_path / "data", tmp_path / "out")
        owner, name = {"during the job": (InlineBackend, "run"), "during the sinks": (Outputs, "deliver")}[moment]
        original = getattr(owner, name)

        def sleeping(self: Any, *arguments: Any) -> Any:
            result = original(self, *arguments)
            if getattr(arguments[0], "epoch", arguments[0]) == 2:
                take_over(tmp_path / "ck")
            return result

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, sleeping)
            engine = make_engine(flow, tmp_path / "ck", epoch_rows=20)
            with pytest.raises(ps.LeaseError, match="another driver has taken over"):
                engine.run()
        assert ps.state.epochs(str(tmp_path / "ck")) == [1]
        run_inline(flow, tmp_path / "ck", epoch_rows=20)
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")

    def test_an_epoch_that_another_has_begun_or_committed_stays_as_it_is(self, tmp_path):
        write_files(tmp_path / "data", make_rows(60), 10)
        engine = run_inline(two_sinks(tmp_path / "data", tmp_path / "out"), tmp_path / "ck", epoch_rows=20)
        before = (tmp_path / "ck/epochs/000000002.json").read_bytes()
        engine._position.epoch, engine._position.entry = 2, 1
        with pytest.raises(ps.LeaseError, match=r"another driver has taken over .* ahead of epoch 2"):
            engine._checkpoint.commit(engine._position, 9, {}, False, {})
        with pytest.raises(ps.LeaseError, match=r"epoch 2 .* begun by another driver"):
            engine._checkpoint.write_intent(2, 1, {})
        assert (tmp_path / "ck/epochs/000000002.json").read_bytes() == before

    def test_its_tasks_write_where_nobody_looks(self, tmp_path, monkeypatch):
        """Tasks of a driver that was killed may outlive it, and slice the rows otherwise than its heir's."""
        monkeypatch.setattr(routing, "SLICE_ROWS", 5)
        write_files(tmp_path / "data", make_rows(60), 10)
        flow = two_sinks(tmp_path / "data", tmp_path / "out")
        specs: list[Any] = []

        class Zombie(InlineBackend):
            def run(self, spec: Any, frame: Any) -> Any:
                specs.append(spec)
                if len(specs) == 1:
                    raise Crash
                outcome = super().run(spec, frame)
                super().run(specs[0], frame)  # the dead driver's tasks, while the heir has not published yet
                return outcome

        zombie = Zombie(2, 0)
        with pytest.raises(Crash):
            run_inline(flow, tmp_path / "ck", backend=zombie, tasks=3)
        run_inline(flow, tmp_path / "ck", backend=zombie, tasks=1)
        assert [len(spec.tables["scanned"]) for spec in specs[:2]] == [3, 1]
        assert specs[0].epoch == specs[1].epoch
        assert_as_sequential(flow, tmp_path / "out", tmp_path / "ck")
