"""A Spark session with the settings that Penstock's epochs want, or the user's, and its executors."""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock import clock
from penstock.clock import waiting_time
from penstock.errors import PenstockError
from penstock.rows.keys import SHARDS
from penstock.spark.java import check_java
from penstock.steps import step

MARK = "penstock-python "
NEEDED = ("numpy", "pyarrow")
"""What Penstock imports in workers; Penstock itself and the user's modules travel with the job."""
PROBE = f"""
import json, sys
missing = []
for name in {NEEDED!r}:
    try:
        __import__(name)
    except Exception as error:
        missing.append(name + " (" + str(error).split(chr(10))[0] + ")")
print({MARK!r} + json.dumps([list(sys.version_info[:2]), sys.executable, missing]))
"""
# Old Pythons must be able to run it, and whatever goes wrong is told, not a failure of the job.
COMMAND = ("sh", "-c", '"$0" -c "$1" 2>&1 || echo')
MOST_TASKS = 16
_KNOWN = "_penstock_python_problem"
"""Where a context keeps what was found."""
log = logging.getLogger(__name__)


def refuse_connect(session: Any) -> None:
    """Refuse a session of Spark Connect, which cannot run Penstock's jobs."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise PenstockError(
            "the session of ps.Spark(session) is one of Spark Connect, which reaches neither Spark's context nor its "
            "workers.\n"
            "Make one with SparkSession.builder.master(...) instead of .remote(...), and unset SPARK_REMOTE,\n"
            "or leave it out, ps.Spark(master=URL): then Penstock makes one, as `penstock run --master URL` does."
        )


def check_workers(context: Any) -> None:
    """Refuse to go on where the workers' Python cannot run the flow; say what to set."""
    known = context.__dict__
    if _KNOWN not in known:
        known[_KNOWN] = None if _is_our_own(context) else _problem_of(context)
    if known[_KNOWN] is not None:  # as long as the context lives, workers stay what they are
        raise PenstockError(known[_KNOWN])


def _problem_of(context: Any) -> str | None:
    try:
        answers = _ask(context)
    except Exception as error:  # what is wrong with Spark itself shows in the first epoch, with its own words
        log.debug("the workers' Python could not be asked: %s", error)
        return None
    return find_problem(answers, context.pythonExec)


def _is_our_own(context: Any) -> bool:
    """Tell whether workers get the very Python that runs here; links are not followed, for environments are links."""
    path = shutil.which(context.pythonExec)
    return context.master.startswith("local") and path is not None and os.path.abspath(path) == sys.executable


def _ask(context: Any) -> list[str]:
    """Return the lines that the workers' Pythons print."""
    words, environment = context._jvm.java.util.ArrayList(), context._jvm.java.util.HashMap()
    for word in (*COMMAND, context.pythonExec, PROBE):
        words.append(word)
    for name, value in context.environment.items():
        environment.put(name, value)
    tasks = max(1, min(int(context.defaultParallelism), MOST_TASKS))
    return [str(line) for line in context.parallelize([], tasks)._jrdd.pipe(words, environment).collect()]


def find_problem(lines: list[str], python: str) -> str | None:
    """Return what to do about the Pythons that told of themselves; None where nothing is wrong."""
    told = [json.loads(line.removeprefix(MARK)) for line in lines if line.startswith(MARK)]
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for (major, minor), path, missing in told:
        if f"{major}.{minor}" != here:
            return (
                f"the workers' Python is {major}.{minor} ({path or python}), "
                f"the driver's is {here} ({sys.executable}), and Spark needs the same on both.\n{_remedy()}"
            )
        if missing:
            return f"the workers' Python ({path or python}) cannot import {', '.join(missing)}.\n{_remedy()}"
    if not told:
        words = next((line for line in lines if line.strip()), "it prints nothing")
        return f"the workers cannot start their Python, {python!r}: {words}.\n{_remedy()}"
    return None


def _remedy() -> str:
    return (
        f"Set PYSPARK_PYTHON={sys.executable} before the session is made, or activate that environment first;\n"
        f"on a cluster set it to a Python {sys.version_info[0]}.{sys.version_info[1]} on the nodes that has "
        f"{' and '.join(NEEDED)} (docs/cluster.md), and start again."
    )


FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
APPLICATION = {
    # Sockets of the file system between the JVM and Python: 50 ms per epoch.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    # A shard stays with its executor only if the shuffle does not pull its task elsewhere.
    "spark.shuffle.reduceLocality.enabled": "false",
}
QUERY = {
    # Each adaptive stage would be a job of its own; the plan of an epoch has nothing to adapt.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Names of columns are ours, whatever the user's session says.
    "spark.sql.caseSensitive": "true",
}
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""For Spark on this machine alone: no name of it has to be known, and no other machine can connect."""


def make_session(name: str, *, master: str | None = None, settings: dict[str, str] | None = None) -> Any:
    """Make (or join) the session of this process."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if os.environ.get("SPARK_REMOTE"):
        raise PenstockError(
            f"SPARK_REMOTE={os.environ['SPARK_REMOTE']!r} asks for Spark Connect, which reaches neither Spark's "
            f"context nor its workers.\nUnset it; ps.Spark(master=URL) or `penstock run --master URL` takes a cluster."
        )
    check_java()
    # Without this an environment that is not activated gets workers of another Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or "local[*,4]"
    if network(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master.startswith("local-cluster"):
        os.environ.setdefault("SPARK_WORKER_DIR", tempfile.mkdtemp(prefix="penstock-workers-"))
    builder = SparkSession.builder.appName(name).master(master)
    options = {
        **APPLICATION,
        **QUERY,
        **network(master),
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": "-Dlog4j2.level=ERROR",
        # Workers on other machines do not have the environment of this process.
        **({} if clock.STRETCH == 1 else {f"spark.executorEnv.{clock.VARIABLE}": str(clock.STRETCH)}),
        **(settings or {}),
    }
    for key, value in options.items():
        builder = builder.config(key, value)
    step(f"starting Spark, {master}", master=master)
    with _quiet_start():
        session = builder.getOrCreate()
    step(f"Spark {session.version} is there", version=session.version)
    session.sparkContext.setLogLevel("ERROR")
    atexit.register(_stop, session)
    return session


def network(master: str) -> dict[str, str]:
    """Return where the driver listens: executors on other machines must reach it, so there Spark's settings say."""
    return LOOPBACK if master.startswith("local") else {}


def _stop(session: Any) -> None:
    with suppress(Exception):
        session.stop()


class _quiet_start:
    """Keep the JVM's start-up chatter off the user's terminal; what matters arrives as exceptions."""

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._saved = os.dup(2)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._saved, 2)
        os.close(self._saved)


def engine_session(session: Any) -> Any:
    """Return a session on the same Spark with Penstock's own query settings; the user's stay untouched."""
    own = session.newSession()
    for key, value in QUERY.items():
        own.conf.set(key, value)
    return own


PATIENCE_SECONDS = 60.0
"""How long executors that were asked for are waited for before the number is looked at again."""


class Executors:
    """The executors of one Spark context on a cluster."""

    def __init__(self, context: Any, clock: Callable[[], float] = waiting_time) -> None:
        self._context, self._scala, self._clock = context, context._jsc.sc(), clock
        conf = context.getConf()
        dynamic = allocates_dynamically(conf)
        self.can_change = not dynamic
        """Whether Spark takes orders: with dynamic allocation it decides by itself."""
        self._cores_each = int(conf.get("spark.executor.cores", "0"))
        self._allowed = _allowed(conf, dynamic)
        self._seen = 0
        """The most that were there at once."""
        self._wanted: int | None = None
        self._until = 0.0

    def found(self) -> list[str]:
        """Return the executors that are there, the oldest first."""
        names = [name for name in self._scala.getExecutorIds().mkString(",").split(",") if name]
        self._seen = max(self._seen, len(names))
        return sorted(names, key=lambda name: (len(name), name))

    @property
    def most(self) -> int:
        """Return how many there may be: as many as were there at once so far, unless the settings allow more.

        A cluster gives executors only once the application runs, one after the other, so this must be asked anew.
        """
        return max(1, len(self.found()), self._seen, self._allowed)

    @property
    def most_tasks(self) -> int | None:
        """Return how many tasks they may come to run at once; None while neither executors nor settings tell."""
        most, each = self.most, self.cores_each
        return most * each if self._cores_each and (self._seen or self._allowed) else None

    @property
    def cores_each(self) -> int:
        """Return how many tasks an executor runs at once, as far as that is known."""
        if not self._cores_each:
            # Spark's default parallelism would not do: it is never below two.
            listed = self._scala.statusStore().executorList(True)
            each = [listed.apply(number) for number in range(listed.size())]
            self._cores_each = max((one.totalCores() for one in each if one.id() != "driver"), default=0)
        return max(1, self._cores_each)

    @property
    def cores(self) -> int:
        """Return how many tasks all executors that are there run at once; 0 before the first has come."""
        return len(self.found()) * self.cores_each

    @property
    def changing(self) -> bool:
        """Tell whether executors that were asked for, or given back, have not come or gone yet."""
        if self._wanted is None:
            return False
        if len(self.found()) == self._wanted or self._clock() >= self._until:
            self._wanted = None
        return self._wanted is not None

    def change(self, count: int) -> None:
        """Ask for so many executors in all; the newest go where there are more."""
        jvm, found = self._context._jvm, self.found()
        self._wanted, self._until = count, self._clock() + PATIENCE_SECONDS
        # First the total: otherwise Spark would put others in the place of those that go.
        self._scala.requestTotalExecutors(count, 0, jvm.PythonUtils.toScalaMap({}))
        if len(found) > count:
            self._scala.killExecutors(jvm.PythonUtils.toSeq(found[count:]))


def allocates_dynamically(conf: Any) -> bool:
    """Tell whether Spark itself decides how many executors there are."""
    return bool(conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true")


def _allowed(conf: Any, dynamic: bool) -> int:
    """Return how many executors the settings allow, 0 where they do not say; more than shards would have no work."""

    def number(key: str) -> int:
        return int(conf.get(key, "0"))

    most = number("spark.dynamicAllocation.maxExecutors")
    if dynamic:
        return min(most or SHARDS, SHARDS)
    each = number("spark.executor.cores")
    of_cores = number("spark.cores.max") // each if each else 0
    return min(max(most, number("spark.executor.instances"), of_cores), SHARDS)
