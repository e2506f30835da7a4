"""Find out, once per Spark context and before the first epoch, whether the workers' Python can run Penstock.

A worker of another Python ends in some hundred lines of JVM trace, three times over. So the executors' JVMs are asked
to start the Python that workers would get, without PySpark, and it tells its version and what it cannot import.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from typing import Any

from penstock.errors import PenstockError

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
            "spark= is a session of Spark Connect, which reaches neither Spark's context nor its workers.\n"
            "Make one with SparkSession.builder.master(...) instead of .remote(...), and unset SPARK_REMOTE,\n"
            "or leave spark= out: then Penstock makes one, and `penstock run --master URL` one on your cluster."
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
