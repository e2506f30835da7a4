"""Penstock: elastic, order-preserving stream processing for Python, on Spark.

Where things are, each below the next: `rows` is the data model; `operators` is what operators do to rows; `plan` is
what engines read of a flow; `flow` is what users write; `sequential` says what a flow means. `connectors` read sources
and write sinks; `kernels` run operators over chunks of rows, for every engine; `store` is what is kept. `order` and
`elastic` are pure: ordered merging, and the controllers. `threads` and `spark` are the engines; `options` and `run`
start them. `dashboard` and `cli` show it, `testing` is the kit for users, `lab` has the papers' experiments.
"""

from penstock.connectors import read, write
from penstock.errors import (
    CheckpointError,
    FlowError,
    LeaseError,
    OperatorError,
    PenstockError,
    RowTypeError,
    SetupError,
    SourceError,
    StorageError,
)
from penstock.flow import Flow, KeyedStream, Stream, WindowedStream, operate
from penstock.flow.checks import DeadLetter
from penstock.flow.pipes import (
    aggregate,
    count_window,
    distinct,
    drop,
    filter,
    flat_map,
    flat_scan,
    key_by,
    lookup,
    map,
    map_batches,
    merge,
    parallel,
    pattern,
    process,
    reduce,
    rename,
    scan,
    select,
    session,
    sink,
    sliding,
    sort,
    threaded,
    top,
    tumbling,
    union,
    window,
)
from penstock.operators import aggregates as agg
from penstock.operators import library
from penstock.operators.calls import Cache
from penstock.operators.coroutine import Coroutine, CoroutineContext
from penstock.operators.expressions import expr
from penstock.operators.library import feedback
from penstock.operators.pattern import Match, absent, step
from penstock.operators.process import Process, ProcessContext
from penstock.operators.windows import Window
from penstock.options import Sequential, Spark, Threads
from penstock.rows.records import Record
from penstock.rows.timing import arrival
from penstock.run import Run, run, start
from penstock.store import reader as state

__version__ = "0.1.0"

__all__ = [
    "Cache",
    "CheckpointError",
    "Coroutine",
    "CoroutineContext",
    "DeadLetter",
    "Flow",
    "FlowError",
    "KeyedStream",
    "LeaseError",
    "Match",
    "OperatorError",
    "PenstockError",
    "Process",
    "ProcessContext",
    "Record",
    "RowTypeError",
    "Run",
    "Sequential",
    "SetupError",
    "SourceError",
    "Spark",
    "StorageError",
    "Stream",
    "Threads",
    "Window",
    "WindowedStream",
    "absent",
    "agg",
    "aggregate",
    "arrival",
    "count_window",
    "distinct",
    "drop",
    "expr",
    "feedback",
    "filter",
    "flat_map",
    "flat_scan",
    "key_by",
    "library",
    "lookup",
    "map",
    "map_batches",
    "merge",
    "operate",
    "parallel",
    "pattern",
    "process",
    "read",
    "reduce",
    "rename",
    "run",
    "scan",
    "select",
    "session",
    "sink",
    "sliding",
    "sort",
    "start",
    "state",
    "step",
    "threaded",
    "top",
    "tumbling",
    "union",
    "window",
    "write",
]
__dir__ = __all__.copy
